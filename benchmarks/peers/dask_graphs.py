"""Compute Dask graphs by plans and by Dask's own distributed scheduler, in turns."""

from __future__ import annotations

import functools
import gc
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

from ..client_process import ClientProcess
from ..pool import Pool
from ..rows import Row
from ..shapes import WrongResult
from ..suite import Bench
from ..turns import by_turns
from .comparison import PROCESSES, THREADS, Graph, rows_of
from .peer import Kind, version_of

DASK = Kind("dask", "peers.dask_graphs_peer", "distributed", "dask[distributed,array,dataframe]")
#: A Dask graph must be no slower on zkplan.
RATIO_MIN = 1.0


class Expression(NamedTuple):
    """One of `dask_expressions.EXPRESSIONS`, by its name, and its size."""

    name: str
    size: int
    told: str


def expressions(size: Callable[[int, int], int]) -> list[Expression]:
    side, rows = size(4000, 80), size(8_000_000, 1600)
    return [
        Expression("array", side, f"Dask array, {side:,} x {side:,}"),
        Expression("floats", side, f"Dask array of random floats, {side:,} x {side:,}"),
        Expression("group-by", rows, f"Dask group-by, {rows:,} rows"),
    ]


def compare_dask_graphs(benches: Sequence[Bench], python: str) -> list[Row]:
    """The rows of zkplan on each server and of Dask, and their ratios."""
    first = benches[0]
    missing = _missing(python)
    if missing:
        first.tell(f"Dask graphs: {missing}")
        return [Row("Dask graphs", "", note=missing)]
    with ExitStack() as stack:
        # Blocks and partitions are too large for a znode.
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="zkplan-benchmark-"))
        store = f"file://{folder}/store"
        pools: dict[str, Pool] = {}
        for bench in benches:
            client = stack.enter_context(bench.client(store=store))
            pool = Pool(client, PROCESSES, THREADS, {"ZKPLAN_STORE": store})
            pools[bench.server] = stack.enter_context(pool)
        sizes = str(PROCESSES), str(THREADS)
        dask = stack.enter_context(ClientProcess(DASK.module, *sizes, python=python))
        dask.wait_ready()
        rows = []
        for expression in expressions(first.size):
            sides: dict[str, Callable[[int], float]] = {
                name: partial(_timed, name, partial(_by_plan, pool, expression), expression, first)
                for name, pool in pools.items()
            }
            by_dask = partial(_by_dask, dask, expression)
            sides[DASK.name] = partial(_timed, DASK.name, by_dask, expression, first)
            took = by_turns(sides, first.runs)
            rows += rows_of(Graph(expression.told, 1, "s", RATIO_MIN), took, {}, not first.quick)
        return rows


def _missing(python: str) -> str:
    """Why this cannot be measured; empty if it can."""
    if find_spec("dask") is None or find_spec("pandas") is None:
        return "skipped: zkplan's own environment has no Dask; pip install 'zkplan[dask]'"
    if version_of(DASK, python) is None:
        return f"skipped: {python} does not have it; pip install '{DASK.package}'"
    return ""


def _timed(
    name: str,
    run: Callable[[], tuple[float, list[Any]]],
    expression: Expression,
    bench: Bench,
    turn: int,
) -> float:
    seconds, value = run()
    from .dask_expressions import are_same

    if not are_same(value, _right(expression)):
        raise WrongResult(f"{name}: {expression.told}: not what Dask's synchronous scheduler gives")
    bench.tell(f"{name}: {expression.told}: {seconds:.3f} s" + ("" if turn else ", warm-up"))
    return seconds


def _by_plan(pool: Pool, expression: Expression) -> tuple[float, list[Any]]:
    """Seconds from the first call, before the graph is built, until the result is here."""
    from zkplan.integrations.dask import ZkplanScheduler

    from .dask_expressions import EXPRESSIONS, plain

    gc.collect()
    began = time.perf_counter()
    graph = EXPRESSIONS[expression.name](expression.size)
    found = graph.compute(scheduler=ZkplanScheduler(pool.client))
    seconds = time.perf_counter() - began
    pool.require_running()
    return seconds, plain(found)


def _by_dask(process: ClientProcess, expression: Expression) -> tuple[float, list[Any]]:
    process.begin(json.dumps({"name": expression.name, "size": expression.size}))
    answer = process.result()
    return answer["seconds"], answer["value"]


@functools.cache
def _right(expression: Expression) -> list[Any]:
    from .dask_expressions import EXPRESSIONS, plain

    return plain(EXPRESSIONS[expression.name](expression.size).compute(scheduler="sync"))
