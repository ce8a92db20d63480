"""`python -m benchmarks`: run the workloads, print the report, write it as JSON."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path

import click
from rich.console import Console

import zkplan
from zkplan.testing.loopback import server_version
from zkplan.testing.servers import ServerDidNotStart, ZooKeeperServer

from . import machine
from .growth import growth
from .limits import measure_limits
from .report import Report, show, to_json
from .suite import WORKLOADS, Bench

GROWTH = "growth"
RUNS = 3
FAILED, UNREACHABLE, TIMED_OUT = 1, 3, 4


def _chosen(ctx: click.Context, option: click.Parameter, value: str) -> list[str]:
    names = [*WORKLOADS, GROWTH]
    chosen = [name.strip() for name in value.split(",") if name.strip()]
    unknown = sorted(set(chosen) - set(names))
    if unknown:
        raise click.BadParameter(f"{', '.join(unknown)}: there are {', '.join(names)}")
    return [name for name in names if name in chosen] or names


@click.command()
@click.option("--quick", is_flag=True, help="Small sizes, one run: does it work at all?")
@click.option(
    "--only",
    default="",
    callback=_chosen,
    metavar="NAME,...",
    help=f"Of {', '.join([*WORKLOADS, GROWTH])}; the server's limits are always measured.",
)
@click.option(
    "--runs",
    type=click.IntRange(min=1),
    help=f"Runs per workload, of which the median counts.  [default: {RUNS}, with --quick 1]",
)
@click.option("--hosts", help="ZooKeeper to use; without it one is started on loopback.")
@click.option(
    "--connect-timeout",
    "connect_timeout_s",
    type=click.FloatRange(min=0, min_open=True),
    default=10.0,
    show_default=True,
    help="Seconds that the first connection may take.",
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
    hosts: str | None,
    connect_timeout_s: float,
    file: Path | None,
) -> None:
    """Measure zkplan's speed, beside the limits of the server that it runs on.

    Exit codes: 0 measured (targets met or not: the table tells), 1 a result was wrong or a process
    broke, 3 no ZooKeeper, 4 a plan took too long.
    """
    began = time.monotonic()
    report = Report(
        started=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        quick=quick,
        runs=runs or (1 if quick else RUNS),
        machine=machine.facts(),
        zookeeper="",
        load_before=machine.load_average(),
    )
    try:
        with _zookeeper(hosts) as (found, server):
            # Here and not in a process of a measurement, whose error would be harder to read.
            zkplan.connect(found, connect_timeout=connect_timeout_s).close()
            report.zookeeper = server_version(found)
            bench = Bench(
                found, server, report.runs, quick, lambda line: click.echo(line, err=True)
            )
            _measure(bench, only, report)
    except (zkplan.KeeperUnavailable, ServerDidNotStart, FileNotFoundError) as error:
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


def _measure(bench: Bench, names: list[str], report: Report) -> None:
    report.limits = measure_limits(bench)
    for name in names:
        if name == GROWTH:
            rows, report.growth = growth(bench)
        else:
            rows = WORKLOADS[name](bench)
        report.rows += rows


@contextmanager
def _zookeeper(hosts: str | None) -> Iterator[tuple[str, int | None]]:
    """Hosts and process id of the one that is given, or of our own for the length of the block."""
    if hosts:
        yield hosts, None
        return
    with ZooKeeperServer(heap="1g") as server:
        yield server.hosts, server.pid


def _end(message: str, code: int) -> None:
    click.echo(message, err=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
