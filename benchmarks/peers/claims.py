"""Claim tasks from stores in PostgreSQL and from zkplan's service, in turns."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from statistics import median

from ..client_process import ClientProcess
from ..turns import by_turns
from . import postgres
from .peer import Kind, version_of

#: Adds the given number of tasks, and returns how many were claimed and completed per second.
Measured = Callable[[int], float]

#: What each store has on the disk before it goes on, and what happens to a late completion.
KEPT = {
    "zkplan": "claim, lease, result; refused when late; over HTTP",
    "dbos": "claim, result, each end by itself; no lease, a restart frees; refused when late",
    "pgqueuer": "claim, heartbeat, end, but no result; not refused when late",
}
KINDS = (
    Kind("dbos", "peers.dbos_peer", "dbos", "dbos"),
    Kind("pgqueuer", "peers.pgqueuer_peer", "pgqueuer", "pgqueuer[asyncpg]"),
)


@contextmanager
def stores(
    python: str, batch: int, programs: int, tell: Callable[[str], None]
) -> Iterator[dict[str, Measured]]:
    """The stores that `python` has, by name and version, on one PostgreSQL. Tells of the others."""
    versions = {kind: version_of(kind, python) for kind in KINDS}
    for kind, version in versions.items():
        if version is None:
            tell(f"{kind.name}: skipped: {python} does not have it; pip install '{kind.package}'")
    found = postgres.find_postgres()
    if found is None:
        tell("all stores skipped: there is no PostgreSQL here")
    with ExitStack() as stack:
        measured: dict[str, Measured] = {}
        if found is not None and any(versions.values()):
            folder = stack.enter_context(postgres.cluster(found))
            server = f"PostgreSQL {postgres.version(found)}"
            for kind, version in versions.items():
                if version is not None:
                    store = stack.enter_context(_store(kind, python, folder, batch, programs))
                    measured[f"{kind.name} {version}, {server}"] = store
        yield measured


@contextmanager
def _store(kind: Kind, python: str, folder: str, batch: int, programs: int) -> Iterator[Measured]:
    with ExitStack() as stack:
        running = []
        for number in range(programs):
            arguments = folder, postgres.USER, str(number)
            process = ClientProcess(kind.module, *arguments, python=python)
            running.append(stack.enter_context(process))
            process.result()  # the process is connected, and the first one has made the tables

        def measure(tasks: int) -> float:
            running[0].begin(json.dumps({"add": tasks}))
            running[0].result()
            began = time.monotonic()
            for each in running:
                each.begin(json.dumps({"work": batch}))
            done = sum(each.result()["done"] for each in running)
            took = time.monotonic() - began
            if done != tasks:
                raise RuntimeError(f"{kind.name}: {done} of {tasks} were completed")
            return tasks / took

        yield measure


def take_turns(
    sides: dict[str, Measured], tasks: int, runs: int, tell: Callable[[str], None]
) -> dict[str, list[float]]:
    """Rates by name. The warm-up has half as many tasks."""

    def measure(name: str, turn: int) -> float:
        rate = sides[name](tasks if turn else tasks // 2)
        tell(f"{name}: {rate:,.0f} tasks/s" + ("" if turn else ", warm-up"))
        return rate

    return by_turns({name: partial(measure, name) for name in sides}, runs)


def table(rates: Mapping[str, Sequence[float]]) -> str:
    """One line per side: its median, lowest and highest rate, and what it has on the disk."""
    lines = [f"{'':40} {'tasks/s':>8} {'lowest':>8} {'highest':>8}  on the disk before it goes on"]
    for name, each in rates.items():
        figures = " ".join(f"{rate:8,.0f}" for rate in (median(each), min(each), max(each)))
        lines.append(f"{name:40} {figures}  {KEPT[re.split('[ ,]', name)[0]]}")
    return "\n".join(lines)
