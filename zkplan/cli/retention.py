"""`zkplan plan gc`, `zkplan root retention` and `zkplan root budget`: how long plans stay and
what they may take."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from typing import Any

import click

from ..author.retention import STATES, Expired
from ..basics.settings import Settings
from ..basics.text import age, count, date_time, size
from ..errors import ZkplanError
from ..protocol.features.bounds import RETENTION_S, Bounds
from . import EXIT_FAILED
from .common import connection_options, open_client, output_option, print_facts, print_rows, seconds


def _lasting(ctx: click.Context, param: click.Parameter, value: str) -> float | None:
    return math.inf if value.strip() == "forever" else seconds(ctx, param, value)


def _confirmed(yes: bool, what: str) -> None:
    """Ask before workers may remove more than they would have. Exits with 2 if it is not wanted."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"there is no terminal to ask: {what} Confirm with --yes")
    if not click.confirm(f"{what} Go on?", err=True):
        click.echo("nothing is changed", err=True)
        raise SystemExit(2)


# ---- retention


@click.group(short_help="How long finished plans stay, and whether they are archived.")
def retention() -> None:
    """How long finished plans stay without a retention of their own, and if they are archived.

    Workers remove a plan that is done or cancelled when its retention is over.
    """


@retention.command("set")
@click.argument("time", metavar="TIME", callback=_lasting)
@click.option(
    "--archive/--no-archive",
    default=None,
    help="Archive each plan in the store before it is removed. Without it nothing changes.",
)
@click.option("--yes", is_flag=True, help="Do not ask. Required where there is no terminal.")
@output_option
@connection_options
def set_retention(
    time: float, archive: bool | None, yes: bool, output: str, settings: Settings
) -> None:
    """Let finished plans stay for TIME (12h, 7d, 2w, forever) after their end. It asks before a
    shorter time than now: workers remove the plans that are older within minutes."""
    with open_client(settings, creates=True) as client:
        before = client.bounds()
        if time < before.retention:
            _confirmed(
                yes,
                f"Workers remove each plan under {client.root} that ended more than {_told(time)} "
                f"ago and has no retention of its own. Now such plans stay for "
                f"{_told(before.retention)}.",
            )
        kept = before.archive if archive is None else archive
        print_facts(_retention_facts(client.set_retention(time, archive=kept), output), output)


@retention.command("show")
@output_option
@connection_options
def show_retention(output: str, settings: Settings) -> None:
    """Show how long finished plans stay under this root."""
    with open_client(settings) as client:
        print_facts(_retention_facts(client.bounds(), output), output)


@retention.command("rm")
@click.option("--yes", is_flag=True, help="Do not ask. Required where there is no terminal.")
@output_option
@connection_options
def remove_retention(yes: bool, output: str, settings: Settings) -> None:
    """Go back to 30 days, without archives."""
    with open_client(settings) as client:
        before = client.bounds()
        if before.archive or before.retention > RETENTION_S:
            _confirmed(
                yes,
                f"Workers remove each plan under {client.root} that ended more than 30 days ago "
                "and has no retention of its own. They archive none.",
            )
        print_facts(_retention_facts(client.set_retention(), output), output)


def _told(seconds_: float) -> str:
    return "ever" if seconds_ == math.inf else age(seconds_).removesuffix(" ago")


def _retention_facts(found: Bounds, output: str) -> dict[str, Any]:
    if output == "json":
        lasts = "forever" if found.retention == math.inf else found.retention
        return {"retention": lasts, "archive": found.archive}
    lasts = "for ever" if found.retention == math.inf else _told(found.retention)
    return {"retention": lasts, "archive": "yes" if found.archive else "no"}


# ---- budget


@click.group(short_help="Bound the znodes and bytes that plans take.")
def budget() -> None:
    """Bound what the plans of a root take. From 80 % on there are warnings, at 100 % no new plan is
    created; plans that are there go on."""


@budget.command("set")
@click.option("--znodes", type=click.IntRange(0), help="So many znodes.")
@click.option("--bytes", "bytes_", metavar="SIZE", help="So many bytes of data: 500MB, 2GB.")
@output_option
@connection_options
def set_budget(znodes: int | None, bytes_: str | None, output: str, settings: Settings) -> None:
    """Set the budget, in place of the one before, and count the plans."""
    if znodes is None and bytes_ is None:
        raise click.UsageError("give --znodes or --bytes, or both; `rm` removes the budget")
    with open_client(settings, creates=True) as client:
        found = client.set_budget(znodes=znodes, bytes=bytes_)
        print_facts(_budget_facts(found, output), output)


@budget.command("show")
@click.option("--count", is_flag=True, help="Count the plans now, and note it for authors.")
@output_option
@connection_options
def show_budget(count: bool, output: str, settings: Settings) -> None:
    """Show the budget, and how much of it was used when plans were counted last.

    Exit codes: 0 there is room, or no budget; 1 new plans are refused.
    """
    with open_client(settings) as client:
        found = client.bounds(count=count)
    print_facts(_budget_facts(found, output), output)
    if found.has_budget and found.share >= 1.0:
        raise SystemExit(EXIT_FAILED)


@budget.command("rm")
@output_option
@connection_options
def remove_budget(output: str, settings: Settings) -> None:
    """Remove the budget. Nothing else goes."""
    with open_client(settings) as client:
        print_facts(_budget_facts(client.set_budget(), output), output)


def _budget_facts(found: Bounds, output: str) -> dict[str, Any]:
    used = found.used
    if output == "json":
        facts = {"znodes": found.znodes, "bytes": found.bytes}
        facts["share"] = round(found.share, 4) if found.has_budget else None  # type: ignore[assignment]
        return facts | {"used": used._asdict() if used is not None else None}
    people: dict[str, Any] = {
        "znodes": "no bound" if found.znodes is None else f"{found.znodes:,}",
        "bytes": "no bound" if found.bytes is None else size(found.bytes),
    }
    if used is not None:
        about = "" if used.exact else "about "
        people["used"] = (
            f"{about}{used.znodes:,} znodes, {size(used.bytes)} in {used.plans:,} plans"
        )
        people["counted"] = date_time(used.counted, True)
    if found.has_budget:
        people["share"] = f"{found.share:.0%}"
    return people


# ---- `zkplan plan gc`: remove finished plans, after it has said which.


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
    help="Plans in this state; give it once for each state.",
)
@click.option(
    "--archive",
    is_flag=True,
    help="Archive each plan in the store first; one that cannot be archived stays.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@click.option("--yes", is_flag=True, help="Do not ask. Required where there is no terminal.")
@output_option
@connection_options
def gc(
    older_than: float | None,
    keep: int | None,
    max_znodes: int | None,
    states: tuple[str, ...],
    archive: bool,
    dry_run: bool,
    yes: bool,
    output: str,
    settings: Settings,
) -> None:
    """Remove finished plans whose retention is over. With rules, remove also the finished plans
    without a retention of their own that match each rule. A plan that runs is never removed."""
    with open_client(settings) as client:
        found = client.gc(
            older_than=older_than, keep=keep, max_znodes=max_znodes, states=states, dry_run=True
        )
        if dry_run or not found:
            print_rows(_rows(found, output), output, _COLUMNS)
        else:
            _confirm(found, yes, archive)
            ended = client.remove_finished(found, archive=archive)
            print_rows(_rows(ended, output), output, _COLUMNS)
            left = [plan.outcome for plan in ended if plan.outcome != "removed"]
            if left:
                raise ZkplanError(f"{count(len(left), 'plan')} could not be removed: {left[0]}")
    if not found:
        click.echo(f"no finished plan under {client.root} is to be removed", err=True)


def _confirm(found: list[Expired], yes: bool, archive: bool) -> None:
    what = f"{count(len(found), 'finished plan')}{', and archive before' if archive else ''}"
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(
            f"there is no terminal to ask whether to remove {what}: look at them with --dry-run, "
            "and confirm with --yes"
        )
    print_rows(_rows(found, "table"), "table", _COLUMNS[:-1])
    if not click.confirm(f"Remove {what}?", err=True):
        click.echo("nothing is removed", err=True)
        raise SystemExit(2)


def _rows(plans: Iterable[Expired], output: str) -> Iterable[dict[str, Any]]:
    for plan in plans:
        ended = date_time(plan.ended, output != "json")
        yield plan._asdict() | {"number": plan.path.rpartition("-")[2], "ended": ended}
