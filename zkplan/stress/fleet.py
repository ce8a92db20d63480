"""The worker processes of a stress run: started, killed at random, replaced, stopped."""

from __future__ import annotations

import random
import re
import signal
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from types import TracebackType

from ..errors import ZkplanError
from ..runtime.losses import HANDED_BACK
from ..testing.process import WatchedProcess
from .history import Recorder

_LOG_TAIL_LINES = 15
_CLAIMS = re.compile(rf"([\d,]+) claims? {HANDED_BACK}")


class WorkersDie(ZkplanError):
    """Workers keep ending by themselves; the message shows the end of the log of the last one."""


class Fleet:
    """A number of worker processes that stays the same, whoever dies.

    Every end of a process is recorded, with the last time it was known to live and the first time
    it was known to be dead. Leaving the `with` block ends them all.
    """

    def __init__(self, command: Sequence[str], size: int, folder: Path, recorder: Recorder) -> None:
        #: Process ids of those that ended, and how many of them were killed.
        self.gone: set[int] = set()
        self.kills = 0
        self._command = command
        self._size = size
        self._folder = folder
        self._recorder = recorder
        self._processes: dict[WatchedProcess, float] = {}
        self._logs: dict[WatchedProcess, Path] = {}
        self._started = self._died = 0

    def __enter__(self) -> Fleet:
        try:
            for _ in range(self._size):
                self._start_one()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def pids(self) -> set[int]:
        """The process ids of the workers that should be alive."""
        return {process.pid for process in self._processes}

    def is_complete(self, registered: Collection[int]) -> bool:
        """Whether all are registered, by the process ids of those that are."""
        return self.pids <= {*registered}

    def kill_one(self, chance: random.Random, registered: Collection[int] = ()) -> int:
        """Kill a worker chosen by `chance` with SIGKILL and start another; gives its process id.

        One that is not registered yet can be chosen, too.
        """
        process = chance.choice(list(self._processes))
        del self._processes[process]
        self.gone.add(process.pid)
        self.kills += 1
        sent = time.monotonic()
        process.end(0)
        self._recorder.write("ended", pid=process.pid, sent=sent)
        self._start_one()
        return process.pid

    def tend(self) -> None:
        """Replace workers that ended by themselves; raises WorkersDie where that does not stop."""
        for process, seen in list(self._processes.items()):
            now = time.monotonic()
            if process.is_running():
                self._processes[process] = now
                continue
            del self._processes[process]
            process.end(0)
            self._died += 1
            self.gone.add(process.pid)
            tail = log_tail(self._logs[process])
            self._recorder.write("died", pid=process.pid, sent=seen, note=tail)
            if self._died > self._size:
                raise WorkersDie(
                    f"{self._died} workers ended by themselves, the last one so:{tail}"
                )
            self._start_one()

    def stop(self, grace_s: float) -> None:
        """Ask all to stop, and wait; one that does not within `grace_s` is killed and recorded."""
        processes = list(self._processes)
        for process in processes:
            process.send(signal.SIGTERM)
        deadline = time.monotonic() + grace_s
        for process in processes:
            sent = time.monotonic()
            if not process.wait_ended(max(0.0, deadline - sent)):
                process.end(0)
                tail = log_tail(self._logs[process])
                note = f"It did not stop within {grace_s:g} s and was killed.{tail}"
                self._recorder.write("died", pid=process.pid, sent=sent, note=note)
        self.close()

    def note_hand_backs(self) -> None:
        """Record what workers say that they handed back: each claim used up a number."""
        logs = (log.read_text(errors="replace") for log in self._logs.values())
        counts = [count for log in logs for count in claims_handed_back(log)]
        self._recorder.write("handed back", times=len(counts), claims=sum(counts))

    def close(self) -> None:
        """End with SIGKILL all that is left."""
        while self._processes:
            process, _ = self._processes.popitem()
            process.end(0)

    def _start_one(self) -> None:
        self._started += 1
        log = self._folder / f"worker-{self._started}.log"
        process = WatchedProcess(self._command, log)
        self._processes[process] = time.monotonic()
        self._logs[process] = log


def claims_handed_back(log: str) -> list[int]:
    """How many claims at a time, by what workers say in their log."""
    return [int(found.replace(",", "")) for found in _CLAIMS.findall(log)]


def log_tail(log: Path) -> str:
    """The last lines of a log, as the end of a message."""
    lines = log.read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:]
    return "\n" + "\n".join(lines) if lines else " It wrote no log."
