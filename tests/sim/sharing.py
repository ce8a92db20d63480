"""What tasks of a plan share: which tasks do, and a judge of S10 for it."""

from __future__ import annotations

import random
import zlib
from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from zkplan.protocol.core import shared
from zkplan.protocol.features.author import Author
from zkplan.protocol.layout import SHARED, shared_part
from zkplan.protocol.requests import Create, Delete, Op

from .story import Meant, Violation

if TYPE_CHECKING:
    from .world import World

Script = Generator[Any, Any, Any]
#: The share of runs in which tasks share something.
SHARE = 0.3


def shares(seed: int) -> bool:
    return random.Random(f"shared {seed}").random() < SHARE


def choose(world: World, tasks: Sequence[Meant]) -> list[str]:
    """Which of these tasks share something; what that is."""
    if not shares(world.seed):
        return []
    for task in tasks:
        drawn = zlib.crc32(task.record)
        task.shares = f"{drawn % 3:032x}" if drawn % 5 else ""
    return sorted({task.shares for task in tasks} - {""})


def write(author: Author, names: Sequence[str]) -> Script:
    for each in names:
        yield from shared.write(author.plan_path, each, b"shared", author.explain_plan)


def before_the_add(write: Script, add: Script) -> Script:
    """S10: what refers to it is added once it is written."""
    yield from write
    return (yield from add)


class Judge:
    """S10: a task refers to nothing that is not in its plan. `nodes` is the tree as it is now."""

    def __init__(self, nodes: Mapping[str, Any], names: Mapping[str, Meant]) -> None:
        self._nodes, self._names = nodes, names

    def applied(self, op: Op, path: str, below: str) -> None:
        child = below.partition("/")[2]
        if type(op) is Create and child.startswith("task-") and "/" not in child:
            task = self._names.get(op.data.decode())
            if task is None or not task.shares:
                return
            part = shared_part(path.rpartition("/")[0], task.shares, 0)
            if part not in self._nodes:
                raise Violation(f"S10 {path} refers to {part}, which is not there")
        elif type(op) is Delete and child.startswith(f"add-ids/{SHARED}"):
            digest = child.removeprefix(f"add-ids/{SHARED}").partition(".")[0]
            plan_path = path.partition("/add-ids/")[0]
            for task in self._names.values():
                is_there = task.path in self._nodes and task.path.startswith(f"{plan_path}/")
                if task.shares == digest and is_there:
                    raise Violation(f"S10 {path} is deleted, and {task.path} refers to it")
