"""The workload `server`: zkplan's own server beside the real one, request by request, in turns."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from statistics import median

from . import shapes
from .capacity import capacity
from .client_process import ClientProcess
from .limit_client import OPS_PER_MULTI
from .limits import measure_rate
from .rows import EMBEDDED_MIN, Row, Target, ratio_row
from .servers import EMBEDDED, ZOOKEEPER, Served
from .suite import Bench
from .turns import by_turns

#: More turns than the runs of a workload, because each is short and a ratio is judged.
_MORE_TURNS = 2
_LATENCY_S, _LATENCY_QUICK_S = 10.0, 0.5


@dataclass(frozen=True)
class Kind:
    """A kind of client, by its name in limit_client. `ratio_min` is the target, or None."""

    name: str
    what: str
    count: int
    count_quick: int
    ratio_min: float | None = None


KINDS = (
    Kind("single", "creates, one after the other", 1000, 50, 0.5),
    Kind("pipelined", "creates, pipelined, kazoo", 5000, 100, 0.5),
    Kind("raw-pipelined", "creates, pipelined, packed before", 10_000, 100, 0.5),
    Kind("wire", f"multis of {OPS_PER_MULTI} creates, zkplan", 800, 20, 0.3),
    Kind("raw", f"multis of {OPS_PER_MULTI} creates, packed before", 800, 20, 0.3),
    Kind("gets", "gets, pipelined, kazoo", 5000, 100),
    Kind("raw-gets", "gets, pipelined, packed before", 10_000, 100),
)


def compare(
    servers: Sequence[Served], runs: int, quick: bool, tell: Callable[[str], None]
) -> list[Row]:
    """Rates and latencies of each server, their ratios, and the capacity of zkplan's own."""
    turns = runs if quick else runs + _MORE_TURNS
    rows = []
    for kind in KINDS:
        found = _rates(servers, kind, turns, quick, tell)
        rows += _rows(kind, found, quick)
    if len(servers) > 1:
        benches = [Bench(one.name, one.hosts, one.pid, runs, quick, tell) for one in servers]
        rows += _plans(benches, turns)
    rows += _latencies(servers, quick, tell)
    if any(server.name == EMBEDDED for server in servers):
        rows += capacity(turns, quick, tell)
    return rows


def _rates(
    servers: Sequence[Served], kind: Kind, turns: int, quick: bool, tell: Callable[[str], None]
) -> dict[str, list[float]]:
    """Requests per second by server, turn by turn."""
    count = kind.count_quick if quick else kind.count

    def rate(hosts: str, _: int) -> float:
        return measure_rate(hosts, _path(), kind.name, count)

    found = by_turns({server.name: partial(rate, server.hosts) for server in servers}, turns)
    for name, rates in found.items():
        tell(f"{name}: {kind.what}: {median(rates):,.0f} operations/s")
    return found


def _rows(kind: Kind, found: dict[str, list[float]], quick: bool) -> list[Row]:
    rows = []
    for name, rates in found.items():
        row = Row(kind.what, "operations/s", total=median(rates), server=name)
        row.runs = [{"operations_per_s": rate} for rate in rates]
        rows.append(row)
    if len(found) > 1:
        ours, theirs = found[EMBEDDED], found[ZOOKEEPER]
        pairs = zip(ours, theirs, strict=True)
        ratios = sorted(one / other for one, other in pairs)
        row = Row(
            f"{kind.what}: {EMBEDDED} / {ZOOKEEPER}",
            "ratio",
            total=median(ours) / median(theirs),
            note=f"of single turns {ratios[0]:.2f} to {ratios[-1]:.2f}",
        )
        if kind.ratio_min is not None and not quick:
            target = Target(total=kind.ratio_min)
            row.target, row.met = str(target), target.met(row.total, None)
        rows.append(row)
    return rows


def _plans(benches: Sequence[Bench], turns: int) -> list[Row]:
    """Ratios of two plan workloads, half as large as those of the suite, in more turns."""
    rows = []
    size = benches[0].size
    with ExitStack() as stack:
        pools = {bench.server: stack.enter_context(bench.pool()) for bench in benches}
        for shape in (shapes.independent(size(5000, 100)), shapes.random(size(2500, 50), 2)):
            sides = {
                bench.server: partial(bench.run, pools[bench.server], shape) for bench in benches
            }
            found = by_turns(sides, turns)
            name = f"{shape.name}: {EMBEDDED} / {ZOOKEEPER}"
            wanted = None if benches[0].quick else Target(EMBEDDED_MIN)
            rows.append(ratio_row(name, found[EMBEDDED], found[ZOOKEEPER], wanted))
    return rows


def _latencies(servers: Sequence[Served], quick: bool, tell: Callable[[str], None]) -> list[Row]:
    """How long a create takes while another client sends multis as fast as it can."""
    rows = []
    seconds = _LATENCY_QUICK_S if quick else _LATENCY_S
    for server in servers:
        found = measure_latency(server.hosts, seconds)
        what = f"median {found['median_ms']:.2f}, 99 % below {found['p99_ms']:.1f}"
        tell(f"{server.name}: a create under load: {what}, longest {found['longest_ms']:.1f} ms")
        note = f"{what}; beside {found['load_operations_per_s']:,.0f} operations/s"
        longest = found["longest_ms"]
        row = Row("longest create under load", "ms", total=longest, note=note, server=server.name)
        row.runs = [dict(found)]
        rows.append(row)
    return rows


def measure_latency(hosts: str, seconds: float) -> dict[str, float]:
    """Milliseconds of creates one by one for `seconds`, beside a client that never waits."""
    with ExitStack() as stack:
        probe, load = (
            stack.enter_context(
                ClientProcess(
                    *("latency_client", "--hosts", hosts, "--path", _path()),
                    *("--seconds", str(seconds), *options),
                )
            )
            for options in ([], ["--load"])
        )
        for process in (probe, load):
            process.wait_ready()
        for process in (load, probe):
            process.begin()
        found: dict[str, float] = probe.result()
        found["load_operations_per_s"] = load.result()["operations_per_s"]
    return found


def _path() -> str:
    # A server of somebody else may have any other znodes.
    return f"/zkplan-benchmark-{uuid.uuid4().hex[:12]}"
