"""`zkplan top`: show plans, queues, workers and running tasks, live or once."""

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
from .common import open_client, print_facts, result_options


@click.command()
@click.option("--once", is_flag=True, help="Print the view once, and end.")
@click.option(
    "--over",
    type=click.FloatRange(0, 3600),
    default=0.0,
    help="With --once: seconds between two looks, from which the rates are computed.",
)
@click.option(
    "--interval",
    type=click.FloatRange(0.2, 3600),
    default=2.0,
    help="Seconds between two looks of the live view.",
)
@result_options
def top(once: bool, over: float, interval: float, output: str, settings: Settings) -> None:
    """Show what goes on under the root: plans, queues, workers, running tasks, and what is late.

    The view is live until Ctrl-C; with --once or -o json it is printed once. The command never
    writes to ZooKeeper. Times are by the clock of this machine.

    RATE/S counts finished tasks over the last 30 seconds. ENDS IN assumes that this rate stays and
    that all unfinished tasks will run; it is empty for a plan with dead tasks. RUN counts the
    oldest claims of each worker, as many as it has slots, and AHEAD the others. FOR is the time
    since the claim: the function began then or later.
    """
    if once or output == "json":
        with open_client(settings) as client:
            observer = client.observer()
            seen = observer.look(_NAMES)
            if over:
                time.sleep(over)
                seen = observer.look(_NAMES)
        if output == "json":
            print_facts(_facts(seen), output)
            return
        from .top_view import picture

        for line in picture(seen, _place(client), "", *shutil.get_terminal_size()):
            click.echo(line.text.rstrip())
        return
    if not sys.stdout.isatty():
        raise click.UsageError("the live view needs a terminal: give --once, or -o json")
    from .top_view import Live, keep_logs

    last = keep_logs()
    with open_client(settings, needs_root=False) as client:
        Live(client.observer(), client.transport, _place(client), interval, last).run()


#: How many running tasks get their names.
_NAMES = 100


def _place(client: Client) -> str:
    return f"{client.root} of {client.transport.hosts}"


def _facts(seen: Overview) -> dict[str, Any]:
    """Return the overview for programs: times in ISO 8601, an object per plan, worker and task."""

    def at(seconds: float | None) -> str | None:
        if seconds is None:
            return None
        return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="milliseconds")

    plans = [
        plan.status._asdict()
        | {name: value for name, value in plan._asdict().items() if name != "status"}
        | {"finished": plan.status.finished, "created": at(plan.status.created)}
        for plan in seen.plans
    ]
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
    return seen._asdict() | {
        "when": at(seen.when),
        "plans": plans,
        "queues": [each._asdict() for each in seen.queues],
        "workers": workers,
        "tasks": tasks,
        "late": [each._asdict() for each in seen.late],
    }
