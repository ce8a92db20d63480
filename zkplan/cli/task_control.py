"""`zkplan task skip|cancel|retry|set`: decide about one task, or about all that match a filter."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from typing import Any, NamedTuple

import click

from ..author.operator_actions import Decisions
from ..basics.settings import Settings
from ..basics.text import count
from ..errors import UNREACHABLE, InvalidTask, ZkplanError
from ..plan import Plan
from ..tasks import Task
from ..views.find import STATES
from . import EXIT_FAILED
from .common import F, confirm, label_of, open_client, plan_argument, print_rows, result_options

_COLUMNS = ("number", "name", "state", "outcome")
#: How many tasks a question names.
SHOWN = 20


class Act(NamedTuple):
    """The action of a command on each task.

    `do` returns the state that the task had, or an empty text if there was nothing to do; `idle`
    says why. There is nothing to do for tasks in the states `leaves`.
    """

    verb: str
    done: str
    idle: str
    leaves: tuple[str, ...]
    asks: bool
    do: Callable[[Decisions, Task], str]


class Choice(NamedTuple):
    """The arguments and options that choose tasks."""

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
    """Add the arguments and options that choose tasks; `function` gets them as a Choice."""

    @wraps(function)
    def with_choice(**given: Any) -> Any:
        choice = Choice(**{name: given.pop(name) for name in Choice._fields})
        return function(choice, **given)

    made: Any = result_options(with_choice)
    for option in (
        click.option("--yes", is_flag=True, help="Do not ask for confirmation. Skip and cancel "
                     "need it without a terminal."),
        click.option("--dry-run", is_flag=True, help="Only list the tasks."),
        click.option("--name", metavar="GLOB", help="With --all-matching: tasks with this name."),
        click.option("--error", metavar="GLOB", help="With --all-matching: tasks whose last "
                     "exception has this type, such as TimeoutError."),
        click.option("--state", type=click.Choice(STATES), help="With --all-matching: tasks in "
                     "this state."),
        click.option("--all-matching", is_flag=True, help="All unfinished tasks that match every "
                     "given filter. At least one filter is needed."),
        click.argument("tasks", metavar="[TASK]...", nargs=-1),
        plan_argument,
    ):  # fmt: skip
        made = option(made)
    found: F = made
    return found


@click.command()
@click.option(
    "--value", default="null", help="The result that their dependents get, as JSON.", metavar="JSON"
)
@_command
def skip(choice: Choice, value: str) -> None:
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
    _run(choice, Act("skip", "skipped", idle, ("finished", "decided"), True, do))


@click.command()
@_command
def cancel(choice: Choice) -> None:
    """Cancel tasks: they fail for good, with TaskCancelled. A running task is asked to stop."""

    def do(decisions: Decisions, task: Task) -> str:
        return decisions.cancel(task.number, task.name)

    idle = "it has ended, is dead, or is decided already"
    _run(choice, Act("cancel", "cancelled", idle, ("finished", "decided", "dead"), True, do))


@click.command()
@_command
def retry(choice: Choice) -> None:
    """Retry dead tasks, with all their attempts; let delayed ones run now."""

    def do(decisions: Decisions, task: Task) -> str:
        return decisions.retry(task.number)

    idle = "it is neither dead nor delayed"
    leaves = tuple({*STATES, "finished"} - {"dead", "delayed"})
    _run(choice, Act("retry", "runnable again", idle, leaves, False, do))


@click.command("set")
@click.option("--priority", type=int, required=True, help="Tasks of higher priority run earlier.")
@_command
def set_(choice: Choice, priority: int) -> None:
    """Set the priority of tasks that wait, are runnable or delayed."""

    def do(decisions: Decisions, task: Task) -> str:
        return decisions.set_priority(task.number, priority)

    done, idle = f"priority {priority}", "it is running or dead, or has ended"
    leaves = ("finished", "decided", "running", "dead")
    _run(choice, Act(f"set the priority {priority} of", done, idle, leaves, False, do))


def _run(choice: Choice, act: Act) -> None:
    filters = {"state": choice.state, "error": choice.error, "name": choice.name}
    has_filter = any(filters.values())
    if bool(choice.tasks) == choice.all_matching or (choice.all_matching and not has_filter):
        raise click.UsageError(
            "which tasks? Name them, or give --all-matching with --state, --error or --name"
        )
    if has_filter and not choice.all_matching:
        raise click.UsageError("--state, --error and --name need --all-matching")
    with open_client(choice.settings) as client:
        # An action that cannot be undone never picks the newest of several plans by itself.
        plan = client.plan(choice.plan, only=act.asks)
        if choice.all_matching:
            tasks = plan.select(**filters)
        else:
            tasks = list({task.number: task for task in map(plan.task, choice.tasks)}.values())
        if choice.dry_run:
            _show(plan, act, tasks, choice.output)
            return
        if tasks and act.asks:
            confirm(
                f"{act.verb} {count(len(tasks), 'task')} of {label_of(plan)}",
                yes=choice.yes,
                advice="look at them with --dry-run, and ",
                show=lambda: _show_some(plan, tasks),
            )
        _act(plan, act, tasks, choice)


def _states(plan: Plan, tasks: list[Task]) -> Callable[[Task], str]:
    states: Mapping[str, str] = {each.number: each.state for each in plan.tasks()} if tasks else {}
    return lambda task: states.get(task.number, "finished")


def _show(plan: Plan, act: Act, tasks: list[Task], output: str) -> None:
    """List the tasks, and mark those that would stay as they are."""
    state_of = _states(plan, tasks)
    rows = [_row(task, state_of(task)) for task in tasks]
    left = [row for row in rows if row["state"] in act.leaves]
    for row in left:
        row["outcome"] = f"left: {act.idle}"
    print_rows(rows, output, _COLUMNS)
    done = count(len(rows) - len(left), "task")
    rest = f"; {len(left)} would stay as they are" if left else ""
    click.echo(f"{done} of {label_of(plan)} would be {act.done}{rest}", err=True)


def _show_some(plan: Plan, tasks: list[Task]) -> None:
    state_of = _states(plan, tasks)
    print_rows([_row(task, state_of(task)) for task in tasks[:SHOWN]], "table", _COLUMNS[:-1])
    if len(tasks) > SHOWN:
        click.echo(f"… and {len(tasks) - SHOWN:,} more")


def _act(plan: Plan, act: Act, tasks: list[Task], choice: Choice) -> None:
    """Act on each task and list the outcomes. Raises the first error at the end: an error with one
    task does not keep the others from their turn."""
    acted = idle = 0
    first_error: ZkplanError | None = None

    def rows() -> Iterator[dict[str, Any]]:
        nonlocal acted, idle, first_error
        decisions = Decisions(plan)
        if len(tasks) > 1:
            decisions.look()
        for task in tasks:
            try:
                state = act.do(decisions, task)
            except UNREACHABLE:
                raise
            except ZkplanError as error:
                if len(tasks) == 1:
                    raise
                first_error = first_error or error
                idle += 1
                yield _row(task, "", f"left: {error}")
                continue
            if not state and len(tasks) == 1 and not choice.all_matching:
                raise InvalidTask(task.number, f"{task.path}: {act.idle}")
            acted += bool(state)
            idle += not state
            yield _row(task, state, act.done if state else f"left: {act.idle}")

    print_rows(rows(), choice.output, _COLUMNS)
    rest = f"; {idle} left as they were" if idle else ""
    click.echo(f"{count(acted, 'task')} of {label_of(plan)}: {act.done}{rest}", err=True)
    if first_error is not None:
        raise first_error
    if idle and not choice.all_matching:
        raise SystemExit(EXIT_FAILED)


def _row(task: Task, state: str, outcome: str = "") -> dict[str, Any]:
    return {"number": task.number, "name": task.name, "state": state, "outcome": outcome}
