"""The cost of a history: the same graphs with and without one, in pairs."""

from __future__ import annotations

import argparse
import statistics
import sys

import zkplan
from zkplan.protocol.history.compaction import compact
from zkplan.protocol.layout import HISTORY
from zkplan.protocol.requests import ReadChildren, ReadData

from .measure import Run, run_shape
from .pool import Pool
from .servers import names, served
from .shapes import Shape, chain, independent, random

PROCESSES, THREADS = 2, 8
SHAPES = (independent(5_000), random(3_000, 2), chain(400))


def size(client: zkplan.Client, path: str) -> tuple[int, int]:
    """The number of znodes of the plan's history, and of their bytes of data."""
    ask = client.transport.ask
    found = ask(ReadChildren(f"{path}/{HISTORY}")) or ()
    nodes = [ask(ReadData(f"{path}/{HISTORY}/{name}")) for name in found]
    return len(nodes), sum(len(node.data) for node in nodes if node is not None)


def told(client: zkplan.Client, shape: Shape) -> str:
    """The room of one run's history per task, as written and merged."""
    plan = client.create_plan(shape.name)
    plan.add_tasks(shape.build())
    plan.mark_ready()
    plan.wait(300)
    before = size(client, plan.path)
    client.transport.run(compact(plan.path))
    after = size(client, plan.path)
    plan.remove()
    return (
        f"{before[0] / shape.tasks:.3f} znodes and {before[1] / shape.tasks:.0f} bytes a task as "
        f"written (some merged), {after[1] / shape.tasks:.0f} bytes merged"
    )


def line(shape: Shape, runs: dict[bool, list[Run]]) -> str:
    pairs = list(zip(runs[True], runs[False], strict=True))
    wall = statistics.median(on.total_s / off.total_s for on, off in pairs)
    cpu = {
        who: statistics.median(on.cpu_s[who] for on, _ in pairs)
        / max(0.01, statistics.median(off.cpu_s[who] for _, off in pairs))
        for who in ("workers", "server")
    }
    seconds = [statistics.median(run.total_s for run in runs[on]) for on in (True, False)]
    return (
        f"{shape.name}: {seconds[0]:.2f} s with, {seconds[1]:.2f} s without; x {wall:.3f}; "
        f"processor time of workers x {cpu['workers']:.3f}, of the server x {cpu['server']:.3f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.history", description=__doc__)
    parser.add_argument("--server", choices=["zookeeper", "embedded", "both"])
    parser.add_argument("--pairs", type=int, default=5)
    options = parser.parse_args()
    for name in names(options.server, None):
        with served(name, None) as server, zkplan.connect(server.hosts) as client:
            sys.stdout.write(f"{server.version}\n")
            with Pool(client, PROCESSES, THREADS) as pool:
                for shape in SHAPES:
                    runs: dict[bool, list[Run]] = {True: [], False: []}
                    run_shape(pool, shape, server.pid)
                    for pair in range(options.pairs):
                        for on in (True, False) if pair % 2 else (False, True):
                            runs[on].append(run_shape(pool, shape, server.pid, on))
                    sys.stdout.write(f"{line(shape, runs)}\n  {told(client, shape)}\n")
                    sys.stdout.flush()


if __name__ == "__main__":
    main()
