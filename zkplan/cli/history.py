"""`zkplan plan history` and `zkplan plan timeline`: what happened to a plan, when, and where."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from datetime import datetime
from typing import Any

import click

from ..history.events import Event
from ..history.reading import follow as follow_events
from ..history.reading import missing, read, read_state, state_at
from ..history.state import PlanState
from ..history.timeline import timeline as drawn
from ..settings import Settings
from ..text import count, date_time
from .common import connection_options, open_client, output_option, print_facts, print_rows
from .durations import seconds
from .terminal import printable

_COLUMNS = (
    "when",
    "kind",
    "task",
    "name",
    "attempt",
    "worker",
    "seconds",
    "size",
    "error",
    "by",
    "detail",
)
_plan = click.argument("plan", metavar="PLAN")


def moment(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """The callback of an option: a date and time, here or with a zone, or a time ago."""
    if value is None:
        return None
    try:
        return datetime.fromisoformat(value).timestamp()
    except ValueError:
        ago = seconds(ctx, param, value)
        return None if ago is None else time.time() - ago


_TIME = "A time ago (90s, 10m, 12h), or a date and time (2026-11-25T03:12, also with a zone)."


@click.command()
@_plan
@click.option("--task", metavar="TASK", help="The events of one task: its number, key or name.")
@click.option("--since", metavar="TIME", callback=moment, help=f"Later events only. {_TIME}")
@click.option("--follow", "-f", is_flag=True, help="Go on until the plan has ended.")
@click.option("--at", metavar="TIME", callback=moment, help=f"What the plan was like then. {_TIME}")
@output_option
@connection_options
def history(
    plan: str,
    task: str | None,
    since: float | None,
    follow: bool,
    at: float | None,
    output: str,
    settings: Settings,
) -> None:
    """Show what happened to a plan: events in the order in which ZooKeeper applied them. With
    --follow and -o json, each event is one line of JSON."""
    if at is not None and (task or since or follow):
        raise click.UsageError("--at shows one moment: leave out --task, --since and --follow")
    with open_client(settings) as client:
        found = client.plan(plan)
        if at is not None:
            print_facts(_facts(state_at(client.transport, found.path, at), at, output), output)
            return
        number = found.task(task).number if task else ""
        if follow:
            for event in _chosen(follow_events(client.transport, found.path), number, since):
                _print_live(event, output)
            return
        events, read_so = read(client.transport, found.path)
        rows = (_row(each, output) for each in _chosen(events, number, since))
        print_rows(rows, output, _COLUMNS)
    for told in missing(read_so):
        click.echo(f"the history is not whole: {told}", err=True)


def _chosen(events: Iterable[Event], number: str, since: float | None) -> Iterator[Event]:
    for event in events:
        if number in ("", event.task) and event.when >= (since or 0.0):
            yield event


def _row(event: Event, output: str) -> dict[str, Any]:
    row = asdict(event)
    if output == "json":
        row["when"] = datetime.fromtimestamp(event.when).astimezone().isoformat()
        return {name: value for name, value in row.items() if value not in ("", None)}
    row["when"] = _clock(event.when)
    row["task"] = int(event.task) if event.task else ""
    row["by"] = "" if event.by == event.worker else event.by
    return row


def _clock(when: float) -> str:
    return datetime.fromtimestamp(when).isoformat(" ", "milliseconds")


def _print_live(event: Event, output: str) -> None:
    row = _row(event, output)
    if output == "json":
        click.echo(json.dumps(row, default=str))
    else:
        told = [str(row[name]) for name in _COLUMNS if row[name] not in ("", None)]
        click.echo(printable("  ".join(told)).replace("\n", " "))
    sys.stdout.flush()


def _facts(state: PlanState, at: float, output: str) -> dict[str, Any]:
    """What the plan was like: its state, its tasks counted by state, and what ran."""
    counts = Counter(task.state for task in state.tasks.values() if task.added_ms)
    running = [task for task in state.tasks.values() if task.place == "c"]
    facts: dict[str, Any] = {
        "at": date_time(at, output != "json"),
        "state": "done" if state.done else state.state,
        "tasks": dict(sorted(counts.items())),
    }
    if output == "json":
        facts["claimed"] = [
            {"task": task.number, "name": task.name, "worker": task.worker} for task in running
        ]
        return facts
    facts["tasks"] = ", ".join(f"{n:,} {name}" for name, n in sorted(counts.items())) or "none"
    shown = [f"{task.name} (task {task.number}) by {task.worker}" for task in running[:20]]
    if len(running) > len(shown):
        shown.append(f"and {count(len(running) - len(shown), 'task')} more")
    facts["claimed"] = "\n".join(shown)
    return facts


@click.command()
@_plan
@click.option("--width", type=click.IntRange(60, 400), help="Columns; by default the terminal's.")
@connection_options
def timeline(plan: str, width: int | None, settings: Settings) -> None:
    """Draw who ran what when: each task, or the tasks of each name where they are many; the
    workers; and the critical path: what the end waited for."""
    with open_client(settings) as client:
        found = client.plan(plan)
        state, read_so = read_state(client.transport, found.path)
    columns = width or min(160, shutil.get_terminal_size((100, 24)).columns)
    for line in drawn(state, columns):
        text = printable(line.text)
        click.echo(click.style(text, fg="red", bold=True) if line.fails else text)
    for told in missing(read_so):
        click.echo(f"the history is not whole: {told}", err=True)
