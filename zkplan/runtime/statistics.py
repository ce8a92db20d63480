"""What a worker did, in counts."""

from __future__ import annotations

from dataclasses import asdict, dataclass


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

    def snapshot(self) -> Statistics:
        return Statistics(**asdict(self))


@dataclass(frozen=True, slots=True)
class Statistics:
    """What a worker did from its start to the moment of this snapshot.

    Attempts: `executed` ran to an end here (also those that failed, and those whose task was
    decided before), `failed` of them ended with a failure (a time-out too), `written_off` never
    returned: timed out, or still running when the worker stopped.

    Claims: `committed` ended with a result or a failure passed on, `fenced` were lost before they
    could end, `handed_back` went back without using up an attempt, `released` were taken over from
    vanished workers. `conflicts` are claims that another worker made first.

    Requests: `refusals` are transactions of commits and publications that were refused and made
    anew, `looks` listings of a plan's runnable tasks, `steps` all steps of the protocol.
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

    def summary(self) -> str:
        """What became of the tasks, in one line.

        >>> Statistics(executed=7, committed=5, fenced=1).summary()
        '7 executed, 5 committed, 0 failed, 1 fenced, 0 handed back, 0 taken over, 0 written off'
        """
        return (
            f"{self.executed} executed, {self.committed} committed, {self.failed} failed, "
            f"{self.fenced} fenced, {self.handed_back} handed back, {self.released} taken over, "
            f"{self.written_off} written off"
        )
