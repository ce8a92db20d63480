"""`zkplan top`: show plans, queues, workers and running tasks, live or as one picture."""

from __future__ import annotations

import shutil
import sys
import time
from datetime import datetime
from typing import Any

import click

from ..basics.settings import Settings
from ..client import Client
from ..views.overview import Overview
from .common import connection_options, open_client, output_option, print_facts


@click.command()
@click.option("--once", is_flag=True, help="Print one picture as text, and end.")
@click.option(
    "--over",
    type=click.FloatRange(0, 3600),
    default=0.0,
    help="With one picture: look again after so many seconds, for the rates between.",
)
@click.option(
    "--interval",
    type=click.FloatRange(0.2, 3600),
    default=2.0,
    help="Seconds between two looks of the live view.",
)
@output_option
@connection_options
def top(once: bool, over: float, interval: float, output: str, settings: Settings) -> None:
    """Show what goes on under the root: plans, queues, workers, what runs since when, what is late.

    A live view until Ctrl-C; with --once or -o json one picture. It never writes. The clock is that
    of this machine.

    RATE/S counts finished tasks over the last 30 seconds. ENDS IN assumes that this rate stays and
    that all unfinished tasks will run; with dead tasks there is none. RUN are the oldest claims of
    each worker, as many as it has slots; the others are claimed AHEAD. FOR is the time since the
    claim: the function began then or later.
    """
    if once or output == "json":
        with open_client(settings) as client:
            seen = _seen(client, over, output)
            place = _place(client)
        if output == "json":
            print_facts(_facts(seen), output)
        else:
            from .top_view import picture

            for line in picture(seen, place, "", *shutil.get_terminal_size()):
                click.echo(line.text.rstrip())
        return
    if not sys.stdout.isatty():
        raise click.UsageError("the live view needs a terminal: give --once, or -o json")
    from .top_view import Live, keep_logs

    last = keep_logs()
    with open_client(settings, needs_root=False) as client:
        Live(client.observer(), client.transport, _place(client), interval, last).run()


def _place(client: Client) -> str:
    return f"{client.root} of {client.transport.hosts}"


def _seen(client: Client, over_s: float, output: str) -> Overview:
    observer = client.observer()
    names = 100
    seen = observer.look(names)
    if over_s:
        time.sleep(over_s)
        seen = observer.look(names)
    return seen


def _facts(seen: Overview) -> dict[str, Any]:
    """All of it for programs: times in ISO 8601, and one object for each plan, worker and task."""

    def at(seconds: float | None) -> str | None:
        if seconds is None:
            return None
        return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="milliseconds")

    plans = [
        plan.status._asdict()
        | plan._asdict()
        | {"status": None, "finished": plan.status.finished, "created": at(plan.status.created)}
        for plan in seen.plans
    ]
    for plan in plans:
        del plan["status"]
    workers = [
        worker.record._asdict()
        | {"running": worker.running, "ahead": worker.ahead, "since": at(worker.since)}
        | {"started": at(worker.record.started)}
        for worker in seen.workers
    ]
    tasks = [
        task.held._asdict() | {"name": task.name, "since": at(task.held.since)}
        for task in seen.tasks
    ]
    late = [each._asdict() for each in seen.late]
    queues = [each._asdict() for each in seen.queues]
    rest: dict[str, Any] = {"plans": plans, "queues": queues, "workers": workers, "tasks": tasks}
    return seen._asdict() | rest | {"when": at(seen.when), "late": late}
