"""Count what a worker does, and show its state at a moment."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import NamedTuple


@dataclass(slots=True)
class Counters:
    """The counts of `Statistics` while the worker runs; only its loop changes them."""

    executed: int = 0
    committed: int = 0
    fenced: int = 0
    failed: int = 0
    handed_back: int = 0
    conflicts: int = 0
    refusals: int = 0
    steps: int = 0
    looks: int = 0
    released: int = 0
    written_off: int = 0
    left_to_others: int = 0

    def snapshot(self) -> Statistics:
        return Statistics(**asdict(self))


@dataclass(frozen=True, slots=True)
class Statistics:
    """What a worker did from its start to the moment of this snapshot.

    Attempts: `executed` ended here, including failed attempts, and attempts whose result an earlier
    claim had stored. `failed` ended with a failure or a time-out. `written_off` did not return in
    time: they timed out, did not stop when told to, or still ran when the worker stopped.

    Claims: `committed` ended with a result, or with a failure that was passed on. `fenced` were
    lost before they could end. `handed_back` were handed back without using up an attempt.
    `released` were taken over from vanished workers. `conflicts` are tries that another worker
    won. `left_to_others` were handed back because this worker cannot decode their tasks.

    Requests: `refusals` are commits and publications that were refused and sent again in another
    form. `looks` are listings of a plan's runnable tasks. `steps` are all steps of the protocol.
    """

    executed: int = 0
    committed: int = 0
    fenced: int = 0
    failed: int = 0
    handed_back: int = 0
    conflicts: int = 0
    refusals: int = 0
    steps: int = 0
    looks: int = 0
    released: int = 0
    written_off: int = 0
    left_to_others: int = 0

    def summary(self) -> str:
        """The counts of tasks, in one line.

        >>> Statistics(executed=7, committed=5, fenced=1).summary()
        '7 executed, 5 committed, 0 failed, 1 fenced, 0 handed back, 0 taken over, 0 written off'
        """
        return (
            f"{self.executed} executed, {self.committed} committed, {self.failed} failed, "
            f"{self.fenced} fenced, {self.handed_back} handed back, {self.released} taken over, "
            f"{self.written_off} written off"
        )


# ---- The state of a worker at a moment, for health checks and metrics.


class Vitals(NamedTuple):
    """The state of a worker at about one moment: its fields are not read at exactly the same time.

    `is_registered`: other workers see it. `answers`: ZooKeeper answers it. `busy` of its `slots`
    run a task; `waiting` tasks wait for a slot. `claims` counts loaded claims that are not settled.
    `abandoned` functions were given up (timed out, cancelled, or claim lost) and have not returned.
    `lacks_store`: tasks wait because the store cannot be used. `unremoved`: how many tries to
    archive or remove a plan after its retention have failed.
    """

    is_registered: bool
    answers: bool
    is_paused: bool
    slots: int
    busy: int
    waiting: int
    abandoned: int
    claims: int
    lacks_store: bool
    unremoved: int
    statistics: Statistics
