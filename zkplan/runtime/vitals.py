"""What a worker holds at a moment, for those who watch it."""

from __future__ import annotations

from typing import NamedTuple

from .statistics import Statistics


class Vitals(NamedTuple):
    """A worker as it was at a moment; its fields were not all read at the same one.

    `is_registered` and `answers`: others see it, and ZooKeeper answers it. Of its `slots` so many
    are `busy`; `waiting` tasks wait for one. `claims` counts all that it has claimed. `abandoned`
    functions were given up (timed out, cancelled, or their claim is gone) and have not returned.
    `lacks_store`: tasks wait because the store cannot be used. `unremoved` counts the tries to
    archive or remove a plan after its retention that failed.
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
