"""`python -m benchmarks`: run the workloads, print the report, write it as JSON."""

from __future__ import annotations

import os
import sys
import time
from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path

import click
from rich.console import Console

import zkplan
from zkplan.testing.server_process import ServerDidNotStart

from . import machine, servers
from .compare import compare
from .growth import PENDING, growth
from .kills import kills
from .limits import measure_limits
from .peers.comparison import compare_with_peers
from .peers.dask_graphs import compare_dask_graphs
from .peers.peer import interpreter
from .report import Report, show, to_json
from .rows import Row
from .suite import WORKLOADS, Bench

GROWTH, KILLS, SERVER, PEERS = "growth", "kills", "server", "peers"
#: The peers, which are not part of zkplan, are measured only on request.
ALWAYS = [*WORKLOADS, GROWTH, KILLS, SERVER]
NAMES = [*ALWAYS, PEERS]
RUNS = 3
#: The numbers of pending tasks to compare, if they are not the usual ones.
Sizes = tuple[int, int] | None
FAILED, UNREACHABLE, TIMED_OUT = 1, 3, 4


def _chosen(ctx: click.Context, option: click.Parameter, value: str) -> list[str]:
    chosen = [name.strip() for name in value.split(",") if name.strip()]
    unknown = sorted(set(chosen) - set(NAMES))
    if unknown:
        raise click.BadParameter(f"{', '.join(unknown)}: there are {', '.join(NAMES)}")
    return [name for name in NAMES if name in chosen] or ALWAYS


def _sizes(ctx: click.Context, option: click.Parameter, value: str | None) -> Sizes:
    if value is None:
        return None
    sizes = [int(size) if size.strip().isdigit() else 0 for size in value.split(",")]
    if len(sizes) != 2 or not 0 < sizes[0] < sizes[1]:
        raise click.BadParameter(f"{value}: give two numbers, such as 10000,50000")
    return sizes[0], sizes[1]


def _interpreter(ctx: click.Context, option: click.Parameter, value: str) -> str:
    path = interpreter(value)
    if not os.access(path, os.X_OK):
        raise click.BadParameter(f"{path} is not a program: name a virtual environment")
    return path


@click.command()
@click.option("--quick", is_flag=True, help="Small sizes, one run: does it work at all?")
@click.option(
    "--only",
    default="",
    callback=_chosen,
    metavar="NAME,...",
    help=f"Some of {', '.join(NAMES)}; all but the last two first measure the server's limits.  "
    f"[default: all but {PEERS}]",
)
@click.option(
    "--runs",
    type=click.IntRange(min=1),
    help=f"Runs per workload, of which the median counts.  [default: {RUNS}, with --quick 1]",
)
@click.option(
    "--pending",
    callback=_sizes,
    metavar="LEAST,MOST",
    help="The numbers of pending tasks that growth compares; only the default is judged.  "
    f"[default: {','.join(map(str, PENDING))}]",
)
@click.option(
    "--server",
    "wanted",
    type=click.Choice([servers.ZOOKEEPER, servers.EMBEDDED, servers.BOTH]),
    help="Servers to measure.  [default: both; embedded if no ZooKeeper can be started]",
)
@click.option(
    "--hosts",
    help="A real ZooKeeper to measure, by default alone.  [default: one started on loopback]",
)
@click.option(
    "--connect-timeout",
    "connect_timeout_s",
    type=click.FloatRange(min=0, min_open=True),
    default=10.0,
    show_default=True,
    help="Seconds that the first connection may take.",
)
@click.option(
    "--peers-python",
    default=sys.executable,
    metavar="PATH",
    callback=_interpreter,
    help="The environment that has Dask and Ray, or its interpreter.  [default: this one]",
)
@click.option(
    "--json",
    "file",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Write the report with every single run to this file.",
)
def main(
    quick: bool,
    only: list[str],
    runs: int | None,
    pending: Sizes,
    wanted: str | None,
    hosts: str | None,
    connect_timeout_s: float,
    peers_python: str,
    file: Path | None,
) -> None:
    """Measure zkplan's speed, beside the limits of the servers that it runs on.

    Exit codes: 0 measured (the table shows missed targets), 1 a result was wrong or a process
    broke, 3 no ZooKeeper, 4 a plan took too long.
    """
    if hosts and wanted == servers.EMBEDDED:
        raise click.UsageError("--hosts names a real ZooKeeper, so leave out --server embedded")
    began = time.monotonic()
    report = Report(
        started=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        quick=quick,
        runs=runs or (1 if quick else RUNS),
        machine=machine.facts(),
        load_before=machine.load_average(),
    )
    try:
        if hosts:
            # Connect here first, because an error in a measuring process is harder to read.
            zkplan.connect(hosts, connect_timeout=connect_timeout_s).close()
        _measure(servers.names(wanted, hosts), hosts, only, pending, peers_python, report)
    except (zkplan.ZooKeeperUnavailable, ServerDidNotStart, FileNotFoundError) as error:
        _end(str(error), UNREACHABLE)
    except zkplan.WaitTimeout as error:
        _end(str(error), TIMED_OUT)
    except (zkplan.ZkplanError, RuntimeError) as error:
        _end(f"{type(error).__name__}: {error}", FAILED)
    report.load_after = machine.load_average()
    report.seconds = time.monotonic() - began
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(to_json(report))
    show(report, Console())


def _measure(
    names: list[str],
    hosts: str | None,
    workloads: list[str],
    pending: Sizes,
    peers_python: str,
    report: Report,
) -> None:
    """All servers run at once, and take turns in each workload."""
    with ExitStack() as stack:
        found = [stack.enter_context(servers.served(name, hosts)) for name in names]
        report.servers.update({server.name: server.version for server in found})
        benches = [
            Bench(one.name, one.hosts, one.pid, report.runs, report.quick, _tell, pending)
            for one in found
        ]
        on_plans = [workload for workload in workloads if workload not in (SERVER, PEERS)]
        if on_plans:
            report.limits += [limit for bench in benches for limit in measure_limits(bench)]
        for workload in on_plans:
            report.rows += _rows(workload, benches, report)
        if SERVER in workloads:
            report.rows += compare(found, report.runs, report.quick, _tell)
        if PEERS in workloads:
            report.rows += compare_with_peers(benches, peers_python, report.servers)
            report.rows += compare_dask_graphs(benches, peers_python)


def _rows(workload: str, benches: list[Bench], report: Report) -> list[Row]:
    if workload == GROWTH:
        rows, report.growth = growth(benches)
        return rows
    if workload == KILLS:
        return [row for bench in benches for row in kills(bench)]
    return WORKLOADS[workload](benches)


def _tell(line: str) -> None:
    click.echo(line, err=True)


def _end(message: str, code: int) -> None:
    click.echo(message, err=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
