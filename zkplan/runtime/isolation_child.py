"""Run tasks in the child of a guard, and serve `zkplan.current()` there."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import importlib
import inspect
import logging
import os
import resource
import select
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, cast

from ..basics.text import size
from ..basics.tracing import SpanInProcess
from ..errors import PayloadUndecodable, ServerFull, TaskCancelled, TaskError
from ..protocol.core.load import Loaded
from ..protocol.records import PlanRecord
from ..protocol.task_options import TaskOptions
from ..protocol.transactions import Claim
from ..values.blobs import Bytes
from ..values.codec import Codec, load
from ..values.connection import Connection
from ..values.plan_values import carried_function, carried_value, carry
from .attempts import MESSAGES, describe, is_final, undecodable_for_log
from .context import LOGS_PER_ATTEMPT, Context, PlanWithin, returned, running
from .isolation import Packet, receive, send, to_plain
from .job import Job
from .threads import EndingForks

if TYPE_CHECKING:
    from ..plan import Plan
    from ..transport import Transport

#: The oom_score_adj of this process: if memory runs out, the system ends it before the worker.
OOM_SCORE = 500
#: A process may reserve twice its memory limit plus these bytes, as numpy and threads reserve more
#: than they use. Beyond that, an allocation fails at once, before the guard's next look.
RESERVE_BYTES = 1024**3
#: Encodes exceptions, and signs nothing. A task in JSON never runs here.
_CODEC = Codec()


def serve(end: socket.socket, output: int) -> NoReturn:
    """Run the tasks that come through the socket `end`. They print and log to `output`."""
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
    """One task, which the worker sent as `packet`."""

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
        """Run the task, and tell the worker how it ended."""
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
        """Decode the function and its arguments, which may run user code (imports, classes)."""
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
        with contextlib.suppress(BaseException):  # the task may have closed the streams
            _flush()
        self._link.tell(kind, {**(head or {}), "leaves": _has_children()}, parts)


def _has_children() -> bool:
    """Whether the task has left processes. This process is their reaper, so it misses none."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


# ---- `zkplan.current()` in a task's own process: requests to the worker go through a socket.


class WorkerGone(BaseException):
    """The worker has ended, or wants another process. A task should not catch this."""


class Link:
    """The child's end of the socket. Thread-safe. All methods raise WorkerGone."""

    def __init__(self, end: socket.socket) -> None:
        self._end, self._lock, self._pid = end, threading.RLock(), os.getpid()

    def next_task(self) -> Packet:
        """Wait for a task to run."""
        while True:
            packet = self._receive()
            if packet.kind == "run":
                return packet

    def tell(
        self, kind: str, head: dict[str, Any] | None = None, parts: Sequence[Bytes] = ()
    ) -> None:
        """Send a packet that gets no answer."""
        with self._lock:
            self._send(kind, head, parts)

    def ask(self, job: Job, kind: str, parts: Sequence[Bytes] = ()) -> Packet:
        """Send a packet, and return its answer. Raises the error if the worker answers with one."""
        self._refuse_fork(job)
        with self._lock:
            self._send(kind, None, parts)
            while True:
                packet = self._receive()
                if packet.kind == "error":
                    raise load(bytes(packet.parts[0]))
                if not _note_stop(job, packet):
                    return packet

    def look(self, job: Job) -> None:
        """Note in `job` a stop that the worker has sent."""
        self._refuse_fork(job)
        with self._lock:
            while select.select([self._end], [], [], 0)[0]:
                _note_stop(job, self._receive())

    def _send(self, kind: str, head: dict[str, Any] | None, parts: Sequence[Bytes]) -> None:
        if os.getpid() != self._pid:
            os._exit(0)  # a process that the task has forked returned from the function
        try:
            send(self._end, kind, head, parts)
        except OSError as error:
            raise WorkerGone from error

    def _receive(self) -> Packet:
        try:
            return receive(self._end)
        except (EOFError, OSError) as error:
            raise WorkerGone from error

    def _refuse_fork(self, job: Job) -> None:
        if os.getpid() != self._pid:
            raise TaskError(
                job.name,
                f"{job.name}: zkplan.current() works in the process that runs the task "
                '(isolation="process"), but not in a process forked there',
            )


def _note_stop(job: Job, packet: Packet) -> bool:
    if packet.kind == "stop":
        job.stop_reason = str(packet.head.get("why"))
    return packet.kind == "stop"


class _NoTransport:
    """Replaces the connection to ZooKeeper, which a task's own process must not have."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, what: str) -> Any:
        raise TaskError(
            self._name,
            f'{self._name} runs in a process of its own (isolation="process"), without a '
            "connection to ZooKeeper: it can log, and add tasks to its plan, but not read, wait "
            'or control. Pass it what it needs as arguments, or add it with isolation="thread"',
        )


class ChildContext(Context):
    """See Context."""

    def __init__(self, job: Job, link: Link, logs: Sequence[Bytes]) -> None:
        self._link, self._bodies = link, logs
        transport = cast("Transport", _NoTransport(job.name))
        super().__init__(job, transport, Codec(), self._within)
        #: The error of a log entry that the server had no room for.
        self.refused: ServerFull | None = None

    def _within(self, job: Job) -> Plan:
        claim = job.claim
        root = claim.plan_path.rpartition("/")[0]
        connection = Connection(self._transport, root)
        return PlanWithin(connection, claim.plan_path, job.plan, claim.task, job.adds, reads=False)

    @property
    def cancelled(self) -> bool:
        """See Context."""
        self._link.look(self._job)
        return super().cancelled

    def check(self) -> None:
        """See Context."""
        self._link.look(self._job)
        super().check()

    def log(self, value: Any) -> Awaitable[None]:
        """See Context. Here this returns when the entry is stored, even in a coroutine."""
        self._refuse_if_pure("logs")
        job = self._job
        if job.log_count >= LOGS_PER_ATTEMPT:
            raise TaskError(
                self.name, f"{self.name} has written {LOGS_PER_ATTEMPT} log entries, the limit"
            )
        _, parts = carry(value, None)
        try:
            self._link.ask(job, "log", parts)
        except ServerFull as full:
            self.refused = full
            raise
        job.log_count += 1
        return _Stored()

    @property
    def logs(self) -> list[Any]:
        """See Context."""
        found = []
        for body in self._bodies:
            try:
                found.append(load(bytes(body)))
            except PayloadUndecodable:
                continue
        return found


class _Stored:
    def __await__(self) -> Generator[Any, None, None]:
        return
        yield
