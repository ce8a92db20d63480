"""The process of a task: decode its function and arguments, call it, encode the result."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import importlib
import inspect
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

from ..basics.text import size
from ..basics.tracing import SpanInProcess
from ..errors import PayloadUndecodable, TaskCancelled
from ..protocol.load import Loaded
from ..protocol.options import TaskOptions
from ..protocol.records import PlanRecord
from ..protocol.shared import Claim
from ..runtime.context import running
from ..runtime.failures import MESSAGES, describe, undecodable_for_log
from ..runtime.forks import EndingForks
from ..runtime.job import Job
from ..runtime.plan_within import returned
from ..runtime.retry_rules import is_final
from ..serialization.codec import Codec
from ..store.blob import Bytes
from ..store.carried import carried_function, carried_value, carry
from .adds import to_plain
from .context import ChildContext, Link, WorkerGone
from .wire import Packet

#: How much sooner than the worker and others the system ends this process if memory runs out.
OOM_SCORE = 500
#: A process may reserve twice its memory limit and so much more: numpy and threads reserve more
#: than they use. So one huge allocation fails at once, and does not wait for the next look.
RESERVE_BYTES = 1024**3
#: It encodes exceptions, and signs nothing. A task in JSON never comes here.
_CODEC = Codec()


def serve(end: socket.socket, output: int) -> NoReturn:
    """Run the tasks that come through the socket. `output` gets what they print and log."""
    code = 1
    try:
        _settle_in(output)
        link = Link(end)
        while True:
            _Run(link, link.next_task()).run()
    except WorkerGone:
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(BaseException):
            _flush()
        os._exit(code)


def _settle_in(output: int) -> None:
    # A session of its own: a signal to the group of the task must not reach the guard.
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write(str(OOM_SCORE))
    nothing = os.open(os.devnull, os.O_RDONLY)
    for fd, to in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(fd, to)
    os.close(nothing)
    os.close(output)
    sys.stdout = open(1, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    faulthandler.enable(2)
    logging.basicConfig(
        level=logging.INFO, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()


class _Run:
    """One task: `packet` is what the worker sent of it."""

    def __init__(self, link: Link, packet: Packet) -> None:
        head = packet.head
        self._link, self._head = link, head
        self._job = Job(
            Loaded(Claim(*head["claim"]), b"", [], []),
            options=TaskOptions.from_json(head["options"].encode()),
            plan=PlanRecord.from_bytes(bytes(packet.parts[0])) if head["has_plan"] else None,
        )
        count = head["values"]
        self._blobs: list[bool] = head["blobs"]
        self._bodies: Sequence[Bytes] = packet.parts[1 : 1 + count]
        self._context = ChildContext(self._job, link, packet.parts[1 + count :])
        self._job.traceparent = head["traceparent"]
        self._span: SpanInProcess | None = None
        MESSAGES.setLevel(logging.INFO if head["messages"] else logging.CRITICAL + 1)

    def run(self) -> None:
        """Run it, and tell how it ended."""
        limit = self._head["limit"]
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        resource.setrlimit(resource.RLIMIT_DATA, (2 * limit + RESERVE_BYTES, hard))
        token = running.set(self._context)
        try:
            if self._head["span"]:
                module, name = self._head["span"][0].split(":")
                make = getattr(importlib.import_module(module), name)
                self._span = make(self._head["span"][1])
            self._attempt()
        except WorkerGone:
            raise
        except BaseException as error:
            self._fail(error)
        finally:
            running.reset(token)

    def _attempt(self) -> None:
        try:
            with EndingForks():
                function, args, kwargs = self._prepare()
        except PayloadUndecodable as error:
            self._tell("cannot", {"why": str(error)[:8000], "shown": undecodable_for_log(error)})
            return
        if inspect.iscoroutinefunction(function):
            self._tell("coroutine")
            return
        if self._link.ask(self._job, "prepared").kind != "go":
            return
        with EndingForks():
            result = function(*args, **kwargs)
            if inspect.iscoroutine(result):
                result = asyncio.run(result)
        result = returned(result, self._job.adds, self._head["is_taken"])
        is_blob, chunks = carry(result, self._head["inline_limit"])
        if is_blob and not self._head["may_store"]:
            self._tell("needs_claim")
            return
        plain, records = to_plain(self._job.adds)
        head = {"is_blob": is_blob, "chunks": len(chunks), "adds": plain}
        self._tell("result", head, [*chunks, *records])

    def _prepare(self) -> tuple[Callable[..., Any], Any, Any]:
        """Code of the user runs here, too: an import, or a class that makes its value."""
        self._link.tell("at", {"what": "importing its function"})
        bodies = list(zip(self._blobs, self._bodies, strict=True))
        function = carried_function(*bodies[0])
        self._link.tell("at", {"what": "decoding its arguments"})
        values = [carried_value(*body) for body in bodies[2:]]
        args, kwargs = carried_value(*bodies[1], values)
        return function, args, kwargs

    def _fail(self, error: BaseException) -> None:
        if type(error) is MemoryError and not error.args:
            limit = size(self._head["limit"])
            error.args = (f"its process may reserve no more memory (its limit is {limit})",)
        failure = describe(error, self._job, _CODEC)
        head = {
            "cancelled": issubclass(type(error), TaskCancelled),
            "full": error is self._context.refused,
            "final": is_final(self._job.options, error, partial(carried_function, False)),
        }
        self._tell("failed", head, [failure.to_bytes()])

    def _tell(
        self, kind: str, head: dict[str, Any] | None = None, parts: Sequence[Bytes] = ()
    ) -> None:
        if self._span is not None:
            span, self._span = self._span, None
            span.end()
        with contextlib.suppress(BaseException):  # the task may have closed them
            _flush()
        self._link.tell(kind, {**(head or {}), "leaves": _has_children()}, parts)


def _has_children() -> bool:
    """Whether the task has left processes. This process is their reaper, so none can be missed."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True
