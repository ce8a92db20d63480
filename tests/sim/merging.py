"""Somebody tidies histories up, in some runs, with bounds so small that short ones reach them."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from zkplan.protocol.history import compaction
from zkplan.protocol.requests import Step
from zkplan.values.store_maintenance import part_of

from . import store
from .history import MERGES
from .mix import Patch
from .printing import Printing

if TYPE_CHECKING:
    from .world import World

#: The share of runs in which that happens, and of steps after which somebody begins.
SHARE, BEGINS = 0.25, 0.03
#: Of such runs with a store the share in which the oldest parts go there.
KEEPS = 0.5
SMALL: tuple[Patch, ...] = (
    (compaction, "SEGMENTS_MAX", 4),
    (compaction, "SEGMENT_BYTES_MAX", 400),
    (compaction, "FULL_BYTES", 300),
)


class Merging:
    """What merges in one run; `patches` are the small bounds."""

    def __init__(self, world: World, seed: int) -> None:
        self._world, self._rng = world, random.Random(f"merging {seed}")
        self.merges = self._rng.random() < SHARE
        drawn = random.Random(f"keeping {seed}").random() < KEEPS
        self.keeps = self.merges and world.has_store and drawn
        self.patches = SMALL if self.merges else ()
        if self.keeps:
            self.patches += ((compaction, "BYTES_MAX", 1),)
        self.printing = Printing(world, seed)

    def storm(self) -> None:
        """Now and then somebody begins, or two at once."""
        self.printing.storm()
        rng, world = self._rng, self._world
        if not self.merges or rng.random() >= BEGINS:
            return
        numbers = [plan.number for plan in world.plans if plan.number]
        for _ in range(rng.choice((1, 2)) if numbers else 0):
            number = rng.choice(numbers)
            path = world.paths.plan(number)
            script = keep(number, path) if self.keeps else compaction.compact(path)
            world.start("merger", MERGES, script)


def keep(number: str, path: str) -> store.Script:
    """As `values.store_maintenance.keep_oldest`, with the store of the simulation."""
    yield from compaction.compact(path, has_store=True)
    while (found := (yield from compaction.oldest(path))) is not None:
        part, blob = part_of(found)
        write = store.WriteBlob(number, part.name, blob)
        if not (yield from write_and_let_go(write, compaction.let_go(path, found, part.name))):
            return


def write_and_let_go(write: store.WriteBlob, let_go: Step[bool]) -> Any:
    """S10: what refers to the part is sent once it is written."""
    yield write
    return (yield from let_go)
