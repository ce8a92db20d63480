"""The measured graphs, each with a check of its results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from zkplan import Task, TaskSpec
from zkplan.testing.stress_tasks import random_graph

from .functions import depth, nothing, successor, total, zero

RESULT_TIMEOUT_S = 10.0
#: About how many results to read one by one and compare, at most twice as many. The time for this
#: is not measured.
SAMPLES = 20
SEED = 1


class WrongResult(RuntimeError):
    """A run gave a wrong value, so its figures mean nothing."""


@dataclass(frozen=True)
class Shape:
    """A graph of `tasks` tasks. `build` returns their specs.

    `expected` has the right values of the leaves, the tasks that no other task needs, by index.
    """

    name: str
    tasks: int
    build: Callable[[], list[TaskSpec]]
    expected: dict[int, object]

    def check(self, made: Sequence[Task]) -> None:
        """Compare some results of a drained plan; raises WrongResult."""
        leaves = list(self.expected)
        for index in leaves[:: max(1, len(leaves) // SAMPLES)]:
            self._compare(index, made[index].result(timeout=RESULT_TIMEOUT_S))

    def check_values(self, values: Sequence[object]) -> None:
        """Compare the values of all leaves, in the order of `expected`; raises WrongResult."""
        if len(values) != len(self.expected):
            raise WrongResult(f"{self.name}: {len(values)} values, not {len(self.expected)}")
        for index, value in zip(self.expected, values, strict=True):
            self._compare(index, value)

    def _compare(self, index: int, found: object) -> None:
        value = self.expected[index]
        if found != value:
            raise WrongResult(f"{self.name}: task {index} gave {found!r}, not {value!r}")


def independent(tasks: int) -> Shape:
    """Tasks without edges. The result of each is kept."""
    return Shape(
        f"independent {tasks:,}",
        tasks,
        lambda: [TaskSpec(nothing) for _ in range(tasks)],
        dict.fromkeys(range(tasks)),
    )


def random(tasks: int, deps: int) -> Shape:
    """Each task depends on `deps` random earlier ones. The graph is always the same."""
    graph = random_graph(tasks, deps, SEED)
    depths: list[int] = []
    for needed in graph:
        depths.append(depth(*(depths[other] for other in needed)))
    sinks = sorted(set(range(tasks)) - {other for needed in graph for other in needed})

    def build() -> list[TaskSpec]:
        specs: list[TaskSpec] = []
        for needed in graph:
            specs.append(TaskSpec(depth, [specs[other] for other in needed]))
        return specs

    return Shape(f"random {tasks:,} x {deps}", tasks, build, {sink: depths[sink] for sink in sinks})


def map_reduce(width: int) -> Shape:
    """One task feeds `width` tasks, which feed one."""

    def build() -> list[TaskSpec]:
        source = TaskSpec(zero)
        maps = [TaskSpec(successor, [source]) for _ in range(width)]
        return [source, *maps, TaskSpec(total, [maps])]

    return Shape(f"map-reduce 1-{width:,}-1", width + 2, build, {width + 1: width})


def chain(hops: int, pure: bool = False) -> Shape:
    """Each task depends on the one before it."""

    def build() -> list[TaskSpec]:
        specs = [TaskSpec(zero, pure=pure)]
        for _ in range(hops - 1):
            specs.append(TaskSpec(successor, [specs[-1]], pure=pure))
        return specs

    name = f"chain {hops:,}{', pure' if pure else ''}"
    return Shape(name, hops, build, {hops - 1: hops - 1})


def hot_join(width: int) -> Shape:
    """`width` runnable tasks that all deliver to the same one."""

    def build() -> list[TaskSpec]:
        zeros = [TaskSpec(zero) for _ in range(width)]
        return [*zeros, TaskSpec(total, [zeros])]

    return Shape(f"hot join {width:,}-1", width + 1, build, {width: 0})
