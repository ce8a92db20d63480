"""`zkplan worker ls|drain|pause|resume`, `zkplan queue` and `zkplan limit`."""

from __future__ import annotations

import time
from typing import Any

import click

from ..author.operator_actions import find_worker, order_worker, wait_until_gone, workers_of
from ..basics.settings import Settings
from ..basics.text import count, date_time, duration
from ..protocol.core.workers import WorkerRecord, WorkerState
from ..protocol.features.limits import PERIODS_S, SIZE_MAX, LimitStatus, Per
from ..views.queues import QueueStatus
from ..views.unfinished import task_names
from ..views.workers import RUNNING, Held, held_tasks
from .common import (
    F,
    connection_options,
    open_client,
    print_rows,
    report_empty,
    result_options,
    with_dates,
)

#: How many tasks of each worker a table names.
_NAMED = 3
_RECORD = tuple(name for name in WorkerRecord._fields if name not in ("abandoned", "format"))
_COLUMNS_LISTED = (*_RECORD, "format", "busy", "abandoned", "ahead", "since", "runs")


@click.command("ls")
@result_options
def list_workers(output: str, settings: Settings) -> None:
    """List the living workers, and what each runs: PLAN/TASK, its name, and for how long.

    The tree does not record what runs: the oldest claims of a worker, as many as it has slots,
    count as running (`busy`), the others as claimed `ahead`. `abandoned` functions timed out or
    were cancelled, and still hold a thread each. A worker runs only plans of its `format`. `since`
    is when it claimed the oldest task that it runs; the function began then or later.
    """
    with open_client(settings) as client:
        found = client.transport.run(held_tasks(client.paths))
        by_worker: dict[str, list[Held]] = {worker.id: [] for worker in found.workers}
        for held in found.claims:
            if held.state == RUNNING:
                by_worker.setdefault(held.worker, []).append(held)
        most = None if output == "json" else _NAMED
        listed = [held for running in by_worker.values() for held in running[:most]]
        names = task_names(client, [(held.plan, held.task) for held in listed])
        rows = [_row(worker, by_worker[worker.id], names, output) for worker in found.workers]
        print_rows(rows, output, _COLUMNS_LISTED)
        if not rows:
            report_empty("worker", client, settings.hosts)


_Names = dict[tuple[str, str], str | None]


def _row(worker: WorkerRecord, running: list[Held], names: _Names, output: str) -> dict[str, Any]:
    row = worker._asdict() | {"busy": worker.busy, "ahead": worker.claims - len(running)}
    row["since"] = running[0].since if running else None
    if output == "json":
        row["runs"] = [
            {
                "plan": held.plan,
                "number": held.task,
                "name": names.get((held.plan, held.task)),
                "since": date_time(held.since, people=False),
            }
            for held in running
        ]
    else:
        row["queues"] = ", ".join(worker.queues)
        named = [
            f"{int(held.plan)}/{int(held.task)} {names.get((held.plan, held.task)) or '?'} "
            f"{duration(max(0.0, time.time() - held.since))}"
            for held in running[:_NAMED]
        ]
        more = [f"… {len(running) - _NAMED} more"] if len(running) > _NAMED else []
        row["runs"] = "; ".join(named + more)
    return with_dates(row, output, "started", "since")


# ---- `zkplan worker drain|pause|resume`: control workers from another machine.


_COLUMNS_ORDERED = ("id", "host", "told", "tasks")


def _which(function: F) -> F:
    named = click.argument("worker", metavar="ID", required=False)
    host = click.option("--host", metavar="HOST", help="All workers on this host instead of one.")
    return named(host(result_options(function)))


@click.command()
@_which
@click.option("--wait", is_flag=True, help="Wait until the workers have signed off.")
@click.option(
    "--timeout",
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="Wait for at most this long, then exit with code 4.",
)
def drain(
    worker: str | None,
    host: str | None,
    wait: bool,
    timeout: float | None,
    output: str,
    settings: Settings,
) -> None:
    """Have a worker finish its running tasks, hand back the rest, and end with exit code 0.

    ID is its ID in `zkplan worker ls`, or the beginning of that ID. Running tasks have no time
    limit. A supervisor (`--processes`) does not replace the worker, and ends with its last worker.
    """
    drained = _order(worker, host, "draining", output, settings)
    if wait or timeout is not None:
        last = ""

        def show(workers: int, tasks: int) -> None:
            nonlocal last
            left = f"{count(workers, 'worker')}, {count(tasks, 'task')}"
            if left != last:
                click.echo(f"draining: {left} left", err=True)
            last = left

        with open_client(settings) as client:
            wait_until_gone(client, [each.id for each in drained], timeout, show)


@click.command()
@_which
def pause(worker: str | None, host: str | None, output: str, settings: Settings) -> None:
    """Have a worker claim nothing more until it is resumed. Its running tasks go on."""
    _order(worker, host, "paused", output, settings)


@click.command()
@_which
def resume(worker: str | None, host: str | None, output: str, settings: Settings) -> None:
    """Let a paused worker claim again."""
    _order(worker, host, "running", output, settings)


def _order(
    worker: str | None, host: str | None, state: WorkerState, output: str, settings: Settings
) -> list[WorkerRecord]:
    if (worker is None) == (host is None):
        raise click.UsageError("give either the ID of a worker or --host HOST")
    with open_client(settings) as client:
        found = workers_of(client, host) if host else [find_worker(client, worker or "")]
        for each in found:
            order_worker(client, each.id, state)
    rows = ({"id": w.id, "host": w.host, "told": state, "tasks": w.claims} for w in found)
    print_rows(rows, output, _COLUMNS_ORDERED)
    return found


# ---- `zkplan queue ls`


@click.group()
def queue() -> None:
    """Look at queues. Tasks and plans name them, and `zkplan worker --queue NAME` serves them."""


@queue.command("ls")
@result_options
def list_queues(output: str, settings: Settings) -> None:
    """List the queues: waiting, runnable and running tasks of active plans, and the workers.

    `oldest` is how many seconds the oldest runnable task of the queue has been waiting there.
    """
    with open_client(settings) as client:
        rows = [found._asdict() for found in client.queues()]
        for row in rows if output != "json" else ():
            row["workers"] = len(row["workers"])
            row["oldest"] = "" if row["oldest"] is None else f"{row['oldest']:.1f} s"
        print_rows(rows, output, QueueStatus._fields)


# ---- `zkplan limit set|ls|rm`


@click.group()
def limit() -> None:
    """Limit how many tasks run at the same time. Tasks and plans name limits."""


@limit.command("set")
@click.argument("name")
@click.argument("size", type=click.IntRange(0, SIZE_MAX))
@click.option(
    "--per", type=click.Choice(list(PERIODS_S)), help="At most SIZE tasks start within this time."
)
@connection_options
def set_limit(name: str, size: int, per: Per | None, settings: Settings) -> None:
    """Create the limit NAME, or change its size. A lower size stops no running task."""
    with open_client(settings, creates=True) as client:
        client.set_limit(name, size, per=per)
        when = "run at the same time" if per is None else f"start within a {per}"
        click.echo(f"at most {size} tasks with the limit {name} {when}", err=True)


@limit.command("rm")
@click.argument("name")
@connection_options
def remove_limit(name: str, settings: Settings) -> None:
    """Remove a limit. Tasks that name it wait until it is set again."""
    with open_client(settings) as client:
        existed = client.remove_limit(name)
        click.echo(f"the limit {name} {'is removed' if existed else 'did not exist'}", err=True)


@limit.command("ls")
@result_options
def list_limits(output: str, settings: Settings) -> None:
    """List the limits, each with its size and the permits that are held: by which task, since when.

    The limit of a plan itself (`max_running`) is called plan-NUMBER.
    """
    people = output != "json"
    with open_client(settings) as client:
        rows = []
        for found in client.limits():
            held = [with_dates(permit._asdict(), output, "since") for permit in found.held]
            row = found._asdict() | {"held": held}
            if people:
                holders = [
                    f"task {int(each.task)} of plan {int(each.plan)} on {each.worker} since "
                    f"{date_time(each.since, people)}"
                    for each in found.held
                    if each.task.isdecimal() and each.plan.isdecimal()
                ]
                row |= {"held": len(held), "by": "; ".join(holders)}
                if found.unread:
                    row["size"] = f"unknown: {found.unread}"
            rows.append(row)
        columns = ("name", "size", "held", "period", "by") if people else LimitStatus._fields
        print_rows(rows, output, columns)
