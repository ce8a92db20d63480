"""What a worker of the simulation has loaded is judged at the moment of the last read (S3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zkplan.protocol.load import Loaded

from .story import Violation

if TYPE_CHECKING:
    from .world import World


def judge_loaded(world: World, item: Loaded) -> None:
    """The claim stands, nothing is damaged, the arguments are right; raises Violation."""
    task = world.auditor.tasks[item.claim.task_path]
    if item.damage:
        raise Violation(f"S3 {task.name} was loaded with damage: {item.damage}")
    # The edges of a plan of plain creates take reads after that moment.
    delayed_reads = any(plan.foreign for plan in world.plans)
    if item.claim.path not in world.nodes and not delayed_reads:
        raise Violation(f"S3 {task.name} was loaded without its claim {item.claim.path}")
    judge_arguments(world, item)


def judge_arguments(world: World, item: Loaded) -> None:
    task = world.auditor.tasks[item.claim.task_path]
    arguments = item.arguments if task.gate is None else item.arguments[1:]
    if arguments != [dep.fixed for dep in task.deps]:
        raise Violation(f"S3 {task.name} has the arguments {item.arguments}")
