"""The workload `peers`: zkplan on its servers, Dask and Ray run the same graphs in turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from statistics import median
from typing import NamedTuple

from .. import shapes
from ..measure import time_values
from ..rows import Row, Target, figure, server_ratios, times_as_fast
from ..servers import EMBEDDED, ZOOKEEPER
from ..shapes import Shape
from ..suite import Bench
from ..turns import by_turns
from .peer import KINDS, Peer, version_of

PROCESSES, THREADS = 2, 8


class Graph(NamedTuple):
    """A graph, and how many times as fast as the better peer zkplan on ZooKeeper must be.

    `tasks` is the number of tasks, for units that count tasks.
    """

    name: str
    tasks: int
    unit: str
    ratio_min: float


def graphs(size: Callable[[int, int], int]) -> list[tuple[Shape, Graph]]:
    """The graphs of the suite. `size` chooses between the full and the quick size."""
    pairs = [
        (shapes.independent(size(10_000, 200)), "tasks/s", 2.5),
        (shapes.random(size(5000, 100), 2), "tasks/s", 2.5),
        (shapes.map_reduce(size(1000, 50)), "s", 1.5),
        (shapes.chain(size(500, 20)), "ms/hop", 1.0),
        (shapes.chain(size(500, 20), pure=True), "ms/hop", 4.0),
        (shapes.random(size(100, 30), size(10, 3)), "s", 1.5),
    ]
    return [
        (shape, Graph(shape.name, shape.tasks, unit, ratio_min)) for shape, unit, ratio_min in pairs
    ]


def compare_with_peers(
    benches: Sequence[Bench], python: str, versions: dict[str, str]
) -> list[Row]:
    """The rows of all executors. Adds the versions of the peers to `versions`."""
    first = benches[0]
    rows: list[Row] = []
    with ExitStack() as stack:
        timed: dict[str, Callable[[Shape], float]] = {}
        for bench in benches:
            pool = stack.enter_context(bench.pool(PROCESSES, THREADS))
            timed[bench.server] = partial(time_values, pool)
        peers: dict[str, Peer] = {}
        for kind in KINDS:
            version = version_of(kind, python)
            if version is None:
                reason = f"skipped: {python} does not have it; pip install '{kind.package}'"
                first.tell(f"{kind.name}: {reason}")
                rows.append(Row(kind.name, "", note=reason))
                continue
            versions[kind.name] = version
            peers[kind.name] = stack.enter_context(Peer(kind, python, PROCESSES, THREADS))
            timed[kind.name] = peers[kind.name].time_values
        for shape, graph in graphs(first.size):
            took = _take_turns(shape, timed, first.runs, first.tell)
            notes = {name: f"by {peer.way(shape)}" for name, peer in peers.items()}
            rows += rows_of(graph, took, notes, is_judged=not first.quick)
    return rows


def _take_turns(
    shape: Shape,
    timed: Mapping[str, Callable[[Shape], float]],
    runs: int,
    tell: Callable[[str], None],
) -> dict[str, list[float]]:
    """Seconds by name, turn by turn."""

    def time_one(name: str, turn: int) -> float:
        seconds = timed[name](shape)
        tell(f"{name}: {shape.name}: {seconds:.3f} s" + ("" if turn else ", warm-up"))
        return seconds

    return by_turns({name: partial(time_one, name) for name in timed}, runs)


def rows_of(
    graph: Graph, took: Mapping[str, Sequence[float]], notes: Mapping[str, str], is_judged: bool
) -> list[Row]:
    """The figure of each executor that ran the graph, then the relative speed of zkplan."""
    rows = []
    for who, runs in took.items():
        row = Row(graph.name, graph.unit, values=figure(graph.unit, graph.tasks, median(runs)))
        row.server, row.note = who, notes.get(who, "")
        row.runs = [{"values_s": run} for run in runs]
        rows.append(row)
    ours = [row for row in rows if row.server in (ZOOKEEPER, EMBEDDED)]
    peers = [row for row in rows if row not in ours]
    ratios = []
    if peers:
        better = max(peers, key=lambda row: times_as_fast(row.unit, row.values, 1.0) or 0.0)
        for row in ours:
            ratio = Row(f"{graph.name}: {row.server} / {better.server}", "ratio")
            ratio.values = times_as_fast(row.unit, row.values, better.values)
            if is_judged and row.server == ZOOKEEPER:
                target = Target(total=graph.ratio_min)
                ratio.target, ratio.met = str(target), target.met(ratio.values, None)
            ratios.append(ratio)
    return rows + ratios + server_ratios(ours, is_judged)
