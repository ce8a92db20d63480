"""`zkplan task show|why|logs|replay`: show and explain one task, read its logs, debug it here."""

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
    connection_options,
    open_client,
    plan_argument,
    print_facts,
    print_rows,
    print_why,
    report_gaps,
    result_options,
    task_argument,
)
from .functions import allowed_functions, function_options, import_kinds, set_import_path
from .task_control import cancel, retry, set_, skip
from .task_list import list_tasks


@click.group()
def task() -> None:
    """Look at tasks and control them. PLAN is as in `zkplan plan`. TASK is a number, a key, or the
    name of a task that is unfinished or whose outcome is kept."""


@task.command()
@plan_argument
@task_argument
@click.option(
    "--values",
    is_flag=True,
    help="Decode the result and the progress notes, and print them as Python's repr. Decoding can "
    "run code of the authors of these values, on this machine and with your rights.",
)
@result_options
def show(plan: str, task: str, values: bool, output: str, settings: Settings) -> None:
    """Show one task: state, options, edges, log, outcome, and the traceback of its last failure."""
    if values:
        set_import_path(settings, ())  # find the classes of values as a worker does
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
@plan_argument
@task_argument
@result_options
def why(plan: str, task: str, output: str, settings: Settings) -> None:
    """Explain why a task does not run now, down to the tasks that it waits for in the end."""
    with open_client(settings) as client:
        print_why(client.plan(plan).task(task).why(), output)


for _command in (list_tasks, skip, cancel, retry, set_):
    task.add_command(_command)


# ---- `zkplan task logs`


@task.command()
@plan_argument
@task_argument
@click.option("--follow", "-f", is_flag=True, help="Go on until the task has ended, or is dead.")
@click.option(
    "--attempt",
    type=click.IntRange(1),
    metavar="N",
    help="Only the attempt with this number, counted from 1. Some numbers may not exist.",
)
@result_options
def logs(
    plan: str, task: str, follow: bool, attempt: int | None, output: str, settings: Settings
) -> None:
    """Print the output and the log lines of a task's function, attempt by attempt.

    A worker keeps the end of the output of each attempt (see its --task-output), as long as the
    plan's history reaches back. The output of a running task appears after some seconds. The number
    of each attempt, and the size of each gap, goes to stderr. With --follow and -o json, each piece
    is one line of JSON.
    """
    with open_client(settings) as client:
        found_plan = client.plan(plan)
        found = found_plan.task(task)
        if follow:
            pieces, gaps = found.logs(follow=True), list[str]()
        else:
            kept, read_so = read_logs(client.values, found_plan.path, found.number)
            pieces, gaps = iter(kept), missing(read_so)
        seen = set[int]()
        wanted = _of_attempt(pieces, attempt, seen)
        if output == "json" and not follow:
            rows = list(map(_row, wanted))
            if rows or attempt is None:
                print_rows(rows, output, ())
        elif not _print(wanted, output) and output != "json" and attempt is None:
            click.echo(f"no output of {found.path} is kept", err=True)
    report_gaps(gaps)
    if attempt is not None and attempt - 1 not in seen:
        having = ", ".join(str(each + 1) for each in sorted(seen))
        others = f"these attempts have one: {having}" if seen else "no attempt has one"
        raise InvalidTask(found.number, f"{found.path} has no log of attempt {attempt}; {others}")


def _of_attempt(
    pieces: Iterator[TaskLog], attempt: int | None, seen: set[int]
) -> Iterator[TaskLog]:
    """Yield the pieces of `attempt`, counted from 1, or of all. Adds the number of each piece's
    attempt, counted from 0, to `seen`."""
    for piece in pieces:
        seen.add(piece.attempt)
        if attempt in (None, piece.attempt + 1):
            yield piece


def _print(pieces: Iterator[TaskLog], output: str) -> bool:
    """Print the pieces as they arrive. Returns whether there was any."""
    last, at_line_start = -1, True
    for piece in pieces:
        if output == "json":
            click.echo(json.dumps(_row(piece)))
        else:
            if not at_line_start and (piece.attempt != last or piece.cut):
                click.echo()
            if piece.attempt != last:
                when = datetime.fromtimestamp(piece.when).isoformat(" ", "seconds")
                head = f"attempt {piece.attempt + 1} on {piece.worker}, reported at {when}:"
                click.echo(printable(head), err=True)
            if piece.cut:
                click.echo(f"… {count(piece.cut, 'byte')} not kept …", err=True)
            click.echo(printable(piece.text), nl=False)
            at_line_start = piece.text.endswith("\n")
        last = piece.attempt
        sys.stdout.flush()
    if not at_line_start:
        click.echo()
    return last >= 0


def _row(piece: TaskLog) -> dict[str, Any]:
    when = datetime.fromtimestamp(piece.when).astimezone().isoformat()
    return asdict(piece) | {"when": when}


# ---- `zkplan task replay`: run a task on this machine, with its recorded arguments.


@task.command()
@plan_argument
@task_argument
@click.option("--pdb", "debugs", is_flag=True, help="Stop in Python's debugger where it fails.")
@function_options
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
    """Call the function of a task here, with its recorded arguments, and print its result. A dead
    task still has all its arguments; a finished task has none.

    Nothing is committed: the result and the logs are only printed, and added tasks are only
    counted. Side effects are real. The code of the task's author runs with your rights.

    With --serializer json only functions that --allow and --kinds name run, as in a worker.
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
            result, added = run_again(of, found, _print_log, call, allowed)
        except BaseException as error:
            if not _is_of_the_function(error):
                raise
            click.echo(printable(formatted(error, frames_of(error))).rstrip(), err=True)
            raise SystemExit(EXIT_FAILED) from None
    click.echo(printable(repr(result)))
    if added:
        click.echo(f"the task would have added {count(added, 'task')}", err=True)


def _print_log(value: Any) -> None:
    click.echo(f"log: {printable(repr(value))}", err=True)


def _in_debugger(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    try:
        return function(*args, **kwargs)
    except Exception:
        import pdb  # imported here: no other command of `zkplan task` needs it

        pdb.post_mortem(sys.exc_info()[2])
        raise


def _is_of_the_function(error: BaseException) -> bool:
    """Whether the task's function raised `error`, rather than zkplan before the call."""
    frames = [frame for frame, _ in traceback.walk_tb(frames_of(error))]
    return not str(frames[-1].f_globals.get("__name__", "")).startswith("zkplan.")
