"""Measures of zkplan's own server alone: its start, and a million znodes."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from statistics import median

from zkplan.protocol.requests import Create
from zkplan.testing.server_process import EmbeddedServerProcess, ServerDidNotStart, ServerProcess

from . import machine, raw
from .rows import Row, Target
from .servers import EMBEDDED, InMemoryServer

START_S_MAX = 0.3
MEMORY_MIB_MAX = 1024
_SOME, _SOME_QUICK = 100_000, 2_000
_MANY, _MANY_QUICK = 1_000_000, 5_000
_CHILDREN = 1000
_OPS_PER_MULTI = 500
_WINDOW = 16
_DATA = b"0123456789abcdef"
_ANSWER_DEADLINE_S = 120.0
_RETRY_S = 0.001


def capacity(turns: int, quick: bool, tell: Callable[[str], None]) -> list[Row]:
    """Start in memory, on an empty folder and on 100 000 znodes; then hold a million znodes."""
    rows = [_start_in_memory(turns), _start_on_empty(turns)]
    in_python, in_imports = _import_s("pass", turns), _import_s("import zkplan.__main__", turns)
    in_server = _import_s("import zkplan.cli.server, zkplan.embedded", turns)
    for row in rows:
        row.note = (
            f"the interpreter alone {in_python:.3f} s, with `import zkplan` {in_imports:.3f} s, "
            f"with all imports {in_server:.3f} s"
        )
        target = Target(total=START_S_MAX, higher=False)
        if not quick:
            row.target, row.met = str(target), target.met(row.total, None)
    rows.append(_start_on(_SOME_QUICK if quick else _SOME, turns))
    for row in rows:
        tell(f"{EMBEDDED}: {row.name}: {row.total:.3f} s")
    for kind in ("in memory", "with a data folder"):
        rows += _many(kind, _MANY_QUICK if quick else _MANY, quick, tell)
    for row in rows:
        row.server = EMBEDDED
    return rows


# The start.


def _start_in_memory(turns: int) -> Row:
    taken = []
    for _ in range(turns):
        with closing(InMemoryServer()) as server:
            taken.append(start_s(server))
    return _start_row("in memory", taken)


def _start_on_empty(turns: int) -> Row:
    taken = []
    for _ in range(turns):
        with closing(EmbeddedServerProcess()) as server:
            taken.append(start_s(server))
    return _start_row("on an empty folder", taken)


def _start_on(count: int, turns: int) -> Row:
    with EmbeddedServerProcess() as server:
        fill(server.hosts, count)
        taken = []
        for _ in range(turns):
            server.stop()
            taken.append(start_s(server))
    return _start_row(f"on {count:,} znodes", taken)


def _start_row(what: str, taken: list[float]) -> Row:
    row = Row(f"start to first answer, {what}", "s", total=median(taken))
    row.runs = [{"seconds": seconds} for seconds in taken]
    return row


def start_s(server: ServerProcess) -> float:
    """Seconds from the start of the process to the answer to the first create.

    Raises ServerDidNotStart.
    """
    began = time.perf_counter()
    server.start(wait=False)
    while True:
        try:
            with raw.RawClient(server.hosts) as client:
                client.ask(raw.create(f"/first-{time.time_ns()}", b""))
                return time.perf_counter() - began
        except OSError as error:
            if not server.is_running() or time.perf_counter() - began > _ANSWER_DEADLINE_S:
                raise ServerDidNotStart(f"no answer of {server.hosts}: {error}") from error
            time.sleep(_RETRY_S)


def _import_s(statement: str, turns: int) -> float:
    taken = []
    for _ in range(turns):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", statement], check=True)
        taken.append(time.perf_counter() - began)
    return median(taken)


# A million znodes.


def fill(hosts: str, count: int) -> None:
    """Create about `count` znodes of 16 bytes each, 1 000 below each parent, like plans."""
    with raw.RawClient(hosts) as client:
        client.send_all(map(raw.multi, _groups(count)), _WINDOW)


def _groups(count: int) -> Iterator[list[Create]]:
    for number in range(-(-count // _CHILDREN)):
        parent = f"/plan-{number:010d}"
        ops = [Create(parent, _DATA)]
        for child in range(_CHILDREN):
            ops.append(Create(f"{parent}/task-{child:010d}", _DATA))
            if len(ops) == _OPS_PER_MULTI:
                yield ops
                ops = []
        yield ops


def _many(kind: str, count: int, quick: bool, tell: Callable[[str], None]) -> list[Row]:
    server: ServerProcess = InMemoryServer() if kind == "in memory" else EmbeddedServerProcess()
    with server:
        pid = server.pid or 0
        before, _ = machine.memory_mib(pid)
        began = time.perf_counter()
        fill(server.hosts, count)
        filling_s = time.perf_counter() - began
        rows = [_memory_row(f"{count:,} znodes {kind}", pid, before, count, quick)]
        rows[0].note += f"; filled at {count / filling_s:,.0f} creates/s"
        if isinstance(server, EmbeddedServerProcess):
            began = time.perf_counter()
            server.stop()
            stopping_s = time.perf_counter() - began
            size = sum(file.stat().st_size for file in (server.data / "data").iterdir())
            row = Row(f"start to first answer, on {count:,} znodes", "s", total=start_s(server))
            row.note = f"{size / 2**20:,.0f} MiB on disk; the stop took {stopping_s:.1f} s"
            pid = server.pid or 0
            rows += [row, _memory_row(f"{count:,} znodes after a restart", pid, 0, count, quick)]
    for row in rows:
        tell(f"{EMBEDDED}: {row.name}: {row.total:,.3g} {row.unit} ({row.note})")
    return rows


def _memory_row(what: str, pid: int, before: float, count: int, quick: bool) -> Row:
    now, peak = machine.memory_mib(pid)
    row = Row(f"memory of the server with {what}", "MiB", total=now)
    row.note = f"peak {peak:,.0f} MiB"
    if before:
        row.note += f", {before:.0f} MiB without, {(now - before) * 2**20 / count:,.0f} bytes each"
    if not quick:
        target = Target(total=MEMORY_MIB_MAX, higher=False)
        row.target, row.met = str(target), target.met(max(now, peak), None)
    return row
