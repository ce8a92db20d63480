"""A worker of the simulation runs pure tasks ahead, behind one whose commit is about to begin."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from zkplan.protocol.core.commit_part import Part
from zkplan.protocol.core.load import Loaded, following, load_ahead

from . import store
from .story import FAILED, Meant, name_in, outcomes_in

if TYPE_CHECKING:
    from .world import World

#: How likely a run takes one more task, if it may.
GOES_ON = 0.8
Script = Generator[Any, Any, None]


def run_ahead(
    world: World, parts: list[Part], versions: dict[str, int], queues: list[str]
) -> Script:
    """Run what may run behind each of `parts`, as far as this worker serves its queue."""
    for part in parts if world.pure else ():
        yield from _run_behind(world, part, versions, queues)


def _run_behind(world: World, first: Part, versions: dict[str, int], queues: list[str]) -> Script:
    """Make the run of `first` anew. Anything may happen to its tasks while they are read."""
    claim = first.loaded.claim
    version = versions.get(claim.plan_path)
    first.run = []
    if version is None or first.dead or first.loaded.result is not None:
        return
    while world.rng.random() < GOES_ON:
        part = first.last
        edges = [edge for _, edge in part.loaded.edges]
        pure = world.names[name_in(part.loaded.record)].pure
        if not pure or len(edges) != 1 or edges[0].k != 1:
            return
        edge = edges[0]
        if edge.queue not in queues:
            return
        readings = yield from load_ahead(claim.plan_path, [edge.task])
        reading = readings.get(edge.task)
        if reading is None:
            return
        task = world.names[name_in(reading.record)]
        item = reading.run_ahead(following(claim, edge), edge.position, part.argument())
        if item is None or not task.pure or world.chance(world.mix.failing):
            return  # it is claimed, and its failure counted, in the ordinary way
        if not (yield from store.opened(world, item, task, claim.path)):
            return
        outcome = yield from outcome_ahead(task, item)
        if not outcome:
            return
        first.version = version
        first.run.append(Part(item, outcome, task.keep))


def outcome_ahead(task: Meant, item: Loaded) -> Generator[Any, Any, bytes]:
    """The result of a task without a claim; empty if it is too large for the tree, for then no
    blob is written (S10)."""
    yield from ()
    outcome = task.outcome(outcomes_in(item))
    return b"" if task.stored and not outcome.startswith(FAILED) else outcome
