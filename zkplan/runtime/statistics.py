"""What a worker did, in counts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Statistics:
    """What a worker did since it started; counts of tasks unless said otherwise."""

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
    #: Functions that never returned: timed out, or still running when the worker stopped.
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
