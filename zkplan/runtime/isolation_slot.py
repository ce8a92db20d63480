"""One slot, as the worker sees it: its guard, the child that runs a task, and how both end."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..values.blobs import Bytes
from .isolation import Packet, pair, receive, send
from .job import Job
from .output import StderrLog

#: Seconds for the start of a guard, and for the end of all processes of a slot.
START_S, END_S = 60.0, 40.0
#: Seconds between two looks at whether the result is still wanted.
TICK_S = 0.1
_READ_BYTES = 64 * 1024
#: The most reads of the output after the task has ended: more than its pipe can hold.
_LAST_READS = 32
_GUARD = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from zkplan.runtime.isolation_guard import main; main()"
)


class ProcessEnded(Exception):
    """The process of the task has ended. `how` is the guard's report; empty if the guard has
    ended, too."""

    def __init__(self, how: dict[str, Any]) -> None:
        super().__init__(how)
        self.how = how


class Reply(NamedTuple):
    """The answer to a packet; no answer is sent if `kind` is empty."""

    kind: str = ""
    parts: Sequence[Bytes] = ()
    is_last: bool = False


class Slot:
    """Runs one task at a time. Only `kill` and `close` may be called by other threads."""

    def __init__(self) -> None:
        self._control, theirs = pair()
        with contextlib.ExitStack() as undo, theirs:
            undo.callback(self._control.close)
            self._guard = subprocess.Popen(
                [sys.executable, "-c", _GUARD, json.dumps(sys.path), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                env=environment(),
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
            undo.pop_all()
        self._data: socket.socket | None = None
        self._output = -1
        self._child = 0
        self._running: Job | None = None
        self._changing = threading.Lock()
        #: How many tasks its child has run.
        self.count = 0
        #: The child has begun the task.
        self.began = False
        #: The guard has ended, or gives no child: the slot is of no use any more.
        self.broken = False

    def run(
        self,
        job: Job,
        parts: tuple[dict[str, Any], list[Bytes]],
        limits: tuple[int, int],
        answer: Callable[[Packet], Reply],
        log: StderrLog,
    ) -> None:
        """Let the child run `job`. `answer` answers each packet from the child, until the last.

        `limits`: the most bytes of memory, and the most processes.

        Raises ProcessEnded, and Garbled if the child sent an unknown packet.
        """
        self.began = False
        self._await_child(START_S)
        while select.select([self._control], [], [], 0)[0]:
            self._hear_guard()  # the child has ended while it was idle
        with self._changing:
            self._running = job
        job.cancel = lambda: self.kill(job)
        try:
            self._order("begin", limit=limits[0], processes=limits[1])
            self._send("run", *parts)
            self._exchange(job, answer, log, limits[0])
        finally:
            with self._changing:
                self._running = None
            job.cancel = bool
        self.count += 1

    def kill(self, job: Job) -> None:
        """If the child runs `job`, end it and all processes below it. Any thread may call this."""
        with self._changing:
            if self._running is job:
                self._order("renew")

    def rest(self) -> None:
        """Let the child wait for the next task, without a memory limit."""
        self._order("begin", limit=0)

    def renew(self) -> None:
        """End the child and all processes below it. The guard forks another child."""
        self._order("renew")
        self._drop_child()

    def begin_close(self) -> None:
        """Tell the guard to end everything. Any thread may call this."""
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End everything, and wait until it has ended."""
        self.begin_close()
        try:
            self._guard.wait(END_S)
        except subprocess.TimeoutExpired:
            self._guard.kill()
            self._guard.wait()
        self._drop_child()
        self._control.close()

    def _await_child(self, patience_s: float) -> None:
        """Wait for the child. Raises ProcessEnded if there is none after `patience_s` seconds."""
        deadline = time.monotonic() + patience_s
        while self._data is None:
            left_s = max(0.0, deadline - time.monotonic())
            if not select.select([self._control], [], [], left_s)[0]:
                self.broken = True
                raise ProcessEnded({})
            self._hear_guard()

    def _hear_guard(self) -> dict[str, Any]:
        """Take a new child from the guard. Returns how the previous child ended."""
        flags = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
        try:
            line, fds, _, _ = socket.recv_fds(self._control, _READ_BYTES, 2, flags)
        except OSError:
            line, fds = b"", []
        if not line:
            self.broken = True
            raise ProcessEnded({})
        head = json.loads(line)["head"]
        self._drop_child()
        self._data, self._output = socket.socket(fileno=fds[0]), fds[1]
        os.set_blocking(self._output, False)
        self._child, self.count = head["child"], 0
        ended: dict[str, Any] = head["ended"]
        return ended

    def _drop_child(self) -> None:
        if self._data is not None:
            self._data.close()
            os.close(self._output)
            self._data, self._output = None, -1

    def _exchange(
        self,
        job: Job,
        answer: Callable[[Packet], Reply],
        log: StderrLog,
        bytes_max: int,
    ) -> None:
        told, killed = "", False
        data = self._data
        if data is None:
            raise ProcessEnded({})
        sources: set[socket.socket | int] = {self._control, data, self._output}
        while True:
            ready = select.select(sources, [], [], TICK_S)[0]
            if self._output in ready and not self._read_output(log):
                sources.discard(self._output)
            if data in ready:
                try:
                    packet = receive(data, bytes_max)  # a result fits into the task's memory
                except (EOFError, OSError):
                    sources.discard(data)  # the guard will report why
                else:
                    self.began = True
                    reply = answer(packet)
                    if reply.kind:
                        self._send(reply.kind, {}, reply.parts)
                    if reply.is_last:
                        self._read_last(log)
                        return
            elif self._control in ready:
                self._read_last(log)
                ended = self._hear_guard()
                left_s = job.settled_at - time.monotonic()
                # Not for a task that ran ahead and was killed with its leader: its time is
                # infinite.
                if killed and not job.abandoned and 0 < left_s < float("inf"):
                    # Give other servers time to free the resources of the killed process.
                    time.sleep(left_s)
                raise ProcessEnded(ended)
            is_over = job.abandoned or (job.leader is not None and job.leader.abandoned)
            is_over = is_over or time.monotonic() > job.killed_at
            if not killed and is_over:
                killed = True
                self._order("renew")
            if told != job.why_stop:
                told = job.why_stop
                self._send("stop", {"why": told}, [])

    def _read_output(self, log: StderrLog) -> bool:
        try:
            text = os.read(self._output, _READ_BYTES)
        except BlockingIOError:
            return True
        log.add(text)
        return bool(text)

    def _read_last(self, log: StderrLog) -> None:
        for _ in range(_LAST_READS):
            if not select.select([self._output], [], [], 0)[0] or not self._read_output(log):
                return

    def _send(self, kind: str, head: dict[str, Any], parts: Sequence[Bytes]) -> None:
        with contextlib.suppress(OSError):  # the child has died, as the guard will report
            if self._data is not None:
                send(self._data, kind, head, parts)

    def _order(self, kind: str, **head: Any) -> None:
        with contextlib.suppress(OSError):  # the guard has ended, as the next read will show
            send(self._control, kind, {"child": self._child, **head})


def environment() -> dict[str, str]:
    """The environment for processes of tasks, without the settings of their worker."""
    return {name: value for name, value in os.environ.items() if not name.startswith("ZKPLAN_")}
