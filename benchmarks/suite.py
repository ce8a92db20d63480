"""The workloads of the suite, their sizes and targets, and the comparisons within it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import zkplan
from zkplan.testing.servers import remove_tree

from . import shapes
from .measure import Run, run_shape, time_values
from .pool import Pool
from .rows import Row, Target, ratio_row, row_of, server_ratios
from .servers import ZOOKEEPER
from .shapes import Shape
from .turns import by_turns

#: More refused transactions and lost claims per task than this are a conflict storm.
STORM = 0.1
NEVER_SLOWER = Target(execution=1.0)


@dataclass
class Bench:
    """A measurement on one server: the number of runs, and `tell` for progress.

    `quick` reduces the sizes; the figures then mean nothing, and have no targets. The targets are
    for a real ZooKeeper, so figures of another `server` have none.
    """

    server: str
    hosts: str
    server_pid: int | None
    runs: int
    quick: bool
    tell: Callable[[str], None]
    #: The numbers of pending tasks that `growth` compares, if they are not its own.
    pending: tuple[int, int] | None = None
    _roots: Iterator[int] = field(default_factory=itertools.count)

    @contextmanager
    def client(self, **options: Any) -> Iterator[zkplan.Client]:
        """A client with a new root, removed at the end. `options` are for `zkplan.connect`."""
        root = f"/zkplan-benchmark-{next(self._roots)}"
        with zkplan.connect(self.hosts, root, session_timeout=20.0, **options) as client:
            try:
                yield client
            finally:
                remove_tree(client.transport.client, root)

    @contextmanager
    def pool(self, processes: int = 2, threads: int = 8) -> Iterator[Pool]:
        with self.client() as client, Pool(client, processes, threads) as pool:
            yield pool

    def size(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    @property
    def is_judged(self) -> bool:
        """Whether the figures are compared with targets."""
        return not self.quick and self.server == ZOOKEEPER

    def target(self, target: Target) -> Target | None:
        return target if self.is_judged else None

    def run_with_values(self, pool: Pool, shape: Shape, turn: int) -> Run:
        """A run, followed by one that ends when the author has the values."""
        run = self.run(pool, shape, turn)
        run = replace(run, values_s=time_values(pool, shape))
        self.tell(f"{self.server}: {shape.name}: {run.values_s:.3f} s to the values")
        return run

    def run(self, pool: Pool, shape: Shape, turn: int) -> Run:
        """Run `shape` once. Turn 0 is reported as the warm-up."""
        run = run_shape(pool, shape, self.server_pid)
        self.tell(
            f"{self.server}: {shape.name}, {pool.processes} x {pool.threads}: {run.total_s:.3f} s "
            f"(execution {run.execution_s:.3f} s)" + ("" if turn else ", warm-up")
        )
        return run


def independent(benches: Sequence[Bench]) -> list[Row]:
    shape = shapes.independent(benches[0].size(10_000, 200))
    return _one(benches, shape, "tasks/s", Target(2600, 3500))


def random(benches: Sequence[Bench]) -> list[Row]:
    shape = shapes.random(benches[0].size(5000, 100), 2)
    return _one(benches, shape, "tasks/s", Target(2600, 3300))


def map_reduce(benches: Sequence[Bench]) -> list[Row]:
    shape = shapes.map_reduce(benches[0].size(1000, 50))
    return _one(benches, shape, "s", Target(0.43, higher=False))


def chain(benches: Sequence[Bench]) -> list[Row]:
    """A chain, and a chain of pure tasks."""
    hops = benches[0].size(500, 20)
    plain = _one(benches, shapes.chain(hops), "ms/hop", Target(1.2, higher=False))
    return plain + _one(benches, shapes.chain(hops, pure=True), "ms/hop", None)


def stress(benches: Sequence[Bench]) -> list[Row]:
    """Ten workers on two processors: two processes of five threads."""
    size = benches[0].size
    shape = shapes.random(size(100, 30), size(10, 3))
    return _one(benches, shape, "s", Target(0.19, higher=False), (2, 5))


def _one(
    benches: Sequence[Bench],
    shape: Shape,
    unit: str,
    target: Target | None,
    size: tuple[int, int] = (2, 8),
) -> list[Row]:
    """A row for each server, and the ratio if there are two servers."""
    runs = _on_each(benches, shape, size)
    rows = []
    for bench in benches:
        wanted = bench.target(target) if target else None
        rows.append(row_of(shape.name, unit, runs[bench.server], wanted))
        rows[-1].server = bench.server
    return rows + server_ratios(rows, is_judged=not benches[0].quick)


def _on_each(benches: Sequence[Bench], shape: Shape, size: tuple[int, int]) -> dict[str, list[Run]]:
    """Runs of one workload by server. Each has worker processes of its own, and they take turns."""
    with ExitStack() as stack:
        sides = {
            bench.server: partial(
                bench.run_with_values, stack.enter_context(bench.pool(*size)), shape
            )
            for bench in benches
        }
        return by_turns(sides, benches[0].runs)


def processes(benches: Sequence[Bench]) -> list[Row]:
    """Two worker processes beside one, in more runs, which ratios near 1 need."""
    return [row for bench in benches for row in _compare(bench, "2 processes / 1", (2, 8), (1, 8))]


def threads(benches: Sequence[Bench]) -> list[Row]:
    """Eight threads beside one, in one process."""
    return [row for bench in benches for row in _compare(bench, "8 threads / 1", (1, 8), (1, 1))]


def _compare(bench: Bench, what: str, first: tuple[int, int], second: tuple[int, int]) -> list[Row]:
    rows = []
    with ExitStack() as stack:
        one, two = (stack.enter_context(bench.pool(*size)) for size in (first, second))
        for shape in (
            shapes.independent(bench.size(5000, 100)),
            shapes.random(bench.size(2500, 50), 2),
            shapes.map_reduce(bench.size(1000, 20)),
        ):
            sides = {pool: partial(bench.run, pool, shape) for pool in (one, two)}
            runs = by_turns(sides, bench.size(2 * bench.runs + 1, 1))
            target = bench.target(NEVER_SLOWER)
            rows.append(ratio_row(f"{what}: {shape.name}", runs[one], runs[two], target))
            rows[-1].server = bench.server
    return rows


def hot_join(benches: Sequence[Bench]) -> list[Row]:
    """Four worker processes whose tasks all deliver to one."""
    shape = shapes.hot_join(benches[0].size(1000, 50))
    runs = _on_each(benches, shape, (4, 8))
    rows = []
    for bench in benches:
        row = row_of(f"{shape.name}, 4 processes", "tasks/s", runs[bench.server])
        row.server = bench.server
        if bench.is_judged:
            most = int(STORM * shape.tasks)
            row.target = f"≤ {most} refused"
            row.met = (row.conflicts or 0) + (row.refusals or 0) <= most
        rows.append(row)
    return rows + server_ratios(rows, is_judged=not benches[0].quick)


#: By the names that `--only` takes, in the order of the report.
WORKLOADS: dict[str, Callable[[Sequence[Bench]], list[Row]]] = {
    "independent": independent,
    "random": random,
    "map-reduce": map_reduce,
    "chain": chain,
    "stress": stress,
    "processes": processes,
    "threads": threads,
    "hot-join": hot_join,
}
