"""What a worker of the simulation loads: ahead, and judged at the moment of the last read (S3)."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from zkplan.protocol.core import load as loading
from zkplan.protocol.core.commit_part import Part
from zkplan.protocol.core.load import FirstReads, Loaded, Reading
from zkplan.protocol.transactions import Claim

from .network import Client
from .story import Violation, outcomes_in

if TYPE_CHECKING:
    from .world import World


def load_judged(
    world: World, client: Client, claims: list[Claim], read: FirstReads | None = None
) -> Generator[Any, Any, list[Loaded]]:
    """Load the tasks of these claims; raises Violation."""
    sealing = world.network.sealing
    met = sealing.met(client.name) if sealing is not None else None
    loaded: list[Loaded] = yield from loading.load(claims, read)
    # The first time that a client opens data of a plan, it reads where they lie: after the tasks.
    later = sealing is not None and sealing.met(client.name) != met
    # The claim of a task that is gone is deleted after the others were read.
    later = later or any(claim.task_path not in world.nodes for claim in claims)
    for item in loaded:
        judge_loaded(world, item, later)
    return loaded


def judge_loaded(world: World, item: Loaded, later: bool = False) -> None:
    """The claim stands, nothing is damaged, the arguments are right; raises Violation.

    `later`: there were requests after the reads of the task, so its claim may be gone.
    """
    task = world.auditor.tasks[item.claim.task_path]
    if item.damage:
        raise Violation(f"S3 {task.name} was loaded with damage: {item.damage}")
    if item.refused is not None:
        raise Violation(f"S3 {task.name} has an argument of another task: {item.refused}")
    if item.claim.path not in world.nodes and not later:
        raise Violation(f"S3 {task.name} was loaded without its claim {item.claim.path}")
    if item.result is None:  # else its function does not run
        judge_arguments(world, item)


def judge_arguments(world: World, item: Loaded) -> None:
    task = world.auditor.tasks[item.claim.task_path]
    arguments = outcomes_in(item) if task.gate is None else item.arguments[1:]
    if arguments != task.arguments:
        raise Violation(f"S3 {task.name} has the arguments {item.arguments}")


def read_ahead(world: World, parts: list[Part]) -> Generator[Any, Any, dict[str, Reading]]:
    """Read dependents that a worker may inherit, some time before they are its own."""
    found: dict[str, Reading] = {}
    for part in [first.last for first in parts]:
        tasks = [edge.task for _, edge in part.loaded.edges if edge.k == 1]
        if tasks and world.chance(world.mix.ahead):
            plan_path = part.loaded.claim.plan_path
            readings = yield from loading.load_ahead(plan_path, tasks)
            found.update({reading.task_path: reading for reading in readings.values()})
    return found


def inherited(claim: Claim, reading: Reading | None, done: list[Part]) -> Loaded | None:
    """The task of a claim that the commit of `done` made, from what was read ahead."""
    if reading is None:
        return None
    for part in [first.last for first in done]:
        argument = part.argument()
        for _, edge in part.loaded.edges:
            if (part.loaded.claim.plan, edge.task) == (claim.plan, claim.task):
                item = reading.inherited(claim, edge.position, argument)
                if item is not None:
                    return item
    return None
