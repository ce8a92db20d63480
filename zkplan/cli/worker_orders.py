"""`zkplan worker drain|pause|resume`: tell workers from another machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from ..basics.text import count
from ..controls.orders import find_worker, tell_worker, wait_until_gone, workers_of
from ..protocol.worker_record import WorkerRecord, WorkerState
from ..settings import Settings
from .common import connection_options, open_client, output_option, print_rows

_COLUMNS = ("id", "host", "told", "tasks")


def _which(function: Callable[..., Any]) -> Callable[..., Any]:
    named = click.argument("worker", metavar="ID", required=False)
    host = click.option("--host", metavar="HOST", help="All workers on this host instead of one.")
    return named(host(output_option(connection_options(function))))


@click.command()
@_which
@click.option("--wait", is_flag=True, help="Wait until they have signed off.")
@click.option(
    "--timeout",
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="Wait this long at most, then exit with code 4.",
)
def drain(
    worker: str | None,
    host: str | None,
    wait: bool,
    timeout: float | None,
    output: str,
    settings: Settings,
) -> None:
    """Have a worker finish what it runs, hand back the rest, and end with exit code 0.

    ID is its ID in `zkplan worker ls`, or the beginning of it. Running tasks have as long as they
    take. Its supervisor (`--processes`) does not replace it, and ends with the last one.
    """
    told = _tell(worker, host, "draining", output, settings)
    if wait or timeout is not None:
        last = (0, 0)

        def tell(workers: int, tasks: int) -> None:
            nonlocal last
            if (workers, tasks) != last:
                last = workers, tasks
                many = f"{count(workers, 'worker')}, {count(tasks, 'task')}"
                click.echo(f"draining: {many} left", err=True)

        with open_client(settings) as client:
            wait_until_gone(client, [each.id for each in told], timeout, tell)


@click.command()
@_which
def pause(worker: str | None, host: str | None, output: str, settings: Settings) -> None:
    """Have a worker claim nothing more until it is resumed. What it runs goes on."""
    _tell(worker, host, "paused", output, settings)


@click.command()
@_which
def resume(worker: str | None, host: str | None, output: str, settings: Settings) -> None:
    """Let a paused worker claim again."""
    _tell(worker, host, "running", output, settings)


def _tell(
    worker: str | None, host: str | None, state: WorkerState, output: str, settings: Settings
) -> list[WorkerRecord]:
    if (worker is None) == (host is None):
        raise click.UsageError("give either the ID of a worker or --host HOST")
    with open_client(settings) as client:
        found = workers_of(client, host) if host else [find_worker(client, worker or "")]
        for each in found:
            tell_worker(client, each.id, state)
    rows = ({"id": w.id, "host": w.host, "told": state, "tasks": w.claims} for w in found)
    print_rows(rows, output, _COLUMNS)
    return found
