"""How far a plan is: its tasks counted by state."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from ..connection import Connection
from ..protocol.control import status
from .unfinished import places_of


class PlanProgress(NamedTuple):
    """The tasks of a plan, counted by state. The counts were not all read at one moment.

    `running` counts the claimed tasks, `waiting` those that wait for others or are being defined,
    `gated` those that wait for a znode, `skipped` those of the finished ones, and of those about to
    be, that were skipped.
    """

    added: int
    finished: int
    running: int
    runnable: int
    delayed: int
    waiting: int
    dead: int
    gated: int = 0
    skipped: int = 0

    @property
    def fraction(self) -> float:
        """The part of the tasks that has finished, 0.0 to 1.0; 1.0 for an empty plan."""
        return self.finished / self.added if self.added else 1.0


def plan_progress(client: Connection, plan_path: str) -> PlanProgress:
    """See Plan.progress."""
    seen = client.transport.run(status(plan_path))
    found = client.transport.run(places_of(client.paths, plan_path))
    states = Counter(place.state for place in found.values())
    placed = min(seen.tasks, sum(states.values()))
    return PlanProgress(
        seen.added,
        seen.finished,
        states["running"],
        states["runnable"],
        states["delayed"],
        seen.tasks - placed,
        states["dead"],
        states["gated"],
        seen.skipped,
    )
