"""`zkplan task skip|cancel|retry|set`: decide about one task, or about all that match a filter."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, NamedTuple

import click

from ..author.operator_actions import Decisions
from ..basics.settings import Settings
from ..basics.text import count
from ..errors import UNREACHABLE, InvalidTask, ZkplanError
from ..plan import Plan
from ..tasks import Task
from ..views.find_tasks import STATES
from . import EXIT_FAILED
from .common import F, connection_options, label_of, open_client, output_option, print_rows

_COLUMNS = ("number", "name", "state", "outcome")
#: How many tasks a question names.
SHOWN = 20


class Act(NamedTuple):
    """One thing to do with each task. `do` returns where the task stood, or an empty text where
    nothing was to be done; then `idle` says why. So it is with tasks in the states that it
    `leaves`."""

    verb: str
    done: str
    idle: str
    leaves: tuple[str, ...]
    asks: bool
    do: Callable[[Decisions, Task], str]


class Meant(NamedTuple):
    """Which tasks are meant, and how the command is to go about it."""

    plan: str
    tasks: tuple[str, ...]
    all_matching: bool
    state: str | None
    error: str | None
    name: str | None
    dry_run: bool
    yes: bool
    output: str
    settings: Settings


def _command(function: F) -> F:
    """The arguments and options that say which tasks; the function gets them as `meant`."""

    @wraps(function)
    def with_meant(**given: Any) -> Any:
        meant = Meant(**{name: given.pop(name) for name in Meant._fields})
        return function(meant, **given)

    made: Any = connection_options(with_meant)
    for option in (
        output_option,
        click.option("--yes", is_flag=True, help="Do not ask. Skip and cancel need it where there "
                     "is no terminal."),
        click.option("--dry-run", is_flag=True, help="Only say which tasks are meant."),
        click.option("--name", metavar="GLOB", help="With --all-matching: tasks of such a name."),
        click.option("--error", metavar="GLOB", help="With --all-matching: tasks whose last "
                     "exception has such a type, as TimeoutError."),
        click.option("--state", type=click.Choice(STATES), help="With --all-matching: tasks in "
                     "that state."),
        click.option("--all-matching", is_flag=True, help="All unfinished tasks that match each "
                     "filter given; one at least."),
        click.argument("tasks", metavar="[TASK]...", nargs=-1),
        click.argument("plan", metavar="PLAN"),
    ):  # fmt: skip
        made = option(made)
    found: F = made
    return found


@click.command()
@click.option(
    "--value", default="null", help="The result that their dependents get, as JSON.", metavar="JSON"
)
@_command
def skip(meant: Meant, value: str) -> None:
    """Skip tasks: they do not run, and the tasks that take their results get a value."""
    try:
        decoded = json.loads(value)
    except ValueError as error:
        raise click.BadParameter(
            f"it is not JSON ({error}); a text needs its quotes: '\"text\"'",
            param_hint="--value",
        ) from None

    def do(decisions: Decisions, task: Task) -> str:
        return decisions.skip(task.number, decoded, task.name)

    idle = "it has ended, or is decided already"
    _run(meant, Act("skip", "skipped", idle, ("finished", "decided"), True, do))


@click.command()
@_command
def cancel(meant: Meant) -> None:
    """Let tasks fail for good, with TaskCancelled. A running one is told to stop."""

    def do(decisions: Decisions, task: Task) -> str:
        return decisions.cancel(task.number, task.name)

    idle = "it has ended, is dead, or is decided already"
    _run(meant, Act("cancel", "cancelled", idle, ("finished", "decided", "dead"), True, do))


@click.command()
@_command
def retry(meant: Meant) -> None:
    """Retry dead tasks, with all their attempts; let delayed ones run now."""

    def do(decisions: Decisions, task: Task) -> str:
        return decisions.retry(task.number)

    idle = "it is neither dead nor delayed"
    leaves = tuple({*STATES, "finished"} - {"dead", "delayed"})
    _run(meant, Act("retry", "runnable again", idle, leaves, False, do))


@click.command("set")
@click.option("--priority", type=int, required=True, help="Tasks of a higher one run earlier.")
@_command
def set_(meant: Meant, priority: int) -> None:
    """Set the priority of tasks that wait, are runnable or delayed."""

    def do(decisions: Decisions, task: Task) -> str:
        return decisions.set_priority(task.number, priority)

    done, idle = f"priority {priority}", "it is running or dead, or has ended"
    leaves = ("finished", "decided", "running", "dead")
    _run(meant, Act(f"set the priority {priority} of", done, idle, leaves, False, do))


def _run(meant: Meant, act: Act) -> None:
    filters = (meant.state, meant.error, meant.name)
    if bool(meant.tasks) == meant.all_matching or (meant.all_matching and not any(filters)):
        raise click.UsageError(
            "which tasks? Name them, or give --all-matching with --state, --error or --name"
        )
    if any(filters) and not meant.all_matching:
        raise click.UsageError("--state, --error and --name belong to --all-matching")
    with open_client(meant.settings) as client:
        # What cannot be undone never picks the newest of several plans by itself.
        plan = client.plan(meant.plan, only=act.asks)
        states: dict[str, str] = {}
        if meant.all_matching:
            tasks = plan.select(state=meant.state, error=meant.error, name=meant.name)
        else:
            tasks = list({task.number: task for task in map(plan.task, meant.tasks)}.values())
        if meant.dry_run or (act.asks and not meant.yes):
            states = {each.number: each.state for each in plan.tasks()} if tasks else {}
        if meant.dry_run:
            _show(plan, act, tasks, states, meant.output)
            return
        if tasks and act.asks and not meant.yes:
            _confirm(act, plan, tasks, states)
        ended = _Ended()
        print_rows(_done(plan, act, tasks, ended, not meant.all_matching), meant.output, _COLUMNS)
        told = f"{count(ended.acted, 'task')} of {label_of(plan)}: {act.done}"
        click.echo(told + (f"; {ended.idle} left as they were" if ended.idle else ""), err=True)
        if ended.error is not None:
            raise ended.error
        if ended.idle and not meant.all_matching:
            raise SystemExit(EXIT_FAILED)


def _show(plan: Plan, act: Act, tasks: list[Task], states: dict[str, str], output: str) -> None:
    """What a dry run says: which tasks are meant, and which of them would be left as they are."""
    stand = [states.get(task.number, "finished") for task in tasks]
    left = [state in act.leaves for state in stand]
    print_rows(
        (
            _row(task, state, f"left: {act.idle}" if is_left else "")
            for task, state, is_left in zip(tasks, stand, left, strict=True)
        ),
        output,
        _COLUMNS,
    )
    done = count(len(tasks) - sum(left), "task")
    told = f"{done} of {label_of(plan)} would be {act.done}"
    click.echo(told + (f"; {sum(left)} would stay as they are" if any(left) else ""), err=True)


class _Ended:
    """What has become of the tasks."""

    acted = idle = 0
    error: ZkplanError | None = None


def _done(
    plan: Plan, act: Act, found: list[Task], ended: _Ended, is_named: bool
) -> Iterator[dict[str, Any]]:
    """Act on each task. An error of one stops no other."""
    decisions = Decisions(plan)
    if len(found) > 1:
        decisions.look()
    for task in found:
        try:
            stood = act.do(decisions, task)
        except UNREACHABLE:
            raise
        except ZkplanError as error:
            if len(found) == 1:
                raise
            ended.error = ended.error or error
            ended.idle += 1
            yield _row(task, "", f"left: {error}")
            continue
        if not stood and len(found) == 1 and is_named:
            raise InvalidTask(task.number, f"{task.path}: {act.idle}")
        ended.acted += bool(stood)
        ended.idle += not stood
        yield _row(task, stood, act.done if stood else f"left: {act.idle}")


def _row(task: Task, state: str, outcome: str) -> dict[str, Any]:
    return {"number": task.number, "name": task.name, "state": state, "outcome": outcome}


def _confirm(act: Act, plan: Plan, tasks: list[Task], states: dict[str, str]) -> None:
    what = f"{act.verb} {count(len(tasks), 'task')} of {label_of(plan)}"
    if not sys.stdin.isatty():
        raise click.UsageError(
            f"there is no terminal to ask whether to {what}: look at them with --dry-run, and "
            "confirm with --yes"
        )
    shown = [_row(task, states.get(task.number, "finished"), "") for task in tasks[:SHOWN]]
    print_rows(shown, "table", _COLUMNS[:-1])
    if len(tasks) > SHOWN:
        click.echo(f"… and {len(tasks) - SHOWN:,} more")
    if not click.confirm(f"{what[0].upper()}{what[1:]}?", err=True):
        click.echo("nothing was changed", err=True)
        raise SystemExit(2)
