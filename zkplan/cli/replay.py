"""`zkplan task replay`: run a task that stands here, with its recorded arguments, in a debugger."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from typing import Any

import click

from ..basics.exceptions import formatted, frames_of
from ..basics.text import count
from ..settings import Settings
from . import EXIT_FAILED
from .common import connection_options, open_client
from .imports import (
    allow_option,
    allowed_functions,
    import_kinds,
    import_path_option,
    kinds_option,
    set_import_path,
)
from .terminal import printable


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
    from ..runtime.replay import replay as run_again  # here: it needs much of what runs in a worker

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
