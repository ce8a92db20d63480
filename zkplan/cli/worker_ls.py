"""`zkplan worker ls`: the living workers, what each runs since when, and holds ahead."""

from __future__ import annotations

import time
from typing import Any

import click

from ..basics.text import date_time, duration
from ..inspection.across import task_names
from ..inspection.held import RUNNING, Held, held_tasks
from ..protocol.worker_record import WorkerRecord
from ..settings import Settings
from .common import connection_options, open_client, output_option, print_rows, tell_none

#: How many tasks of each worker a table names.
_NAMED = 3
_SAID = tuple(name for name in WorkerRecord._fields if name not in ("abandoned", "format"))
_COLUMNS = (*_SAID, "format", "busy", "abandoned", "ahead", "since", "runs")


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
        print_rows(rows, output, _COLUMNS)
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
