"""`zkplan plan gc`, `zkplan root retention` and `zkplan root budget`: bound what plans take."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import click

from ..author.retention import STATES, Expired
from ..basics.settings import Settings
from ..basics.text import age, count, date_time, size
from ..errors import ZkplanError
from ..protocol.features.bounds import RETENTION_S, Bounds
from . import EXIT_FAILED
from .common import (
    confirm,
    open_client,
    print_facts,
    print_rows,
    result_options,
    seconds,
    with_dates,
    yes_option,
)

# ---- retention


@click.group(short_help="Set how long finished plans stay, and whether they are archived.")
def retention() -> None:
    """Set how long finished plans without a retention of their own stay, and if they are archived.

    Workers remove a plan that is done or cancelled when its retention is over.
    """


@retention.command("set")
@click.argument(
    "time",
    callback=lambda ctx, param, value: (
        math.inf if value == "forever" else seconds(ctx, param, value)
    ),
)
@click.option(
    "--archive/--no-archive",
    default=None,
    help="Archive each plan in the store before it is removed. By default this stays as it is.",
)
@yes_option
@result_options
def set_retention(
    time: float, archive: bool | None, yes: bool, output: str, settings: Settings
) -> None:
    """Keep finished plans for TIME (12h, 7d, 2w, forever) after their end. A shorter time than
    before has to be confirmed: within minutes, workers remove the plans that are older."""
    with open_client(settings, creates=True) as client:
        before = client.bounds()
        if time < before.retention:
            confirm(
                f"let workers remove each plan under {client.root} that ended more than "
                f"{_lasting(time)} ago and has no retention of its own (such plans stay "
                f"{_lasting(before.retention)} now)",
                yes=yes,
            )
        archives = before.archive if archive is None else archive
        _print_retention(client.set_retention(time, archive=archives), output)


@retention.command("show")
@result_options
def show_retention(output: str, settings: Settings) -> None:
    """Show how long finished plans stay under this root."""
    with open_client(settings) as client:
        _print_retention(client.bounds(), output)


@retention.command("rm")
@yes_option
@result_options
def remove_retention(yes: bool, output: str, settings: Settings) -> None:
    """Go back to 30 days, without archives."""
    with open_client(settings) as client:
        before = client.bounds()
        if before.archive or before.retention > RETENTION_S:
            confirm(
                f"let workers remove, without an archive, each plan under {client.root} that ended "
                "more than 30 days ago and has no retention of its own",
                yes=yes,
            )
        _print_retention(client.set_retention(), output)


def _lasting(seconds_: float) -> str:
    return "for ever" if seconds_ == math.inf else age(seconds_).removesuffix(" ago")


def _print_retention(found: Bounds, output: str) -> None:
    if output == "json":
        lasts = "forever" if found.retention == math.inf else found.retention
        print_facts({"retention": lasts, "archive": found.archive}, output)
    else:
        archive = "yes" if found.archive else "no"
        print_facts({"retention": _lasting(found.retention), "archive": archive}, output)


# ---- budget


@click.group(short_help="Bound the znodes and bytes that plans take.")
def budget() -> None:
    """Bound what the plans of a root take. From 80 % on there are warnings, at 100 % no new plan is
    created; existing plans go on."""


@budget.command("set")
@click.option("--znodes", type=click.IntRange(0), help="Maximum number of znodes.")
@click.option("--bytes", "bytes_", metavar="SIZE", help="Maximum size of the data: 500MB, 2GB.")
@result_options
def set_budget(znodes: int | None, bytes_: str | None, output: str, settings: Settings) -> None:
    """Replace the budget, and count what the plans take."""
    if znodes is None and bytes_ is None:
        raise click.UsageError("give --znodes or --bytes, or both; `rm` removes the budget")
    with open_client(settings, creates=True) as client:
        _print_budget(client.set_budget(znodes=znodes, bytes=bytes_), output)


@budget.command("show")
@click.option("--count", is_flag=True, help="Count the plans now, and note the result for authors.")
@result_options
def show_budget(count: bool, output: str, settings: Settings) -> None:
    """Show the budget, and how much of it was used when plans were counted last.

    Exit codes: 0 there is room, or no budget; 1 new plans are refused.
    """
    with open_client(settings) as client:
        found = client.bounds(count=count)
    _print_budget(found, output)
    if found.has_budget and found.share >= 1.0:
        raise SystemExit(EXIT_FAILED)


@budget.command("rm")
@result_options
def remove_budget(output: str, settings: Settings) -> None:
    """Remove the budget. Plans stay as they are."""
    with open_client(settings) as client:
        _print_budget(client.set_budget(), output)


def _print_budget(found: Bounds, output: str) -> None:
    used, facts = found.used, dict[str, Any]()
    if output == "json":
        facts |= {"znodes": found.znodes, "bytes": found.bytes}
        facts["share"] = round(found.share, 4) if found.has_budget else None
        facts["used"] = used._asdict() if used is not None else None
        print_facts(facts, output)
        return
    facts["znodes"] = "no bound" if found.znodes is None else f"{found.znodes:,}"
    facts["bytes"] = "no bound" if found.bytes is None else size(found.bytes)
    if used is not None:
        taken = f"{used.znodes:,} znodes, {size(used.bytes)} in {used.plans:,} plans"
        facts["used"] = taken if used.exact else f"about {taken}"
        facts["counted"] = date_time(used.counted, True)
    if found.has_budget:
        facts["share"] = f"{found.share:.0%}"
    print_facts(facts, output)


# ---- `zkplan plan gc`: list finished plans, then remove them.


_COLUMNS = ("number", "name", "state", "ended", "reason", "outcome")


@click.command()
@click.option(
    "--older-than",
    metavar="TIME",
    callback=seconds,
    help="Plans that ended longer ago than TIME: 90s, 30m, 12h, 7d, 2w.",
)
@click.option(
    "--keep", type=click.IntRange(0), metavar="N", help="All but the N plans that ended last."
)
@click.option(
    "--max-znodes",
    type=click.IntRange(0),
    help="The oldest plans, until finished plans have at most N znodes.",
)
@click.option(
    "--state",
    "states",
    type=click.Choice(STATES),
    multiple=True,
    default=("done", "cancelled"),
    help="Plans in this state. Repeat the option for others.",
)
@click.option(
    "--archive",
    is_flag=True,
    help="Archive each plan in the store first. A plan that cannot be archived stays.",
)
@click.option("--dry-run", is_flag=True, help="Only list what would be removed.")
@yes_option
@result_options
def gc(
    archive: bool, dry_run: bool, yes: bool, output: str, settings: Settings, **rules: Any
) -> None:
    """Remove finished plans whose retention is over. Given rules, also remove the finished plans
    without a retention of their own that match every rule. Running plans are never removed."""
    with open_client(settings) as client:
        found = client.gc(**rules, dry_run=True)
        if dry_run or not found:
            print_rows(_rows(found, output), output, _COLUMNS)
        else:
            confirm(
                f"remove {count(len(found), 'finished plan')}"
                f"{', and archive before' if archive else ''}",
                yes=yes,
                advice="look at them with --dry-run, and ",
                show=lambda: print_rows(_rows(found, "table"), "table", _COLUMNS[:-1]),
            )
            ended = client.remove_finished(found, archive=archive)
            print_rows(_rows(ended, output), output, _COLUMNS)
            left = [plan.outcome for plan in ended if plan.outcome != "removed"]
            if left:
                raise ZkplanError(f"{count(len(left), 'plan')} could not be removed: {left[0]}")
    if not found:
        click.echo(f"no finished plan under {client.root} is to be removed", err=True)


def _rows(plans: Iterable[Expired], output: str) -> Iterable[dict[str, Any]]:
    for plan in plans:
        row = plan._asdict() | {"number": plan.path.rpartition("-")[2]}
        yield with_dates(row, output, "ended")
