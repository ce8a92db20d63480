"""Exchange a task with the process that runs it: the work, what came of it, and the packets.

The worker decodes neither the function nor a value. For the process, it reads and writes the store,
signs results and added tasks, and talks to ZooKeeper.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from ..basics.log import get_logger
from ..errors import PayloadUndecodable
from ..protocol.core.add import NewTask
from ..protocol.layout import parse_lane
from ..protocol.records import Failure, TaskRecord
from ..protocol.task_options import TaskOptions
from ..values.blobs import Bytes, side_by_side
from ..values.codec import LOG, TASK, Codec, unsealed
from ..values.function_codec import split_name
from ..values.plan_values import Values
from .attempts import is_final
from .context import Context
from .job import Ended, Job

logger = get_logger("zkplan.worker")


@dataclass(slots=True)
class Work:
    """A task for its process. `bodies` are the function, the arguments, and the results of other
    tasks, each with whether it is a blob. `logs`: the log entries of earlier attempts."""

    job: Job
    bodies: list[tuple[bool, Bytes]]
    logs: list[bytes]
    inline_limit: int | None


@dataclass(slots=True)
class Came:
    """What came of a task in its process. The first field that is set counts."""

    #: Why the process died.
    lost: Failure | None = None
    #: Why the runner refused the call just before it.
    refused: Ended | None = None
    cannot_run: str = ""
    shown: str = ""
    is_coroutine: bool = False
    needs_claim: bool = False
    #: What the function raised: the failure record as bytes.
    failure: bytes = b""
    was_cancelled: bool = False
    #: No other attempt can help, by the task's `fatal` or `retry_if`.
    is_final: bool = False
    server_full: bool = False
    #: Whether the result is a blob, the bytes of the result, and the tasks that the task adds.
    is_blob: bool = False
    result: Bytes = b""
    adds: tuple[NewTask, ...] = ()


class Isolation(Protocol):
    """The processes of a worker's tasks. `isolation_processes.Processes` implements it."""

    @property
    def default(self) -> str:
        """Where a task runs by default: `thread` or `process`."""
        ...

    def takes(self, options: TaskOptions) -> bool:
        """Whether a task with these options runs in a process of its own."""
        ...

    def run(
        self, work: Work, start: Callable[[], Ended | None], log: Callable[[bytes], None]
    ) -> Came:
        """Run `work`. Calls `start` once everything is decoded; `log` stores a value, and may
        raise. Never raises because of what the process does."""
        ...

    def close(self) -> None:
        """End all processes."""
        ...


class IsolatedAttempts:
    """Attempts in processes, for the runner of one worker. Thread-safe."""

    def __init__(self, isolation: Isolation, values: Values) -> None:
        self._isolation, self._values, self._codec = isolation, values, values.codec
        self._told = False

    def came(
        self,
        job: Job,
        record: TaskRecord,
        bodies: list[bytes],
        start: Callable[[], Ended | None],
        context: Context,
    ) -> Came:
        """Run the function of `job` in a process. Raises StoredValueLost and StoreUnavailable."""
        plan_path, values = job.claim.plan_path, self._values
        store = values.store
        carried = [values.carried(plan_path, body) for body in (record.function, record.arguments)]
        plain = [split_name(body)[1] for body in bodies]
        reads = side_by_side(values.reading(plan_path, body) for body in plain)
        carried += [values.carried(plan_path, *each) for each in zip(plain, reads, strict=True)]
        logs = list(_opened(self._codec, job.loaded.logs))
        limit = None if store is None else store.inline_limit
        came = self._isolation.run(Work(job, carried, logs, limit), start, context._log_body)
        if came.is_coroutine and not self._told:
            self._told = True
            logger.info(
                "%s is a coroutine: coroutines run in the loop of the worker, and not in a process "
                "of their own (logged once)",
                job.name,
            )
        return came

    def ended(self, job: Job, came: Came) -> Ended | None:
        """How the attempt ended; None if the function has succeeded, or is a coroutine."""
        if came.lost is not None:
            # `retry_if` and `fatal` apply only to the MemoryError of a process ended at its limit.
            at_limit = came.lost.kind == "MemoryError"
            is_last = at_limit and is_final(job.options, MemoryError())
            return Ended(job, failure=came.lost, final=is_last)
        if came.refused is not None:
            return came.refused
        if came.cannot_run:
            return Ended(job, cannot_run=came.cannot_run, shown=came.shown)
        if came.needs_claim:
            return Ended(job, needs_claim=True)
        if came.failure:
            if came.server_full:
                return Ended(job, server_full=True)
            if came.was_cancelled and job.is_unwanted():
                job.heeded = True
                return Ended(job, stopped=True)
            return Ended(job, failure=Failure.from_bytes(came.failure), final=came.is_final)
        return None


def _opened(codec: Codec, logs: list[bytes]) -> Any:
    for sealed in logs:
        try:
            yield codec.open(LOG, sealed)[1]
        except PayloadUndecodable:
            continue


# ---- Packets between a worker and the process of a task: a line of JSON, then the bytes of the
# parts.
#
# The worker decodes only the JSON of a packet. The socket keeps packets apart, so a process that
# dies leaves no half packet. Large parts go through an anonymous file, whose descriptor is sent.


#: A packet whose parts have more bytes than this sends them in a file.
INLINE_BYTES = 32 * 1024
_PACKET_BYTES_MAX = 160 * 1024
_WRITE_BYTES = 16 * 1024 * 1024


class Garbled(Exception):
    """The other end sent something that is not a packet."""


class Packet(NamedTuple):
    """A message. `head` is plain JSON; `parts` are bytes that only the task's process decodes."""

    kind: str
    head: dict[str, Any]
    parts: list[Bytes]


def pair() -> tuple[socket.socket, socket.socket]:
    """Two connected sockets that keep packets apart."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send(
    to: socket.socket,
    kind: str,
    head: dict[str, Any] | None = None,
    parts: Sequence[Bytes] = (),
    flags: int = 0,
) -> None:
    """Send a packet. Raises OSError if the other end is closed."""
    sizes = [len(part) for part in parts]
    told: dict[str, Any] = {"kind": kind, "sizes": sizes, "head": head or {}}
    if sum(sizes) <= INLINE_BYTES:
        to.sendmsg([json.dumps(told).encode() + b"\n", *parts], [], flags)
        return
    file = os.memfd_create("zkplan-packet")
    try:
        for part in parts:
            view = memoryview(part).cast("B")
            while view:
                view = view[os.write(file, view[:_WRITE_BYTES]) :]
        told["in_file"] = True
        socket.send_fds(to, [json.dumps(told).encode() + b"\n"], [file])
    finally:
        os.close(file)


def receive(source: socket.socket, bytes_max: int = 0) -> Packet:
    """Receive a packet. Raises EOFError when the other end is closed, OSError, and Garbled, also if
    the parts exceed `bytes_max` bytes (0: no limit)."""
    flags = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
    data, files, _, _ = socket.recv_fds(source, _PACKET_BYTES_MAX, 1, flags)
    try:
        if not data:
            raise EOFError
        line, _, rest = data.partition(b"\n")
        try:
            told = json.loads(line)
            kind, head = str(told["kind"]), told["head"]
            sizes = [int(size) for size in told["sizes"]]
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            raise Garbled(f"it is not a packet: {error}") from None
        if not isinstance(head, dict) or min(sizes, default=0) < 0:
            raise Garbled("it is not a packet")
        if bytes_max and sum(sizes) > bytes_max:
            raise Garbled(f"it has {sum(sizes)} bytes, more than {bytes_max}")
        body: Bytes = rest
        if told.get("in_file"):
            if not files:
                raise Garbled("its file is missing")
            body = _read_file(files[0], sum(sizes))
        if len(body) != sum(sizes):
            raise Garbled("it is too short")
    finally:
        for file in files:
            os.close(file)
    view, parts = memoryview(body), []
    for size in sizes:
        parts.append(view[:size])
        view = view[size:]
    return Packet(kind, head, [*parts])


def _read_file(file: int, size: int) -> bytearray:
    # Read the file instead of mapping it: if the other end truncated a mapped file, SIGBUS would
    # end this process.
    try:
        if os.fstat(file).st_size < size:
            raise Garbled("its file is too short")
        body, at = bytearray(size), 0
        view = memoryview(body)
        while at < size:
            count = os.preadv(file, [view[at : at + _WRITE_BYTES]], at)
            if not count:
                raise Garbled("its file is too short")
            at += count
        return body
    except OSError as error:
        raise Garbled(f"its file cannot be read: {error}") from None


# ---- Tasks that a task in its own process adds: plain data on the way to the worker.
#
# The process has no secret, so the worker signs the definitions. The worker checks their shape, and
# decodes no value.


def to_plain(tasks: Sequence[NewTask]) -> tuple[list[Any], list[bytes]]:
    """`tasks` as JSON for the head of a packet, and their definitions as its parts."""
    places = {task: place for place, task in enumerate(tasks)}
    plain = [
        [
            task.label,
            task.name,
            task.rank,
            task.keep,
            task.feeds,
            task.queue,
            task.not_before_ms,
            task.takes_failures,
            [dep if isinstance(dep, str) else places[dep] for dep in task.deps],
        ]
        for task in tasks
    ]
    return plain, [unsealed(task.record)[1] for task in tasks]


def from_plain(plain: Any, bodies: Sequence[Bytes], codec: Codec) -> list[NewTask]:
    """The tasks that `to_plain` encoded, signed. Raises Garbled for data of another form."""
    tasks: list[NewTask] = []
    try:
        for fields, body in zip(plain, bodies, strict=True):
            label, name, rank, keep, feeds, lane, at_ms, takes, deps = fields
            found: list[str | NewTask] = []
            for dep in deps:
                is_number = type(dep) is str and len(dep) == 10 and dep.isdecimal()
                found.append(dep if is_number else tasks[_place_of_add(dep)])
            fits = type(label) is type(name) is str and type(rank) is str and rank.isalnum()
            fits = fits and type(at_ms) is int and parse_lane(lane) is not None
            fits = fits and type(takes) is bool
            if not fits or keep not in (None, True, False) or type(feeds) is not bool:
                raise Garbled("a task that it adds has a wrong form")
            record = codec.seal(TASK, bytes(body))
            tasks.append(NewTask(label, rank, record, found, keep=keep, feeds=feeds, name=name))
            tasks[-1].queue, tasks[-1].not_before_ms, tasks[-1].takes_failures = lane, at_ms, takes
    except (TypeError, ValueError, IndexError):
        raise Garbled("the tasks that it adds have a wrong form") from None
    return tasks


def _place_of_add(dep: Any) -> int:
    if type(dep) is not int or dep < 0:
        raise ValueError(dep)
    return dep
