"""The worker processes of a stress run: kill, replace and stop them, and record each end."""

from __future__ import annotations

import os
import random
import re
import signal
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from ..errors import ZkplanError
from ..processes.crew import Crew
from ..processes.watched import WatchedProcess
from ..processes.worker import WorkerProcess
from ..runtime.claims import HANDED_BACK
from ..settings import Settings
from .history import Recorder

_CLAIMS = re.compile(rf"([\d,]+) claims? {HANDED_BACK}")
#: The log line of a supervisor about a process that has ended.
_ENDED = re.compile(r"worker process (\d+) (?:ended with|was ended by)")
_DIES_WITHIN_S = 10.0
_POLL_S = 0.002


class WorkersDie(ZkplanError):
    """Workers keep ending by themselves; the message shows the end of the log of the last one."""


class Fleet:
    """Keeps a fixed number of worker processes running.

    It records every end of a process, with the last time at which it was seen alive and the first
    time at which it was seen dead. The end of the `with` block ends them all.
    """

    def __init__(
        self,
        command: Sequence[str],
        size: int,
        folder: Path,
        recorder: Recorder,
        environment: Mapping[str, str] | None = None,
        settings: Settings | None = None,
    ) -> None:
        #: Process ids of those that ended, and how many of them were killed.
        self.gone: set[int] = set()
        self.kills = 0
        self._command, self._environment, self._settings = command, environment, settings
        self._size, self._folder, self._recorder = size, folder, recorder
        self._started = self._died = 0
        self._crew = Crew(self._start_one, size, self._has_ended)

    def __enter__(self) -> Fleet:
        self._crew.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pids(self) -> set[int]:
        """The process ids of the workers that should be alive."""
        return {process.pid for process in self._crew.processes}

    def is_complete(self, registered: Collection[int]) -> bool:
        """Whether all are registered, given the process ids of the registered ones."""
        return len(self.pids) == self._size and self.pids <= {*registered}

    def kill_one(self, chance: random.Random, registered: Collection[int] = ()) -> int:
        """Kill a worker chosen by `chance` with SIGKILL and start another. Returns the process id.

        It may choose a worker that is not registered yet.
        """
        process = chance.choice(self._crew.processes)
        sent = time.monotonic()
        self._crew.kill(process)
        self._record_kill(process.pid, sent)
        self._crew.tend()
        return process.pid

    def tend(self) -> None:
        """Replace workers that ended by themselves. Raises WorkersDie if they keep ending."""
        self._crew.tend()

    def stop(self, grace_s: float) -> None:
        """Ask all to stop, and wait. A worker that does not stop within `grace_s` is killed and
        recorded."""
        for process in self._crew.stop(grace_s):
            self._record_slow(process, process.seen, grace_s)

    def note_hand_backs(self) -> None:
        """Record how many claims the workers' logs say were handed back: each used up an attempt
        number."""
        logs = (log.read_text(errors="replace") for log in self._folder.glob("worker*.log"))
        claims = [int(said.replace(",", "")) for log in logs for said in _CLAIMS.findall(log)]
        self._recorder.write("handed back", times=len(claims), claims=sum(claims))

    def close(self) -> None:
        """Kill all that are left with SIGKILL."""
        self._crew.close()

    def _start_one(self) -> WorkerProcess:
        self._started += 1
        log = self._folder / f"worker-{self._started}.log"
        return WorkerProcess(self._command, log, self._environment, settings=self._settings)

    def _record_kill(self, pid: int, sent: float) -> None:
        self.gone.add(pid)
        self.kills += 1
        self._recorder.write("ended", pid=pid, sent=sent)

    def _has_ended(self, process: WorkerProcess) -> None:
        self._record_death(process.pid, process.seen, process.log_tail())

    def _record_death(self, pid: int, seen: float, tail: str) -> None:
        self._died += 1
        self.gone.add(pid)
        self._recorder.write("died", pid=pid, sent=seen, note=tail)
        if self._died > self._size:
            raise WorkersDie(f"{self._died} workers ended by themselves, the last one so:{tail}")

    def _record_slow(self, process: WatchedProcess, seen: float, grace_s: float) -> None:
        note = f"It did not stop within {grace_s:g} s and was killed.{process.log_tail()}"
        self._recorder.write("died", pid=process.pid, sent=seen, note=note)


class SupervisedFleet(Fleet):
    """The workers are processes of one `zkplan worker`, which replaces the dead.

    It signs off those that are killed, so nobody waits for the end of their sessions, as one must
    if a whole machine is gone.
    """

    def __enter__(self) -> SupervisedFleet:
        self._log = self._folder / "workers.log"
        self._looked_at = time.monotonic()
        self._supervisor = WorkerProcess(
            self._command, self._log, self._environment, settings=self._settings
        )
        return self

    def is_complete(self, registered: Collection[int]) -> bool:
        """See Fleet."""
        return len({*registered} - self.gone) >= self._size

    def kill_one(self, chance: random.Random, registered: Collection[int] = ()) -> int:
        """Kill a registered worker with SIGKILL and wait until it is dead. Returns 0 if there is
        none."""
        living = sorted({*registered} - self.gone)
        if not living:
            return 0
        pid = chance.choice(living)
        sent = time.monotonic()
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return 0  # it ended by itself, which `tend` will notice
        _wait_dead(pid)
        self._record_kill(pid, sent)
        return pid

    def tend(self) -> None:
        """Record workers that ended by themselves. Raises WorkersDie if they keep ending."""
        looked_at, self._looked_at = self._looked_at, time.monotonic()
        ended = {int(pid) for pid in _ENDED.findall(self._log.read_text(errors="replace"))}
        for pid in sorted(ended - self.gone):
            self._record_death(pid, looked_at, self._supervisor.log_tail())
        if not self._supervisor.is_running():
            raise WorkersDie(f"the supervisor ended by itself:{self._supervisor.log_tail()}")

    def stop(self, grace_s: float) -> None:
        """Ask all to stop, and wait. A supervisor that does not end is killed and recorded."""
        sent = time.monotonic()
        self._supervisor.terminate()
        if not self._supervisor.wait_ended(grace_s):
            self._record_slow(self._supervisor, sent, grace_s)
        self.close()

    def close(self) -> None:
        """End the supervisor with SIGKILL; its workers notice that, and drain."""
        self._supervisor.end(0)


def _wait_dead(pid: int) -> None:
    """Wait until its supervisor has reaped it. Before that it may still be working."""
    deadline = time.monotonic() + _DIES_WITHIN_S
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(_POLL_S)
    raise WorkersDie(f"process {pid} was killed, and is there after {_DIES_WITHIN_S:g} s")
