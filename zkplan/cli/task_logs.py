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
from ..errors import InvalidTask
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
    type=click.IntRange(1),
    metavar="N",
    help="Only the attempt with this number, counted from 1. Some numbers may be left out.",
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
        seen = set[int]()
        pieces = _of_attempt(kept, attempt, seen)
        if output == "json" and not follow:
            shown = [_row(each) for each in pieces]
            if shown or attempt is None:
                print_rows(iter(shown), output, ())
        elif not _print(pieces, output) and output != "json" and attempt is None:
            click.echo(f"nothing that {found.path} has printed is kept", err=True)
    for gap in gaps:
        click.echo(f"the history is not whole: {gap}", err=True)
    if attempt is not None and attempt - 1 not in seen:
        raise InvalidTask(
            found.number, f"{found.path} has no log of attempt {attempt}; {_those(seen)}"
        )


def _of_attempt(
    pieces: Iterator[TaskLog], attempt: int | None, seen: set[int]
) -> Iterator[TaskLog]:
    """The pieces of that attempt, counted from 1, or all. `seen` gets the numbers of all."""
    for piece in pieces:
        seen.add(piece.attempt)
        if attempt in (None, piece.attempt + 1):
            yield piece


def _those(seen: set[int]) -> str:
    """Which attempts have logs."""
    if not seen:
        return "no attempt has one"
    named = ", ".join(str(each + 1) for each in sorted(seen))
    return f"these attempts have one: {named}"


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
        told = f"attempt {piece.attempt + 1} on {piece.worker}, told at {when}:"
        click.echo(printable(told), err=True)
    if piece.cut:
        click.echo(f"… {count(piece.cut, 'byte')} not kept …", err=True)


def _row(piece: TaskLog) -> dict[str, Any]:
    when = datetime.fromtimestamp(piece.when).astimezone().isoformat()
    return asdict(piece) | {"when": when}
