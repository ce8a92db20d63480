"""The tasks of one plan that this worker cannot run: which it leaves to others, and for how long.

Pure: time is an argument.
"""

from __future__ import annotations

from dataclasses import dataclass, field

#: Seconds for which such tasks are left alone once no other is left, doubled each time. So is a
#: plan whose record cannot be read here, or of which so many tasks in a row cannot run.
AVOID_FIRST_S, AVOID_MAX_S = 1.0, 60.0
IN_VAIN_MAX = 100
#: How many such tasks are remembered.
REMEMBERED_MAX = 1000


def longer(rest_s: float) -> float:
    """The next rest after one of that many seconds."""
    return min(AVOID_MAX_S, max(AVOID_FIRST_S, 2 * rest_s))


@dataclass(slots=True)
class LeftToOthers:
    """Each of these tasks is tried once, and all of them again when no other task is left.

    If they were tried in their turn, a few would keep all others of the plan waiting, and two
    workers that each lack what the first task of their share needs could try these two for ever.
    """

    tasks: set[str] = field(default_factory=set)
    #: When they are tried again: known once no other is left.
    again_at: float = float("inf")
    rest_s: float = 0.0
    #: How many of them came in a row.
    in_vain: int = 0

    @property
    def is_new(self) -> bool:
        """Whether the plan has had no such task yet."""
        return not self.tasks and not self.rest_s

    def add(self, task: str) -> bool:
        """Returns whether the plan has to rest: claims of such tasks keep others from them."""
        if len(self.tasks) < REMEMBERED_MAX:
            self.tasks.add(task)
        self.in_vain += 1
        return self.in_vain % IN_VAIN_MAX == 0

    def may_run(self, name: str) -> bool:
        """Whether the task of that entry may run here, as far as is known."""
        return name[5:15] not in self.tasks

    def begin(self, now: float) -> None:
        """Before a listing is taken: forget the tasks if it is time to try them again."""
        if now >= self.again_at:
            self.tasks.clear()
            self.again_at = float("inf")

    def nothing_else(self, now: float) -> None:
        """The listing has no other task."""
        if self.again_at == float("inf"):
            self.rest_s = longer(self.rest_s)
            self.again_at = now + self.rest_s
