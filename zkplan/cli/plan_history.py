"""`zkplan plan history` and `zkplan plan timeline`: what happened to a plan, when and where."""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from dataclasses import asdict
from datetime import datetime
from typing import Any, NamedTuple

import click

from ..basics.settings import Settings
from ..basics.text import count, date_time, one_line, printable
from ..client import Client
from ..protocol.core.plans_and_queues import refuse_hidden
from ..protocol.layout import number_of
from ..views.ended_tasks import plan_names
from ..views.history import EVENT_KINDS, Event, missing, read, read_state, state_at
from ..views.history import follow as follow_events
from ..views.history_search import Across, events_across
from ..views.history_state import PlanState
from ..views.timeline import timeline as drawn
from . import spare_a_reader
from .common import (
    MOMENT,
    connection_options,
    moment,
    open_client,
    plan_argument,
    print_facts,
    print_rows,
    report_gaps,
    result_options,
)

_COLUMNS = (
    *("when", "kind", "task", "name", "attempt", "worker"),
    *("seconds", "size", "error", "by", "detail"),
)


@click.command()
@click.argument("plan", metavar="[PLAN]", required=False)
@click.option("--all-plans", is_flag=True, help="The events of all plans under the root.")
@click.option("--task", metavar="TASK", help="The events of one task: its number, key or name.")
@click.option(
    "--kind",
    "kinds",
    metavar="KIND",
    multiple=True,
    type=click.Choice(sorted(EVENT_KINDS)),
    help="Only events of this kind, such as 'dead'. Repeat the option for others.",
)
@click.option("--since", metavar="TIME", callback=moment, help=f"Only later events. {MOMENT}")
@click.option("--follow", "-f", is_flag=True, help="Go on until the plan has ended.")
@click.option(
    "--at", metavar="TIME", callback=moment, help=f"Show the plan's state at TIME. {MOMENT}"
)
@result_options
def history(
    plan: str | None,
    all_plans: bool,
    task: str | None,
    kinds: tuple[str, ...],
    since: float | None,
    follow: bool,
    at: float | None,
    output: str,
    settings: Settings,
) -> None:
    """List the events of a plan, in the order in which ZooKeeper applied them; with --all-plans
    the events of all plans, by server time. With --follow and -o json, each event is one line of
    JSON."""
    if all_plans == (plan is not None):
        raise click.UsageError("give a PLAN, or --all-plans")
    if at is not None and (task or since or follow or kinds or all_plans):
        raise click.UsageError(
            "--at shows one moment of one PLAN: leave out --task, --kind, --since and --follow"
        )
    if all_plans and (task or follow):
        raise click.UsageError("--task and --follow need one PLAN")
    with open_client(settings) as client:
        if plan is None:
            _show_all(client, kinds, since or 0.0, output)
            return
        found = client.plan(plan)
        if at is not None:
            print_facts(_facts(state_at(client.values, found.path, at), at, output), output)
            return
        wanted = _Wanted(found.task(task).number if task else "", kinds, since or 0.0)
        if follow:
            for event in filter(wanted.takes, follow_events(client.values, found.path)):
                _print_live(event, output)
            return
        events, history = read(client.values, found.path)
        rows = (_row(each, output) for each in filter(wanted.takes, events))
        print_rows(rows, output, _COLUMNS)
    report_gaps(missing(history))


class _Wanted(NamedTuple):
    """The filter of events."""

    number: str
    kinds: tuple[str, ...]
    since: float

    def takes(self, event: Event) -> bool:
        if self.number not in ("", event.task) or event.when < self.since:
            return False
        return not self.kinds or event.kind in self.kinds


def _show_all(client: Client, kinds: tuple[str, ...], since: float, output: str) -> None:
    spare_a_reader()
    names = plan_names(client)
    across = Across(client.values, list(names), since)
    found = sorted(events_across(across, kinds, since), key=lambda each: each[1].when)
    rows = (
        {"plan": number_of(path), "plan_name": names[path], **_row(event, output)}
        for path, event in found
    )
    print_rows(rows, output, ("plan", "plan_name", *_COLUMNS))
    for gap in across.gaps:
        click.echo(gap, err=True)
    # Raise for hidden plans last, after the readable ones are listed.
    client.transport.run(refuse_hidden(client.paths))


def _row(event: Event, output: str) -> dict[str, Any]:
    row = asdict(event)
    if output == "json":
        row["when"] = datetime.fromtimestamp(event.when).astimezone().isoformat()
        return {name: value for name, value in row.items() if value not in ("", None)}
    row["when"] = datetime.fromtimestamp(event.when).isoformat(" ", "milliseconds")
    row["task"] = int(event.task) if event.task else ""
    row["attempt"] = None if event.attempt is None else event.attempt + 1
    row["by"] = "" if event.by == event.worker else event.by
    return row


def _print_live(event: Event, output: str) -> None:
    row = _row(event, output)
    if output == "json":
        click.echo(json.dumps(row, default=str))
    else:
        cells = [str(row[name]) for name in _COLUMNS if row[name] not in ("", None)]
        click.echo(one_line("  ".join(cells)))
    sys.stdout.flush()


def _facts(state: PlanState, at: float, output: str) -> dict[str, Any]:
    """Return the state of the plan, how many tasks it had in each state, and what ran."""
    counts = Counter(task.state for task in state.tasks.values() if task.added_ms)
    running = [task for task in state.tasks.values() if task.place == "c"]
    facts: dict[str, Any] = {
        "at": date_time(at, output != "json"),
        "state": state.end or state.state,
        "tasks": dict(sorted(counts.items())),
    }
    if output == "json":
        facts["running"] = [
            {"task": task.number, "name": task.name, "worker": task.worker} for task in running
        ]
        return facts
    facts["tasks"] = ", ".join(f"{n:,} {name}" for name, n in sorted(counts.items())) or "none"
    shown = [f"{task.name} (task {task.number}) by {task.worker}" for task in running[:20]]
    if len(running) > len(shown):
        shown.append(f"and {count(len(running) - len(shown), 'task')} more")
    facts["running"] = "\n".join(shown)
    return facts


@click.command()
@plan_argument
@click.option(
    "--width", type=click.IntRange(60, 400), help="Columns. By default those of the terminal."
)
@connection_options
def timeline(plan: str, width: int | None, settings: Settings) -> None:
    """Draw when each worker ran each task, and the critical path: the tasks that the end waited
    for. If there are many tasks, tasks with the same name share a line."""
    with open_client(settings) as client:
        found = client.plan(plan)
        state, history = read_state(client.values, found.path)
    columns = width or min(160, shutil.get_terminal_size((100, 24)).columns)
    for line in drawn(state, columns):
        text = printable(line.text)
        click.echo(click.style(text, fg="red", bold=True) if line.fails else text)
    report_gaps(missing(history))
