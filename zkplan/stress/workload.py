"""The workload of a stress run: a random graph from a seed, and the expected values. Pure."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

_DIGEST_BYTES = 16


def random_graph(tasks: int, deps: int, seed: int) -> list[list[int]]:
    """For each task the earlier tasks it depends on: `deps` of them, or all where there are fewer.

    >>> random_graph(4, 2, seed=1)
    [[], [0], [0, 1], [0, 1]]
    """
    chance = random.Random(seed)
    return [sorted(chance.sample(range(task), min(deps, task))) for task in range(tasks)]


def digest_of(arguments: Mapping[int, str]) -> str:
    """A digest of arguments: equal for the same values from the same tasks, in any order."""
    return _blake2b(repr(sorted(arguments.items(), key=repr)))


def key_of(task: int) -> str:
    """The name of a task in its plan, and in the history."""
    return f"t{task}"


def value_of(task: int, arguments: Mapping[int, str]) -> str:
    """What a task returns: every value depends on all that was computed on the way to it."""
    return _blake2b(f"{task} {digest_of(arguments)}")


def _blake2b(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()


@dataclass(frozen=True)
class Workload:
    """A graph and its oracle: what one process that runs everything in order would see.

    `graph[task]` lists the tasks whose values the task takes; each is smaller than the task.
    """

    graph: list[list[int]] = field(repr=False)

    @property
    def tasks(self) -> int:
        return len(self.graph)

    @property
    def edges(self) -> int:
        return sum(map(len, self.graph))

    @cached_property
    def values(self) -> list[str]:
        """The value of each task."""
        values: list[str] = []
        for task, needed in enumerate(self.graph):
            values.append(value_of(task, {other: values[other] for other in needed}))
        return values

    @cached_property
    def digests(self) -> list[str]:
        """The digest of each task's arguments."""
        values = self.values
        return [digest_of({other: values[other] for other in needed}) for needed in self.graph]

    @cached_property
    def sinks(self) -> list[int]:
        """The tasks nobody depends on: their results are kept, and read at the end."""
        needed = {other for others in self.graph for other in others}
        return [task for task in range(self.tasks) if task not in needed]
