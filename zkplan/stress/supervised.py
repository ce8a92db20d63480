"""The workers of a stress run as processes of one `zkplan worker`, which replaces the dead."""

from __future__ import annotations

import os
import random
import re
import signal
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from ..testing.process import WatchedProcess
from .fleet import WorkersDie, claims_handed_back, log_tail
from .history import Recorder

#: What the supervisor says of each of its processes that has ended.
_ENDED = re.compile(r"worker process (\d+) (?:ended with|was ended by)")
_DIES_WITHIN_S = 10.0
_POLL_S = 0.002


class SupervisedFleet:
    """See Fleet. Those that are killed are signed off by their supervisor: nobody waits for the end
    of their sessions, as others do where a whole machine is gone.
    """

    def __init__(self, command: Sequence[str], size: int, folder: Path, recorder: Recorder) -> None:
        self.gone: set[int] = set()
        self.kills = 0
        self._command = command
        self._size = size
        self._log = folder / "workers.log"
        self._recorder = recorder
        self._died: set[int] = set()
        self._looked_at = time.monotonic()

    def __enter__(self) -> SupervisedFleet:
        self._supervisor = WatchedProcess(self._command, self._log)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def is_complete(self, registered: Collection[int]) -> bool:
        """Whether all are registered, by the process ids of those that are."""
        return len({*registered} - self.gone) >= self._size

    def kill_one(self, chance: random.Random, registered: Collection[int]) -> None:
        """Kill one of the registered with SIGKILL, and wait until it is dead."""
        living = sorted({*registered} - self.gone)
        if not living:
            return
        pid = chance.choice(living)
        sent = time.monotonic()
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return  # it ended by itself, of which `tend` will tell
        self.gone.add(pid)
        self.kills += 1
        _wait_dead(pid)
        self._recorder.write("ended", pid=pid, sent=sent)

    def tend(self) -> None:
        """Record those that ended by themselves; raises WorkersDie where that does not stop."""
        looked_at, self._looked_at = self._looked_at, time.monotonic()
        ended = {int(pid) for pid in _ENDED.findall(self._said())}
        for pid in sorted(ended - self.gone):
            self._died.add(pid)
            self.gone.add(pid)
            self._recorder.write("died", pid=pid, sent=looked_at, note=log_tail(self._log))
        if not self._supervisor.is_running():
            raise WorkersDie(f"the supervisor ended by itself:{log_tail(self._log)}")
        if len(self._died) > self._size:
            raise WorkersDie(f"{len(self._died)} workers ended by themselves:{log_tail(self._log)}")

    def stop(self, grace_s: float) -> None:
        """Ask all to stop, and wait; a supervisor that does not end is killed and recorded."""
        sent = time.monotonic()
        self._supervisor.send(signal.SIGTERM)
        if not self._supervisor.wait_ended(grace_s):
            note = f"It did not stop within {grace_s:g} s and was killed.{log_tail(self._log)}"
            self._recorder.write("died", pid=self._supervisor.pid, sent=sent, note=note)
        self.close()

    def note_hand_backs(self) -> None:
        """Record what workers say that they handed back: each claim used up a number."""
        counts = claims_handed_back(self._said())
        self._recorder.write("handed back", times=len(counts), claims=sum(counts))

    def close(self) -> None:
        """End the supervisor with SIGKILL; its workers notice that, and drain."""
        self._supervisor.end(0)

    def _said(self) -> str:
        return self._log.read_text(errors="replace")


def _wait_dead(pid: int) -> None:
    """Until its supervisor has reaped it: before that it may still be at work."""
    deadline = time.monotonic() + _DIES_WITHIN_S
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(_POLL_S)
    raise WorkersDie(f"process {pid} was killed, and is there after {_DIES_WITHIN_S:g} s")
