"""What is measured, at which size, against which target; every comparison within one suite."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

import zkplan
from zkplan.testing.znodes import remove_tree

from . import shapes
from .measure import Run, run_shape, time_values
from .pool import Pool
from .rows import Row, Target, ratio_row, row_of
from .servers import ZOOKEEPER
from .shapes import Shape

#: More refused transactions and lost claims per task than this are a conflict storm.
STORM = 0.1
NEVER_SLOWER = Target(execution=1.0)


@dataclass
class Bench:
    """A measurement under way: the server, how often to run, whom to tell.

    `quick` reduces the sizes; the figures are then no measure of anything, and have no targets.
    The targets are those of a real ZooKeeper: on another `server` the figures have none.
    """

    server: str
    hosts: str
    server_pid: int | None
    runs: int
    quick: bool
    tell: Callable[[str], None]
    _roots: Iterator[int] = field(default_factory=itertools.count)

    @contextmanager
    def client(self) -> Iterator[zkplan.Client]:
        """A client with a root of its own, which is removed at the end."""
        root = f"/zkplan-benchmark-{next(self._roots)}"
        with zkplan.connect(self.hosts, root, session_timeout=20.0) as client:
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

    def measure_one(self, pool: Pool, shape: Shape) -> list[Run]:
        """Runs of one workload, each followed by one that ends when the author has the values."""
        runs = []
        for turn in range(1 + self.runs):
            run = self._run(pool, shape, turn)
            run = replace(run, values_s=time_values(pool, shape))
            self.tell(f"{self.server}: {shape.name}: {run.values_s:.3f} s to the values")
            if turn:
                runs.append(run)
        return runs

    def measure(self, pairs: Sequence[tuple[Pool, Shape]], count: int) -> list[list[Run]]:
        """`count` runs of each pair; a first turn warms up and does not count.

        They take turns, and every other turn is in reverse, so that a disturbance hits all alike
        and none has the better place.
        """
        runs: list[list[Run]] = [[] for _ in pairs]
        for turn in range(1 + (count or self.runs)):
            for index, (pool, shape) in list(enumerate(pairs))[:: -1 if turn % 2 else 1]:
                run = self._run(pool, shape, turn)
                if turn:
                    runs[index].append(run)
        return runs

    def _run(self, pool: Pool, shape: Shape, turn: int) -> Run:
        run = run_shape(pool, shape, self.server_pid)
        self.tell(
            f"{self.server}: {shape.name}, {pool.processes} x {pool.threads}: {run.total_s:.3f} s "
            f"(execution {run.execution_s:.3f} s)" + ("" if turn else ", warm-up")
        )
        return run


def independent(bench: Bench) -> list[Row]:
    shape = shapes.independent(bench.size(10_000, 200))
    return _one(bench, shape, "tasks/s", Target(2600, 3500))


def random(bench: Bench) -> list[Row]:
    shape = shapes.random(bench.size(5000, 100), 2)
    return _one(bench, shape, "tasks/s", Target(2600, 3300))


def map_reduce(bench: Bench) -> list[Row]:
    shape = shapes.map_reduce(bench.size(1000, 50))
    return _one(bench, shape, "s", Target(0.43, higher=False))


def chain(bench: Bench) -> list[Row]:
    """The second one is of pure tasks."""
    hops = bench.size(500, 20)
    plain = _one(bench, shapes.chain(hops), "ms/hop", Target(1.2, higher=False))
    return plain + _one(bench, shapes.chain(hops, pure=True), "ms/hop", None)


def stress(bench: Bench) -> list[Row]:
    """Ten workers on two processors: two processes of five threads."""
    shape = shapes.random(bench.size(100, 30), bench.size(10, 3))
    return _one(bench, shape, "s", Target(0.19, higher=False), threads=5)


def _one(
    bench: Bench, shape: Shape, unit: str, target: Target | None, threads: int = 8
) -> list[Row]:
    with bench.pool(threads=threads) as pool:
        runs = bench.measure_one(pool, shape)
    return [row_of(shape.name, unit, runs, bench.target(target) if target else None)]


def processes(bench: Bench) -> list[Row]:
    """Two worker processes beside one. Ratios near 1 take more runs to tell than rates do."""
    return _compare(bench, "2 processes / 1", (2, 8), (1, 8))


def threads(bench: Bench) -> list[Row]:
    """Eight threads beside one, in one process."""
    return _compare(bench, "8 threads / 1", (1, 8), (1, 1))


def _compare(bench: Bench, what: str, first: tuple[int, int], second: tuple[int, int]) -> list[Row]:
    rows = []
    with ExitStack() as stack:
        one, two = (stack.enter_context(bench.pool(*size)) for size in (first, second))
        for shape in (
            shapes.independent(bench.size(5000, 100)),
            shapes.random(bench.size(2500, 50), 2),
            shapes.map_reduce(bench.size(1000, 20)),
        ):
            turns = bench.size(2 * bench.runs + 1, 1)
            ours, theirs = bench.measure([(one, shape), (two, shape)], turns)
            rows.append(
                ratio_row(f"{what}: {shape.name}", ours, theirs, bench.target(NEVER_SLOWER))
            )
    return rows


def hot_join(bench: Bench) -> list[Row]:
    """Four worker processes whose tasks all deliver to one."""
    shape = shapes.hot_join(bench.size(1000, 50))
    with bench.pool(processes=4) as pool:
        runs = bench.measure_one(pool, shape)
    row = row_of(f"{shape.name}, 4 processes", "tasks/s", runs)
    if bench.is_judged:
        most = int(STORM * shape.tasks)
        row.target = f"≤ {most} refused"
        row.met = (row.conflicts or 0) + (row.refusals or 0) <= most
    return [row]


#: By the names that `--only` takes, in the order of the report.
WORKLOADS: dict[str, Callable[[Bench], list[Row]]] = {
    "independent": independent,
    "random": random,
    "map-reduce": map_reduce,
    "chain": chain,
    "stress": stress,
    "processes": processes,
    "threads": threads,
    "hot-join": hot_join,
}
