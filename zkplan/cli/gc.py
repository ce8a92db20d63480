"""`zkplan plan gc`: remove finished plans, after it has said which."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import click

from ..basics.text import count, date_time
from ..errors import ZkplanError
from ..retention import STATES, Expired
from ..settings import Settings
from .common import connection_options, open_client, output_option, print_rows
from .durations import seconds

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
