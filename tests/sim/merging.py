"""Somebody tidies histories up, in some runs, with bounds so small that short ones reach them."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from zkplan.protocol import compaction

from .history import MERGES
from .mix import Patch
from .printing import Printing

if TYPE_CHECKING:
    from .world import World

#: The share of runs in which that happens, and of steps after which somebody begins.
SHARE, BEGINS = 0.25, 0.03
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
        self.patches = SMALL if self.merges else ()
        self.printing = Printing(world, seed)

    def storm(self) -> None:
        """Now and then somebody begins, or two at once."""
        self.printing.storm()
        rng, world = self._rng, self._world
        if not self.merges or rng.random() >= BEGINS:
            return
        numbers = [plan.number for plan in world.plans if plan.number]
        for _ in range(rng.choice((1, 2)) if numbers else 0):
            path = world.paths.plan(rng.choice(numbers))
            world.start("merger", MERGES, compaction.compact(path))
