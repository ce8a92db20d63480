"""Make the tasks of a plan file: references, order and functions checked, nothing written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any

from ..client import Client
from ..errors import InvalidTask
from ..functions.by_path import function_at
from ..functions.definition import Checked, check_spec
from ..functions.limit_names import as_names, check_max_running
from ..functions.new_plan import check_plan_name, check_retention, check_share
from ..functions.option_checks import check_options
from ..functions.retry_rules import as_options
from ..functions.task_spec import TaskSpec
from ..gates import When, when
from ..plan import Plan
from ..protocol.options import DEFAULT_OPTIONS, TaskOptions
from ..shell_commands.command import ShellCommand, shell
from ..shell_commands.template import words
from .reader import PlanFile, TaskTable, told

#: Options of a plan that are no defaults of its tasks.
_OF_PLAN = ("on_failure", "weight", "max_running", "retention")
_TRUTHS = {"true": True, "false": False}


def tasks_of(file: PlanFile, given: Mapping[str, str]) -> list[TaskSpec]:
    """The tasks of the file, each behind those it needs. `given` are values of parameters.

    Imports the modules of functions. Raises InvalidPlanFile.
    """
    _check_plan(file)
    params = _params(file, given)
    needs = {name: _needed(file, table) for name, table in file.tasks.items()}
    try:
        order = list(TopologicalSorter(needs).static_order())
    except CycleError as error:
        # It tells each task behind the one that needs it.
        file.refuse("[tasks]", f"tasks wait for one another: {' → '.join(error.args[1])}")
    specs: dict[str, TaskSpec] = {}
    gates: dict[str, When] = {}
    for name in order:
        specs[name] = _spec(file, file.tasks[name], specs, params, gates)
    return list(specs.values())


def create(client: Client, file: PlanFile, tasks: list[TaskSpec], name: str | None = None) -> Plan:
    """Create the plan of the file with the tasks that `tasks_of` has made of it, and start it.

    If that fails, nothing is left. Raises as `Client.create_plan` and `Plan.add_tasks`.
    """
    with client.create_plan(name or file.name, **file.options) as plan:
        plan.add_tasks(tasks)
    return plan


def _check_plan(file: PlanFile) -> None:
    options = {key: value for key, value in file.options.items() if key not in _OF_PLAN}
    try:
        check_plan_name(file.name)
        check_share(file.options.get("weight"), None)
        check_max_running(file.options.get("max_running"))
        check_retention(file.options.get("retention"))
        label, limits = "the defaults of its tasks", as_names(options.pop("limits", ()))
        check_options(TaskOptions(**as_options(options, label), limits=limits), label)
    except InvalidTask as error:
        file.refuse("[plan]", str(error))
    if file.options.get("on_failure", "hold") not in ("hold", "cascade"):
        file.refuse("[plan] on_failure", 'it is "hold" or "cascade"')


def _params(file: PlanFile, given: Mapping[str, str]) -> dict[str, Any]:
    values = dict(file.params)
    for name, text in given.items():
        if name not in values:
            known = ", ".join(sorted(values)) or "none"
            file.refuse("[params]", f"there is no parameter {name!r}; there are: {known}")
        kind = type(values[name])
        try:
            values[name] = _TRUTHS[text] if kind is bool else kind(text)
        except (KeyError, ValueError):
            file.refuse(
                f"[params] {name}",
                f"it is {told(values[name])}, as its default is: what is given for it is not",
            )
    return values


def _needed(file: PlanFile, table: TaskTable) -> list[str]:
    """The tasks that it takes the results of, or comes after."""
    where, found = f"[tasks.{table.name}]", []

    def note(name: Any, key: str) -> None:
        if not isinstance(name, str) or name not in file.tasks:
            known = ", ".join(list(file.tasks)[:20])
            file.refuse(f"{where} {key}", f"there is no task {name!r}; there are: {known}")
        found.append(name)

    for name in table.after:
        note(name, "after")
    for key, value in (("args", table.args), ("kwargs", table.kwargs)):

        def replace(kind: str, name: Any, key: str = key) -> None:
            if kind == "task":
                note(name, key)

        _replaced(value, replace)
    return found


def _replaced(value: Any, replace: Callable[[str, Any], Any]) -> Any:
    """The value with what `replace` gives for `{task = …}`, `{param = …}`, `{when = …}` in it."""
    if isinstance(value, list):
        return [_replaced(each, replace) for each in value]
    if isinstance(value, dict):
        if len(value) == 1 and (kind := next(iter(value))) in ("task", "param", "when"):
            return replace(kind, value[kind])
        return {key: _replaced(each, replace) for key, each in value.items()}
    return value


def _spec(
    file: PlanFile,
    table: TaskTable,
    specs: Mapping[str, TaskSpec],
    params: Mapping[str, Any],
    gates: dict[str, When],
) -> TaskSpec:
    where = f"[tasks.{table.name}]"

    def gate(table: Any) -> When:
        # One for each znode and condition of the file, however many tasks wait for it.
        key = repr(sorted(table.items())) if isinstance(table, dict) else ""
        if key not in gates:
            gates[key] = when(**table)
        return gates[key]

    def replace(kind: str, name: Any) -> Any:
        if kind == "when":
            return gate(name)
        known: Mapping[str, Any] = specs if kind == "task" else params
        if not isinstance(name, str) or name not in known:
            names = ", ".join(known) or "none"
            file.refuse(where, f"there is no parameter {name!r}; there are: {names}")
        return known[name]

    try:
        spec = TaskSpec(
            _function(file, table),
            _replaced(table.args, replace),
            _replaced(table.kwargs, replace),
            table.name,
            **table.options,
            after=[*(specs[name] for name in table.after), *(gate(each) for each in table.when)],
        )
        check_spec(spec, DEFAULT_OPTIONS, Checked())
        if isinstance(spec.fn, ShellCommand):
            _check_words(spec, spec.fn)
    except (InvalidTask, TypeError, ValueError) as error:
        file.refuse(where, str(error))
    return spec


def _check_words(spec: TaskSpec, command: ShellCommand) -> None:
    """Raises TypeError or ValueError for a value in the file that is no word of a command."""
    bound = command.__signature__.bind(*spec.args, **(spec.kwargs or {}))
    for name, value in bound.arguments.items():
        for each in value if isinstance(value, list) else [value]:
            if not isinstance(each, TaskSpec | When):
                words(name, each)


def _function(file: PlanFile, table: TaskTable) -> Callable[..., Any]:
    if table.shell is not None:
        return shell(table.shell, **table.shell_options)
    where = f"[tasks.{table.name}] call"
    try:
        return function_at(table.call)
    except ValueError as error:
        file.refuse(where, str(error))
