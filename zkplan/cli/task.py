"""`zkplan task show|why|logs|replay`: show one task, explain it, read its logs, and debug it
here."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import datetime
from typing import Any

import click

from ..basics.settings import Settings
from ..basics.text import count, formatted, frames_of, printable
from ..errors import InvalidTask, PayloadUndecodable
from ..views.history import missing
from ..views.task_details import describe_task
from ..views.task_logs import TaskLog, read_logs
from . import EXIT_FAILED
from .common import (
    allow_option,
    allowed_functions,
    connection_options,
    import_kinds,
    import_path_option,
    kinds_option,
    open_client,
    output_option,
    print_facts,
    print_rows,
    print_why,
    set_import_path,
)
from .task_control import cancel, retry, set_, skip
from .task_list import list_tasks


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


# ---- `zkplan task replay`: run a task that stands here, with its recorded arguments, in a
# debugger.


@click.command()
@click.argument("plan", metavar="PLAN")
@click.argument("task", metavar="TASK")
@click.option("--pdb", "debugs", is_flag=True, help="Stop in Python's debugger where it fails.")
@import_path_option
@allow_option
@kinds_option
@connection_options
def replay(
    plan: str,
    task: str,
    debugs: bool,
    import_path: tuple[str, ...],
    allow: tuple[str, ...],
    kinds: tuple[str, ...],
    settings: Settings,
) -> None:
    """Call the function of a task here, with the arguments that were delivered to it, and print its
    result. A dead task stands with all of them; one that has finished is gone.

    Nothing is committed: its result, its logs and the tasks that it adds are only shown. What the
    function does elsewhere, it does. It runs code of whoever added the task, with your rights.

    With --serializer json only what --allow and --kinds name runs, as in a worker.
    """
    from ..runtime.replay import replay as run_again

    allowed = allowed_functions(settings, allow, kinds)
    set_import_path(settings, import_path)
    import_kinds(kinds)
    with open_client(settings) as client:
        of = client.plan(plan)
        found = of.task(task)
        call = _in_debugger if debugs else None
        try:
            result, added = run_again(of, found, _show_log, call, allowed)
        except BaseException as error:
            if not _is_of_the_function(error):
                raise
            click.echo(printable(formatted(error, frames_of(error))).rstrip(), err=True)
            raise SystemExit(EXIT_FAILED) from None
    click.echo(printable(repr(result)))
    if added:
        click.echo(f"it would have added {count(added, 'task')}", err=True)


def _show_log(value: Any) -> None:
    click.echo(f"log: {printable(repr(value))}", err=True)


def _in_debugger(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    try:
        return function(*args, **kwargs)
    except Exception:
        import pdb  # here: the other commands of `zkplan task` have no use for it

        pdb.post_mortem(sys.exc_info()[2])
        raise


def _is_of_the_function(error: BaseException) -> bool:
    """Whether the function raised it, and not zkplan before it was called."""
    frames = [frame for frame, _ in traceback.walk_tb(frames_of(error))]
    return not str(frames[-1].f_globals.get("__name__", "")).startswith("zkplan.")


# ---- `zkplan task ls|show|logs|why|…`: unfinished tasks, kept outcomes; all facts of one task.


_plan = click.argument("plan", metavar="PLAN")
_task = click.argument("task", metavar="TASK")


@click.group()
def task() -> None:
    """Look at tasks and control them. PLAN is as in `zkplan plan`. TASK is a number, or the name of
    a task that is unfinished or whose outcome is kept."""


@task.command()
@_plan
@_task
@click.option(
    "--values",
    is_flag=True,
    help="Decode the result and the progress notes, and print them as Python writes them. Decoding "
    "runs code of whoever wrote them, on this machine and with your rights.",
)
@output_option
@connection_options
def show(plan: str, task: str, values: bool, output: str, settings: Settings) -> None:
    """Show one task: state, options, edges, log, outcome, and the traceback of its last failure."""
    if values:
        set_import_path(settings, ())  # as a worker: the classes of values are where it was found
    with open_client(settings) as client:
        found = client.plan(plan).task(task)
        facts = describe_task(client, found.path, people=output == "table", values=values)
        undecoded = facts.pop("undecoded", [])
        print_facts(facts, output)
    if undecoded:
        raise PayloadUndecodable(
            f"{found.path}: {count(len(undecoded), 'value')} cannot be decoded here; a module or "
            f"the secret (secret-files) may be missing: {undecoded[0]}"
        )


@task.command()
@_plan
@_task
@output_option
@connection_options
def why(plan: str, task: str, output: str, settings: Settings) -> None:
    """Say why a task does not run now, down to the tasks that keep it waiting in the end."""
    with open_client(settings) as client:
        print_why(client.plan(plan).task(task).why(), output)


for _command in (list_tasks, logs, skip, cancel, retry, set_, replay):
    task.add_command(_command)
