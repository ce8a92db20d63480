"""Read CSV files into frames and one table: zkplan and Dask in turns, and the server's memory.

200 files of 1 to 5 MB. zkplan has the default of one machine: a closed `zkplan server` in memory,
as with `zkplan.local()`, but in a process of its own, so that its memory can be measured, and large
values in a folder. With --data everything is on the disk before the run goes on. Both sides have as
many processes and threads. This needs pandas, and for Dask also `distributed`.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from random import Random

import zkplan
from zkplan.basics.private import ProcessFolder
from zkplan.testing.server_process import EmbeddedServerProcess, ServerProcess

from . import machine
from .client_process import ClientProcess
from .frame_functions import GROUP, facts, merge, read, write_file
from .measure import RUN_TIMEOUT_S
from .peers.peer import Kind, interpreter, version_of
from .pool import Pool
from .servers import InMemoryServer
from .shapes import SEED, WrongResult
from .turns import by_turns, number, spread

DASK = Kind("dask", "peers.frames_peer", "distributed", "dask[distributed]' 'pandas")
#: The longest time as a multiple of Dask's, and the millions of bytes that the server may grow by.
TIMES_MAX, GROWTH_MB_MAX = 1.2, 20.0
MB_OF_MIB = 2**20 / 1e6
#: The relative tolerance of the last of the `facts`, a sum of floats.
ROUNDING = 1e-9


def write_files(folder: Path, count: int, least_mb: float, most_mb: float) -> list[str]:
    """Write the files, and return their paths. The same arguments give the same files."""
    draw = Random(SEED)
    paths = [folder / f"{at}.csv" for at in range(count)]
    sizes = [draw.uniform(least_mb, most_mb) * 1e6 for _ in paths]
    with multiprocessing.get_context("spawn").Pool() as pool:
        pool.starmap(write_file, zip(paths, sizes, range(count), strict=True))
    return [str(path) for path in paths]


def run_zkplan(client: zkplan.Client, paths: Sequence[str]) -> tuple[float, list[object]]:
    """Seconds from the first call until the table is here, and facts of the table."""
    gc.collect()
    began = time.perf_counter()
    with client.create_plan("frames") as plan:
        frames = [plan.add_task(read, [path]) for path in paths]
        starts = range(0, len(frames), GROUP)
        groups = [plan.add_task(merge, [frames[at : at + GROUP]]) for at in starts]
        task = plan.add_task(merge, [groups])
    table = task.result(timeout=RUN_TIMEOUT_S)
    seconds = time.perf_counter() - began
    plan.remove()
    return seconds, facts(table)


@contextmanager
def zkplan_pool(
    server: ServerProcess, store: str | None, processes: int, threads: int
) -> Iterator[Pool]:
    """Workers at `server`, which log in by themselves, like all programs of its owner."""
    environment = {"ZKPLAN_STORE": store} if store else {}
    with (
        zkplan.connect(server.hosts, store=store) as client,
        Pool(client, processes, threads, environment) as pool,
    ):
        yield pool


def measure(given: argparse.Namespace, paths: Sequence[str]) -> Iterator[str]:
    """The lines of the report. Raises WrongResult if the tables differ."""
    with ExitStack() as stack:
        store = None
        if given.data:
            server: ServerProcess = stack.enter_context(EmbeddedServerProcess(is_open=False))
        else:
            folder = ProcessFolder()
            stack.callback(folder.remove)
            store = f"file://{folder.path}/store"
            server = stack.enter_context(InMemoryServer(is_open=False))
        pool = stack.enter_context(zkplan_pool(server, store, given.processes, given.threads))
        ran: dict[str, Callable[[], tuple[float, list[object]]]] = {}
        ran["zkplan"] = partial(run_zkplan, pool.client, paths)
        version = version_of(DASK, given.peers_python)
        if version is None:
            missing = f"{given.peers_python} does not have it; pip install '{DASK.package}'"
            yield f"dask: skipped: {missing}"
        else:
            sizes = str(given.processes), str(given.threads)
            dask = stack.enter_context(
                ClientProcess(DASK.module, *sizes, python=given.peers_python)
            )
            dask.wait_ready()
            ran[f"dask {version}"] = partial(run_dask, dask, paths)
        _, before = machine.memory_mib(server.pid or 0)
        took = take_turns(ran, given.rounds)
        _, after = machine.memory_mib(server.pid or 0)
        for name, seconds in took.items():
            yield f"{name}: {spread(seconds)} s"
        if version is not None:
            ours, theirs = took.values()
            ratio = spread([one / other for one, other in zip(ours, theirs, strict=True)])
            yield f"zkplan / dask: {ratio}; target ≤ {TIMES_MAX:g}: " + _met(
                ratio.median <= TIMES_MAX
            )
        grown = (after - before) * MB_OF_MIB
        yield (
            f"the server's peak memory grew by {grown:.1f} MB in {given.rounds + 1} rounds; target "
            f"< {GROWTH_MB_MAX:g}: {_met(grown < GROWTH_MB_MAX)}"
        )


def run_dask(process: ClientProcess, paths: Sequence[str]) -> tuple[float, list[object]]:
    process.begin(json.dumps({"paths": paths}))
    answer = process.result()
    return answer["seconds"], answer["facts"]


def take_turns(
    ran: dict[str, Callable[[], tuple[float, list[object]]]], rounds: int
) -> dict[str, list[float]]:
    """Seconds by name. Raises WrongResult if a table differs from the first one."""
    tables: list[list[object]] = []

    def time_one(name: str, turn: int) -> float:
        seconds, table = ran[name]()
        tables.append(table)
        if not same(table, tables[0]):
            raise WrongResult(f"{name} made the table {table}, another one {tables[0]}")
        tell(f"{name}: {seconds:.3f} s" + ("" if turn else ", warm-up"))
        return seconds

    return by_turns({name: partial(time_one, name) for name in ran}, rounds)


def same(one: Sequence[object], other: Sequence[object]) -> bool:
    *counts, amount = one
    *wanted, other_amount = other
    return counts == wanted and math.isclose(
        float(str(amount)), float(str(other_amount)), rel_tol=ROUNDING
    )


def _met(is_met: bool) -> str:
    return "met" if is_met else "MISSED"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.frames", description=__doc__)
    parser.add_argument("--files", type=number, default=200)
    parser.add_argument("--least", type=float, default=1.0, help="MB of the smallest file")
    parser.add_argument("--most", type=float, default=5.0, help="MB of the largest file")
    parser.add_argument("--processes", type=number, default=2)
    parser.add_argument("--threads", type=number, default=2)
    parser.add_argument("--rounds", type=number, default=3)
    parser.add_argument("--data", action="store_true", help="a server with a data folder, durable")
    told = "the environment that has Dask, or its interpreter [default: this one]"
    parser.add_argument("--peers-python", default=sys.executable, type=interpreter, help=told)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="zkplan-benchmark-") as folder:
        paths = write_files(Path(folder), given.files, given.least, given.most)
        size = sum(Path(path).stat().st_size for path in paths) / 1e6
        kept = "durable" if given.data else "in memory"
        print(
            f"{len(paths)} files, {size:,.0f} MB of CSV; {given.processes} processes of "
            f"{given.threads} threads; the server is {kept}",
            flush=True,
        )
        for line in measure(given, paths):
            print(line, flush=True)


def tell(line: str) -> None:
    print(line, file=sys.stderr)


if __name__ == "__main__":
    main()
