"""`zkplan limit set|ls|rm`: how many tasks that name a limit run at the same time, and which do."""

from __future__ import annotations

import click

from ..basics.text import date_time
from ..protocol.limits import PERIODS_S, SIZE_MAX, LimitStatus, Per
from ..settings import Settings
from .common import connection_options, open_client, output_option, print_rows


@click.group()
def limit() -> None:
    """Limit how many tasks run at the same time. Tasks and plans name limits."""


@limit.command("set")
@click.argument("name")
@click.argument("size", type=click.IntRange(0, SIZE_MAX))
@click.option("--per", type=click.Choice(list(PERIODS_S)), help="SIZE tasks start within that time")
@connection_options
def set_limit(name: str, size: int, per: Per | None, settings: Settings) -> None:
    """Make the limit NAME, or change its size. A lower size stops no task that runs."""
    with open_client(settings, creates=True) as client:
        client.set_limit(name, size, per=per)
        when = "run at the same time" if per is None else f"start within a {per}"
        click.echo(f"at most {size} tasks with the limit {name} {when}", err=True)


@limit.command("rm")
@click.argument("name")
@connection_options
def remove_limit(name: str, settings: Settings) -> None:
    """Remove a limit. Tasks that name it wait until it is set again."""
    with open_client(settings) as client:
        existed = client.remove_limit(name)
        click.echo(f"the limit {name} {'is removed' if existed else 'did not exist'}", err=True)


@limit.command("ls")
@output_option
@connection_options
def list_limits(output: str, settings: Settings) -> None:
    """List the limits, each with its size and the permits that are held: by which task, since when.

    The limit of a plan itself (`max_running`) is called plan-NUMBER.
    """
    with open_client(settings) as client:
        rows = []
        for found in client.limits():
            held = [
                permit._asdict() | {"since": date_time(permit.since, output != "json")}
                for permit in found.held
            ]
            row = found._asdict() | {"held": held}
            if output != "json":
                told = [
                    f"task {int(each.task or 0)} of plan {int(each.plan or 0)} on {each.worker} "
                    f"since {date_time(each.since, True)}"
                    for each in found.held
                    if each.task.isdecimal() and each.plan.isdecimal()
                ]
                row |= {"held": len(held), "by": "; ".join(told)}
                if found.unread:
                    row["size"] = f"unknown: {found.unread}"
            rows.append(row)
        columns = (
            LimitStatus._fields if output == "json" else ("name", "size", "held", "period", "by")
        )
        print_rows(rows, output, columns)
