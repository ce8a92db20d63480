"""`zkplan task logs`: what the attempts of a task have printed and logged, kept or as it comes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from typing import Any

import click

from ..basics.text import count
from ..history.logs import TaskLog, read_logs
from ..history.reading import missing
from ..settings import Settings
from .common import connection_options, open_client, output_option, print_rows
from .terminal import printable


@click.command()
@click.argument("plan", metavar="PLAN")
@click.argument("task", metavar="TASK")
@click.option("--follow", "-f", is_flag=True, help="Go on until the task has ended, or is dead.")
@click.option(
    "--attempt",
    type=click.IntRange(0),
    metavar="N",
    help="Only the attempt with this number. Numbers begin at 0, and some may be left out.",
)
@output_option
@connection_options
def logs(
    plan: str, task: str, follow: bool, attempt: int | None, output: str, settings: Settings
) -> None:
    """Print what the function of a task has printed and logged, attempt by attempt.

    A worker keeps the end of what each attempt prints (its --task-output), for as long as the
    history of the plan reaches. The output of a running task appears after some seconds. The number
    of the attempt, and what is left out, goes to stderr. With --follow and -o json, each piece is
    one line of JSON.
    """
    with open_client(settings) as client:
        found_plan = client.plan(plan)
        found = found_plan.task(task)
        if follow:
            kept, gaps = found.logs(follow=True), list[str]()
        else:
            told, read_so = read_logs(client.values, found_plan.path, found.number)
            kept, gaps = iter(told), missing(read_so)
        pieces = (each for each in kept if attempt in (None, each.attempt))
        if output == "json" and not follow:
            print_rows((_row(each) for each in pieces), output, ())
        elif not _print(pieces, output) and output != "json":
            click.echo(f"nothing that {found.path} has printed is kept", err=True)
    for gap in gaps:
        click.echo(f"the history is not whole: {gap}", err=True)


def _print(pieces: Iterator[TaskLog], output: str) -> bool:
    """Returns whether there was any."""
    last, ends = -1, True
    for piece in pieces:
        if output == "json":
            click.echo(json.dumps(_row(piece)))
        else:
            if not ends and (piece.attempt != last or piece.cut):
                click.echo()
            _print_head(piece, piece.attempt != last)
            click.echo(printable(piece.text), nl=False)
            ends = piece.text.endswith("\n")
        last = piece.attempt
        sys.stdout.flush()
    if not ends:
        click.echo()
    return last >= 0


def _print_head(piece: TaskLog, is_new: bool) -> None:
    if is_new:
        when = datetime.fromtimestamp(piece.when).isoformat(" ", "seconds")
        told = f"attempt {piece.attempt} on {piece.worker}, told at {when}:"
        click.echo(printable(told), err=True)
    if piece.cut:
        click.echo(f"… {count(piece.cut, 'byte')} not kept …", err=True)


def _row(piece: TaskLog) -> dict[str, Any]:
    when = datetime.fromtimestamp(piece.when).astimezone().isoformat()
    return asdict(piece) | {"when": when}
