"""`zkplan schedule add|ls|show|next|pause|resume|trigger|rm`: start plans by the clock."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import click

from ..author.functions import function_at
from ..basics.settings import Settings
from ..basics.text import age, date_time
from ..protocol.features.schedules import CATCH_UPS, OVERLAPS, Firing
from ..schedules import ScheduleInfo, infos
from .common import (
    connection_options,
    label_of,
    open_client,
    output_option,
    print_facts,
    print_rows,
    tell_none,
)

_COLUMNS = ("name", "cron", "timezone", "next", "paused", "overlap", "catch_up", "last")
_name = click.argument("name", metavar="NAME")


@click.group()
def schedule() -> None:
    """Make a plan each time that a cron expression is due. NAME is that of the schedule. Any worker
    fires it."""


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
    help="If the plan before has not ended: skip this time, queue it behind that plan, cancel that "
    "plan, or allow both.",
)
@click.option(
    "--catch-up",
    type=click.Choice(CATCH_UPS),
    default="latest",
    help="Which times to make up for that came while no worker was there.",
)
@click.option("--jitter", type=click.FloatRange(0), default=0.0, help="Seconds of random delay.")
@click.option(
    "--on-failure",
    type=click.Choice(["hold", "cascade"]),
    default="cascade",
    help="What follows when a task of its plans is out of attempts.",
)
@click.option(
    "--retention", type=click.FloatRange(0), help="Seconds that its plans stay after their end."
)
@output_option
@connection_options
def add(
    name: str,
    cron: str,
    builder: str,
    arguments: str,
    output: str,
    settings: Settings,
    **options: Any,
) -> None:
    """Add a schedule, or change the one of that name.

    CRON is minute, hour, day, month, weekday (or the second before them) in quotes: "30 6 * * *".
    BUILDER is MODULE:FUNCTION. It is imported here, also from the current folder, and by workers.
    """
    function = _imported(builder)
    with open_client(settings, creates=True) as client:
        made = client.schedule(name, cron, function, _array(arguments), **options)
        print_facts(_facts(made.info(), output), output)


def _imported(path: str) -> Callable[..., Any]:
    sys.path.insert(0, os.getcwd())  # as a worker finds modules
    try:
        return function_at(path)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _array(text: str) -> list[Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise click.BadParameter(f"--args is no JSON: {error}") from None
    if not isinstance(found, list):
        raise click.BadParameter("--args is no JSON array: write it as '[1, 2]'")
    return found


@schedule.command("ls")
@output_option
@connection_options
def list_schedules(output: str, settings: Settings) -> None:
    """List all schedules under the root."""
    with open_client(settings) as client:
        rows = [_facts(each, output, short=True) for each in infos(client)]
        print_rows(rows, output, _COLUMNS)
        if not rows:
            tell_none("schedule", client, settings.hosts)


@schedule.command()
@_name
@output_option
@connection_options
def show(name: str, output: str, settings: Settings) -> None:
    """Show one schedule, and what became of its last due times: which plan, and who fired it."""
    with open_client(settings) as client:
        print_facts(_facts(client.find_schedule(name).info(), output), output)


@schedule.command("next")
@_name
@click.option("--count", type=click.IntRange(1, 1000), default=5, help="How many due times.")
@output_option
@connection_options
def next_times(name: str, count: int, output: str, settings: Settings) -> None:
    """List the next due times, in the time zone of the schedule, also of a paused one."""
    with open_client(settings) as client:
        times = client.find_schedule(name).next(count)
        print_rows(({"due": each.isoformat()} for each in times), output, ("due",))


@schedule.command()
@_name
@connection_options
def pause(name: str, settings: Settings) -> None:
    """Make no plans of a schedule until it is resumed."""
    with open_client(settings) as client:
        client.find_schedule(name).pause()
        click.echo(f"{name}: paused")


@schedule.command()
@_name
@connection_options
def resume(name: str, settings: Settings) -> None:
    """Let a paused schedule go on with the next due time."""
    with open_client(settings) as client:
        client.find_schedule(name).resume()
        click.echo(f"{name}: resumed")


@schedule.command()
@_name
@output_option
@connection_options
def trigger(name: str, output: str, settings: Settings) -> None:
    """Make a plan now, whether it is due or not."""
    with open_client(settings) as client:
        made = client.find_schedule(name).trigger()
        facts = {"number": made.number, "path": made.path, "key": made.record.key}
        if output == "json":
            print_facts(facts, output)
        else:
            click.echo(f"{label_of(made)}: triggered")


@schedule.command()
@_name
@connection_options
def rm(name: str, settings: Settings) -> None:
    """Delete a schedule. Its plans stay, and go on."""
    with open_client(settings) as client:
        client.find_schedule(name).remove()
        click.echo(f"{name}: removed")


def _facts(info: ScheduleInfo, output: str, short: bool = False) -> dict[str, Any]:
    facts: dict[str, Any] = info._asdict()
    facts["next"] = None if info.next is None else _told(info.next, output)
    fired = [
        _firing(each) | {"outcome": outcome}
        for each, outcome in zip(info.fired, info.outcomes, strict=True)
    ]
    del facts["outcomes"]
    facts["last"] = _line(fired[-1]) if fired else ""
    if info.unread:
        facts["last"] = f"cannot be read here: {info.unread}"
    del facts["fired"]
    if short and output != "json":
        return facts
    facts["fired"] = fired if output == "json" else "\n".join(map(_line, fired))
    del facts["last"]
    return facts


def _told(moment: datetime, output: str) -> str:
    if output == "json":
        return moment.isoformat()
    return f"{moment.isoformat(' ')} ({age(time.time() - moment.timestamp())})"


def _firing(each: Firing) -> dict[str, Any]:
    row = {"due": each.due_ms, "when": each.when_ms}
    told = {name: date_time(ms / 1000, people=False) for name, ms in row.items()}
    return told | {"plan": each.plan, "worker": each.worker, "how": each.how}


def _line(fired: dict[str, Any]) -> str:
    plan = f"plan {int(fired['plan'])} " if fired["plan"] else ""
    outcome = f": {fired['outcome']}" if fired["outcome"] else ""
    return f"{fired['due']}: {plan}{fired['how']} by {fired['worker']}{outcome}"
