"""The workload `peers`: zkplan on its servers, Dask and Ray run the same graphs in turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from statistics import median

from .. import shapes
from ..measure import time_values
from ..rows import Row, Target, figure
from ..servers import EMBEDDED, ZOOKEEPER
from ..shapes import Shape
from ..suite import Bench
from .peer import KINDS, Peer, version_of

PROCESSES, THREADS = 2, 8
EMBEDDED_MIN = 0.8


@dataclass(frozen=True)
class Graph:
    """A graph, and how many times as fast as the better peer zkplan on ZooKeeper must be."""

    shape: Shape
    unit: str
    ratio_min: float


def graphs(size: Callable[[int, int], int]) -> list[Graph]:
    """The graphs of the suite. `size` chooses between the full and the quick size."""
    return [
        Graph(shapes.independent(size(10_000, 200)), "tasks/s", 2.5),
        Graph(shapes.random(size(5000, 100), 2), "tasks/s", 2.5),
        Graph(shapes.map_reduce(size(1000, 50)), "s", 1.5),
        Graph(shapes.chain(size(500, 20)), "ms/hop", 1.0),
        Graph(shapes.chain(size(500, 20), pure=True), "ms/hop", 4.0),
        Graph(shapes.random(size(100, 30), size(10, 3)), "s", 1.5),
    ]


def compare_with_peers(
    benches: Sequence[Bench], python: str, versions: dict[str, str]
) -> list[Row]:
    """The rows of all who take part. Adds to `versions` those of the peers that do."""
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
        for graph in graphs(first.size):
            took = _take_turns(graph.shape, timed, first.runs, first.tell)
            notes = {name: f"by {peer.way(graph.shape)}" for name, peer in peers.items()}
            rows += rows_of(graph, took, notes, is_judged=not first.quick)
    return rows


def _take_turns(
    shape: Shape,
    timed: Mapping[str, Callable[[Shape], float]],
    runs: int,
    tell: Callable[[str], None],
) -> dict[str, list[float]]:
    """Seconds by name, turn by turn; a first turn warms up and does not count."""
    took: dict[str, list[float]] = {name: [] for name in timed}
    for turn in range(1 + runs):
        # Every other turn in reverse: a disturbance hits all, and none has the better place.
        for name in list(timed)[:: -1 if turn % 2 else 1]:
            seconds = timed[name](shape)
            tell(f"{name}: {shape.name}: {seconds:.3f} s" + ("" if turn else ", warm-up"))
            if turn:
                took[name].append(seconds)
    return took


def rows_of(
    graph: Graph, took: Mapping[str, Sequence[float]], notes: Mapping[str, str], is_judged: bool
) -> list[Row]:
    """The figure of each who ran the graph, then how many times as fast zkplan was."""
    name, seconds = graph.shape.name, {who: median(runs) for who, runs in took.items()}
    rows = []
    for who, value in seconds.items():
        row = Row(name, graph.unit, values=figure(graph.unit, graph.shape.tasks, value))
        row.server, row.note = who, notes.get(who, "")
        row.runs = [{"values_s": run} for run in took[who]]
        rows.append(row)
    ours = [who for who in (ZOOKEEPER, EMBEDDED) if who in seconds]
    peers = [who for who in seconds if who not in ours]
    if peers:
        better = min(peers, key=lambda who: seconds[who])
        for who in ours:
            wanted = graph.ratio_min if who == ZOOKEEPER else None
            rows.append(_ratio(name, who, better, seconds, wanted if is_judged else None))
    if len(ours) > 1:
        wanted = EMBEDDED_MIN if is_judged else None
        rows.append(_ratio(name, EMBEDDED, ZOOKEEPER, seconds, wanted))
    return rows


def _ratio(
    name: str, first: str, second: str, seconds: Mapping[str, float], wanted: float | None
) -> Row:
    ratio = seconds[second] / seconds[first]
    row = Row(f"{name}: {first} / {second}", "ratio", values=ratio)
    if wanted is not None:
        target = Target(total=wanted)
        row.target, row.met = str(target), target.met(ratio, None)
    return row
