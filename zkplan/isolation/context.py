"""`zkplan.current()` in a process of a task: what it needs of the worker goes through a socket."""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Awaitable, Generator, Sequence
from typing import TYPE_CHECKING, Any, cast

from ..connection import Connection
from ..errors import PayloadUndecodable, ServerFull, TaskError
from ..runtime.context import LOGS_PER_ATTEMPT, Context
from ..runtime.job import Job
from ..runtime.plan_within import PlanWithin
from ..serialization.codec import Codec, load
from ..store.blob import Bytes
from ..store.carried import carry
from .wire import Packet, receive, send

if TYPE_CHECKING:
    from ..plan import Plan
    from ..transport import Transport


class WorkerGone(BaseException):
    """The worker has ended, or wants another process. No task should catch it."""


class Link:
    """The child's end of the socket. Thread-safe: a request and its answer are not interleaved."""

    def __init__(self, end: socket.socket) -> None:
        self._end, self._lock, self._pid = end, threading.RLock(), os.getpid()

    def next_task(self) -> Packet:
        """Wait for a task to run. Raises WorkerGone, as all of these."""
        while True:
            packet = self._receive()
            if packet.kind == "run":
                return packet

    def tell(
        self, kind: str, head: dict[str, Any] | None = None, parts: Sequence[Bytes] = ()
    ) -> None:
        """Send a packet that has no answer."""
        with self._lock:
            self._send(kind, head, parts)

    def ask(self, job: Job, kind: str, parts: Sequence[Bytes] = ()) -> Packet:
        """Send a packet and return its answer. Raises the error that the worker met."""
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
        """Note what the worker has told meanwhile."""
        self._refuse_fork(job)
        with self._lock:
            while select.select([self._end], [], [], 0)[0]:
                _note_stop(job, self._receive())

    def _send(self, kind: str, head: dict[str, Any] | None, parts: Sequence[Bytes]) -> None:
        if os.getpid() != self._pid:
            os._exit(0)  # a process that the task forked has come back from its function
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
                '(isolation="process"), and not in one that this forked',
            )


def _note_stop(job: Job, packet: Packet) -> bool:
    if packet.kind == "stop":
        job.stop_reason = str(packet.head.get("why"))
    return packet.kind == "stop"


class _NoTransport:
    """In place of a connection, which the process of a task must not have."""

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
        """See Context. Here it returns when the entry is stored, also in a coroutine."""
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
