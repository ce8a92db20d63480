"""A broken variant of the protocol, and the search for a seed under which it is found."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from zkplan.protocol.requests import Op

from . import world as worlds
from .broken_runs import NOTHING, Rewrite
from .mix import Mix, Patch, replaced
from .network import Fiber
from .story import Violation
from .world import World


@dataclass(frozen=True)
class Mutant:
    """One broken variant. `rewrite` sees each operation, `patches` replace parts of steps.

    `makes` makes the worlds. Only those that `needs` takes are run: others cannot have what it
    breaks. `mix` draws their
    faults and features where what it breaks is too rare in others (`mixes.py`).
    What is dropped from a transaction after it was told contradicts the history: S13 judges only
    mutants `of_history`.
    """

    name: str
    rewrite: Rewrite | None = None
    patches: tuple[Patch, ...] = ()
    needs: Callable[[World], bool] = lambda world: True
    mix: Callable[[random.Random], Mix] | None = None
    makes: Callable[[int], World] = World
    of_history: bool = False

    @contextmanager
    def mixed(self) -> Iterator[None]:
        """Worlds made and run meanwhile have its mix, and the real protocol."""
        with replaced([(worlds, "draw_mix", self.mix)] if self.mix is not None else []):
            yield


def first_seed_that_finds(mutant: Mutant, seeds: Iterable[int]) -> tuple[int, str] | None:
    """The first of these seeds under which an invariant breaks, and which one."""
    with mutant.mixed(), replaced(mutant.patches):
        for seed in seeds:
            world = mutant.makes(seed)
            if not mutant.needs(world):
                continue
            world.auditor.history.judges = mutant.of_history
            if mutant.rewrite is not None:
                world.network.rewrite = _rewriter(mutant.rewrite, world)
            try:
                world.run()
            except Violation as violation:
                return seed, str(violation)
            except Exception:  # the protocol itself noticed that something is wrong: not enough
                continue
    return None


def _rewriter(rewrite: Rewrite, world: World) -> Callable[[Fiber, Any], list[Op]]:
    return lambda fiber, ops: [rewrite(world, fiber, op) for op in ops]


def without(leaves_out: Callable[[Fiber, Op], bool]) -> Rewrite:
    """Every operation is left out of which that is true."""
    return lambda world, fiber, op: NOTHING if leaves_out(fiber, op) else op


def only(needs: Callable[[World], bool], *mutants: Mutant) -> tuple[Mutant, ...]:
    """They are run in worlds that `needs` takes, and that they need themselves."""

    def both(mutant: Mutant) -> Mutant:
        return replace(mutant, needs=lambda world: needs(world) and mutant.needs(world))

    return tuple(both(mutant) for mutant in mutants)
