"""`zkplan schedule add|ls|show|next|pause|resume|trigger|rm`: start plans by the clock."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import click

from ..author.functions import function_at
from ..basics.settings import Settings
from ..basics.text import age, date_time
from ..protocol.features.schedules import CATCH_UPS, OVERLAPS, Firing
from ..schedules import Schedule, ScheduleInfo, infos
from .common import (
    connection_options,
    label_of,
    open_client,
    print_facts,
    print_rows,
    report_empty,
    result_options,
)

_COLUMNS = ("name", "cron", "timezone", "next", "paused", "overlap", "catch_up", "last")
_name = click.argument("name", metavar="NAME")


@click.group()
def schedule() -> None:
    """Make a plan each time a cron expression is due. NAME is the name of the schedule. Any worker
    fires the schedule."""


@schedule.command()
@_name
@click.argument("cron")
@click.argument("builder")
@click.option("--args", "arguments", default="[]", help="Arguments of the builder: a JSON array.")
@click.option("--timezone", default="UTC", help="Time zone of the expression.")
@click.option(
    "--overlap",
    type=click.Choice(OVERLAPS),
    default="skip",
    help="If the previous plan has not ended: skip this time, queue the new plan after it, cancel "
    "the previous plan, or allow both.",
)
@click.option(
    "--catch-up",
    type=click.Choice(CATCH_UPS),
    default="latest",
    help="Which due times to make up for, of those that passed while there was no worker.",
)
@click.option("--jitter", type=click.FloatRange(0), default=0.0, help="Seconds of random delay.")
@click.option(
    "--on-failure",
    type=click.Choice(["hold", "cascade"]),
    default="cascade",
    help="What its plans do when a task is out of attempts.",
)
@click.option(
    "--retention", type=click.FloatRange(0), help="Seconds that its plans stay after their end."
)
@result_options
def add(
    name: str,
    cron: str,
    builder: str,
    arguments: str,
    output: str,
    settings: Settings,
    **options: Any,
) -> None:
    """Add a schedule, or change the one with that name.

    CRON is minute, hour, day, month, weekday (or the second before them) in quotes: "30 6 * * *".
    BUILDER is MODULE:FUNCTION. It is imported here, also from the current folder, and by workers.
    """
    sys.path.insert(0, os.getcwd())  # as a worker finds modules
    try:
        function = function_at(builder)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    with open_client(settings, creates=True) as client:
        made = client.schedule(name, cron, function, _array(arguments), **options)
        print_facts(_facts(made.info(), output), output)


def _array(text: str) -> list[Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise click.BadParameter(f"--args is not JSON: {error}") from None
    if not isinstance(found, list):
        raise click.BadParameter("--args is not a JSON array: write it as '[1, 2]'")
    return found


@schedule.command("ls")
@result_options
def list_schedules(output: str, settings: Settings) -> None:
    """List all schedules under the root."""
    with open_client(settings) as client:
        rows = [_facts(each, output, short=True) for each in infos(client)]
        print_rows(rows, output, _COLUMNS)
        if not rows:
            report_empty("schedule", client, settings.hosts)


@schedule.command()
@_name
@result_options
def show(name: str, output: str, settings: Settings) -> None:
    """Show one schedule, and its last due times: the plan of each, and the worker that fired it."""
    with open_client(settings) as client:
        print_facts(_facts(client.find_schedule(name).info(), output), output)


@schedule.command("next")
@_name
@click.option("--count", type=click.IntRange(1, 1000), default=5, help="How many due times.")
@result_options
def next_times(name: str, count: int, output: str, settings: Settings) -> None:
    """List the next due times, in the time zone of the schedule, also of a paused one."""
    with open_client(settings) as client:
        times = client.find_schedule(name).next(count)
        print_rows(({"due": each.isoformat()} for each in times), output, ("due",))


@schedule.command()
@_name
@result_options
def trigger(name: str, output: str, settings: Settings) -> None:
    """Make a plan of a schedule now, whether it is due or not."""
    with open_client(settings) as client:
        made = client.find_schedule(name).trigger()
        facts = {"number": made.number, "path": made.path, "key": made.record.key}
        if output == "json":
            print_facts(facts, output)
        else:
            click.echo(f"{label_of(made)}: triggered")


def _control(name: str, act: Callable[[Schedule], None], help_text: str, done: str) -> None:
    @schedule.command(name, help=help_text)
    @_name
    @connection_options
    def command(name: str, settings: Settings) -> None:
        with open_client(settings) as client:
            act(client.find_schedule(name))
            click.echo(f"{name}: {done}")


_control(
    "pause", Schedule.pause, "Pause a schedule: it makes no plans until it is resumed.", "paused"
)
_control("resume", Schedule.resume, "Resume a schedule with its next due time.", "resumed")
_control("rm", Schedule.remove, "Delete a schedule. Its plans stay, and go on.", "removed")


def _facts(info: ScheduleInfo, output: str, short: bool = False) -> dict[str, Any]:
    facts: dict[str, Any] = info._asdict()
    if info.next is not None and output == "json":
        facts["next"] = info.next.isoformat()
    elif info.next is not None:
        ago = age(time.time() - info.next.timestamp())
        facts["next"] = f"{info.next.isoformat(' ')} ({ago})"
    outcomes = facts.pop("outcomes")
    fired = [
        _firing(each) | {"outcome": outcome}
        for each, outcome in zip(facts.pop("fired"), outcomes, strict=True)
    ]
    if short and output != "json":
        last = _line(fired[-1]) if fired else ""
        return facts | {"last": f"cannot be read here: {info.unread}" if info.unread else last}
    return facts | {"fired": fired if output == "json" else "\n".join(map(_line, fired))}


def _firing(each: Firing) -> dict[str, Any]:
    return {
        "due": date_time(each.due_ms / 1000, people=False),
        "when": date_time(each.when_ms / 1000, people=False),
        "plan": each.plan,
        "worker": each.worker,
        "how": each.how,
    }


def _line(fired: dict[str, Any]) -> str:
    plan = f"plan {int(fired['plan'])} " if fired["plan"] else ""
    outcome = f": {fired['outcome']}" if fired["outcome"] else ""
    return f"{fired['due']}: {plan}{fired['how']} by {fired['worker']}{outcome}"
