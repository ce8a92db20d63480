"""Read 10 000 kept results of an ended plan: `plan.results()` and single reads, in turns.

Each turn has a client of its own, which has read nothing yet. The time is from the first call until
the author has the last value.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import zkplan
from zkplan import TaskSpec

from . import servers
from .functions import successor
from .measure import RUN_TIMEOUT_S
from .shapes import WrongResult
from .suite import Bench
from .turns import by_turns, number, spread

BULK, SINGLE = "plan.results()", "task.result() one by one"
#: The most seconds that reading this many results in bulk may take.
RESULTS, SECONDS_MAX = 10_000, 0.6


def measure(bench: Bench, count: int) -> dict[str, list[float]]:
    """The seconds of each turn, by the way of reading. Raises WrongResult."""
    with bench.pool() as pool:
        plan = pool.client.create_plan("results")
        numbers = [task.number for task in plan.add_tasks(_specs(count))]
        plan.mark_ready()
        plan.wait(timeout=RUN_TIMEOUT_S)

        def timed(read: Callable[[zkplan.Plan], Sequence[Any]], what: str, turn: int) -> float:
            with zkplan.connect(bench.hosts, pool.client.root) as client:
                found = client.plan(plan.path)
                gc.collect()
                began = time.perf_counter()
                values = read(found)
                seconds = time.perf_counter() - began
            if list(values) != list(range(1, count + 1)):
                raise WrongResult(f"{what} gave other values than the tasks")
            bench.tell(f"{bench.server}: {what}: {seconds:.3f} s" + ("" if turn else ", warm-up"))
            return seconds

        def one_by_one(found: zkplan.Plan) -> list[Any]:
            return [found.task(number).result() for number in numbers]

        return by_turns(
            {
                BULK: lambda turn: timed(zkplan.Plan.results, BULK, turn),
                SINGLE: lambda turn: timed(one_by_one, SINGLE, turn),
            },
            bench.runs,
        )


def _specs(count: int) -> list[TaskSpec]:
    return [TaskSpec(successor, [at]) for at in range(count)]


def told(version: str, count: int, took: dict[str, list[float]]) -> str:
    """A line of figures: medians with their quartiles, in seconds."""
    bulk, single = spread(took[BULK]), spread(took[SINGLE])
    line = f"{version}: {count:,} results: {BULK} {bulk} s, {SINGLE} {single} s; "
    line += f"{single.median / bulk.median:.1f} times as fast"
    if count != RESULTS:
        return line
    met = "met" if bulk.median <= SECONDS_MAX else "MISSED"
    return f"{line}; target ≤ {SECONDS_MAX:g} s: {met}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.results", description=__doc__)
    parser.add_argument("--server", choices=[servers.ZOOKEEPER, servers.EMBEDDED, servers.BOTH])
    parser.add_argument("--hosts", help="a real ZooKeeper, instead of one that is started here")
    parser.add_argument("--results", type=number, default=RESULTS)
    parser.add_argument("--rounds", type=number, default=5)
    given = parser.parse_args()
    for name in servers.names(given.server, given.hosts):
        with servers.served(name, given.hosts) as server:
            bench = Bench(name, server.hosts, server.pid, given.rounds, False, tell)
            print(told(f"{name} {server.version}", given.results, measure(bench, given.results)))


def tell(line: str) -> None:
    print(line, file=sys.stderr)


if __name__ == "__main__":
    main()
