"""What a worker of the simulation commits of a task that has ended."""

from __future__ import annotations

from zkplan.protocol.core.commit_part import Part
from zkplan.protocol.core.load import Loaded
from zkplan.protocol.layout import DELIVERED

from .story import FAILED, SKIPPED, Meant


def part_of(item: Loaded, task: Meant, outcome: bytes) -> Part:
    dead = b""
    if outcome.startswith(FAILED):
        dead = task.dead(item.claim, "").to_bytes()
    skips = outcome.startswith(SKIPPED) and item.result is None
    return Part(item, outcome, outcome.startswith(SKIPPED) or task.keep, dead, skips=skips)


def tells(item: Loaded) -> bool:
    """Whether dependents take the failure of the task, or an earlier claim has told some."""
    return any(edge.fails for _, edge in item.edges) or DELIVERED in item.others
