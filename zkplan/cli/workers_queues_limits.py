"""`zkplan worker ls|drain|pause|resume`, `zkplan queue` and `zkplan limit`: who works, on which
queues, within which limits."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import click

from ..author.operator_actions import find_worker, order_worker, wait_until_gone, workers_of
from ..basics.settings import Settings
from ..basics.text import count, date_time, duration
from ..protocol.core.workers import WorkerRecord, WorkerState
from ..protocol.features.limits import PERIODS_S, SIZE_MAX, LimitStatus, Per
from ..views.find_tasks import task_names
from ..views.queues import QueueStatus
from ..views.workers import RUNNING, Held, held_tasks
from .common import connection_options, open_client, output_option, print_rows, tell_none

#: How many tasks of each worker a table names.
_NAMED = 3
_SAID = tuple(name for name in WorkerRecord._fields if name not in ("abandoned", "format"))
_COLUMNS_LISTED = (*_SAID, "format", "busy", "abandoned", "ahead", "since", "runs")


@click.command("ls")
@output_option
@connection_options
def list_workers(output: str, settings: Settings) -> None:
    """List the living workers, and what each runs: PLAN/TASK, its name, and for how long.

    The tree has no record of what runs: the oldest claims of a worker count, as many as it has
    slots (`busy`). The others are claimed `ahead`. `abandoned` functions were given up, because
    they timed out or were cancelled, and still hold a thread each. A worker runs plans of its
    `format` alone. `since` is when it claimed the
    task that it holds longest; the function began then or later.
    """
    people = output != "json"
    with open_client(settings) as client:
        found = client.transport.run(held_tasks(client.paths))
        running = [held for held in found.claims if held.state == RUNNING]
        by_worker: dict[str, list[Held]] = {}
        for held in running:
            by_worker.setdefault(held.worker, []).append(held)
        shown = [
            each for mine in by_worker.values() for each in (mine[:_NAMED] if people else mine)
        ]
        names = task_names(client, [(held.plan, held.task) for held in shown])
        rows = []
        for worker in found.workers:
            mine = by_worker.get(worker.id, [])
            row = worker._asdict() | {"busy": worker.busy, "ahead": worker.claims - len(mine)}
            row["started"] = date_time(worker.started, people)
            row["since"] = date_time(mine[0].since, people) if mine else None
            if people:
                row["queues"] = ", ".join(worker.queues)
                row["runs"] = _told(mine, names)
            else:
                row["runs"] = [_facts(held, names) for held in mine]
            rows.append(row)
        print_rows(rows, output, _COLUMNS_LISTED)
        if not rows:
            tell_none("worker", client, settings.hosts)


_Names = dict[tuple[str, str], str | None]


def _told(mine: list[Held], names: _Names) -> str:
    told = [
        f"{int(held.plan)}/{int(held.task)} {names.get((held.plan, held.task)) or '?'} "
        f"{duration(max(0.0, time.time() - held.since))}"
        for held in mine[:_NAMED]
    ]
    more = len(mine) - _NAMED
    return "; ".join(told) + (f"; … {more} more" if more > 0 else "")


def _facts(held: Held, names: _Names) -> dict[str, Any]:
    name = names.get((held.plan, held.task))
    since = date_time(held.since, people=False)
    return {"plan": held.plan, "number": held.task, "name": name, "since": since}


# ---- `zkplan worker drain|pause|resume`: tell workers from another machine.


_COLUMNS_ORDERED = ("id", "host", "told", "tasks")


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
            order_worker(client, each.id, state)
    rows = ({"id": w.id, "host": w.host, "told": state, "tasks": w.claims} for w in found)
    print_rows(rows, output, _COLUMNS_ORDERED)
    return found


# ---- `zkplan queue ls`: the queues under a root, what waits in each, and who serves it.


@click.group()
def queue() -> None:
    """Look at queues. Tasks and plans name them, and `zkplan worker --queue NAME` serves them."""


@queue.command("ls")
@output_option
@connection_options
def list_queues(output: str, settings: Settings) -> None:
    """List the queues: waiting, runnable and running tasks of active plans, and the workers.

    `oldest` is how many seconds the oldest runnable task of the queue has stood there.
    """
    with open_client(settings) as client:
        rows = []
        for found in client.queues():
            row = found._asdict()
            if output != "json":
                row["workers"] = len(found.workers)
                row["oldest"] = "" if found.oldest is None else f"{found.oldest:.1f} s"
            rows.append(row)
        print_rows(rows, output, QueueStatus._fields)


# ---- `zkplan limit set|ls|rm`: how many tasks that name a limit run at the same time, and which
# do.


@click.group()
def limit() -> None:
    """Limit how many tasks run at the same time. Tasks and plans name limits."""


@limit.command("set")
@click.argument("name")
@click.argument("size", type=click.IntRange(0, SIZE_MAX))
@click.option("--per", type=click.Choice(list(PERIODS_S)), help="SIZE tasks start within that time")
@connection_options
def set_limit(name: str, size: int, per: Per | None, settings: Settings) -> None:
    """Make the limit NAME, or change its size. A lower size stops no task that runs."""
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
@output_option
@connection_options
def list_limits(output: str, settings: Settings) -> None:
    """List the limits, each with its size and the permits that are held: by which task, since when.

    The limit of a plan itself (`max_running`) is called plan-NUMBER.
    """
    with open_client(settings) as client:
        rows = []
        for found in client.limits():
            held = [
                permit._asdict() | {"since": date_time(permit.since, output != "json")}
                for permit in found.held
            ]
            row = found._asdict() | {"held": held}
            if output != "json":
                told = [
                    f"task {int(each.task or 0)} of plan {int(each.plan or 0)} on {each.worker} "
                    f"since {date_time(each.since, True)}"
                    for each in found.held
                    if each.task.isdecimal() and each.plan.isdecimal()
                ]
                row |= {"held": len(held), "by": "; ".join(told)}
                if found.unread:
                    row["size"] = f"unknown: {found.unread}"
            rows.append(row)
        columns = (
            LimitStatus._fields if output == "json" else ("name", "size", "held", "period", "by")
        )
        print_rows(rows, output, columns)
