"""`zkplan run FILE`: read a plan from a TOML file, check it as a whole, create it, and wait for
it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, NoReturn

import click

from ..author.definition import Checker
from ..author.functions import function_at
from ..author.new_plans import check_plan, check_share
from ..author.options import with_options
from ..author.task_specs import TaskSpec
from ..basics.settings import Settings
from ..basics.text import count
from ..client import Client
from ..errors import InvalidPlanFile, InvalidTask
from ..gates import When, when
from ..plan import Plan
from ..protocol.task_options import DEFAULT_OPTIONS, OPTIONS, At, options_at
from ..runtime.shell import ShellCommand, shell, words
from .common import (
    connection_options,
    import_path_option,
    label_of,
    open_client,
    output_option,
    print_facts,
    set_import_path,
    wait_timeout_option,
)
from .plan import status_row

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_NUMBER = (int, float)
_PLAN_OPTIONS = {name: OPTIONS[name].values.toml for name in options_at(At.PLAN)}
_TASK_OPTIONS = {name: OPTIONS[name].values.toml for name in options_at(At.FILE)}
_PLAN_KEYS = {
    "name": (str,),
    "on_failure": (str,),
    "weight": (int,),
    "max_running": (int,),
    "retention": _NUMBER,
    **_PLAN_OPTIONS,
}
_CALL_KEYS: dict[str, tuple[type, ...]] = {
    "args": (list,),
    "kwargs": (dict,),
    "after": (list,),
    "when": (dict, list),
    **_TASK_OPTIONS,
}
_SHELL_KEYS: dict[str, tuple[type, ...]] = {
    "cwd": (str,),
    "env": (dict,),
    "input": (str,),
    "output_limit": (int,),
    "check": (bool,),
}
_WHEN_KEYS: dict[str, tuple[type, ...]] = {
    "path": (str,),
    "exists": (bool,),
    "absent": (bool,),
    "value": (str,),
    "children": (int,),
    "timeout": _NUMBER,
}
_TOLD = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    list: "an array",
    dict: "a table",
}


def told(value: Any) -> str:
    """What kind of value it is. An error names no value: it may be an argument of a task."""
    return _TOLD.get(type(value), "a time or a date")


@dataclass
class TaskTable:
    """One `[tasks.NAME]`."""

    name: str
    #: A text or an array of texts for a command; None if it calls a function.
    shell: str | list[str] | None = None
    #: `module:function`; empty if it runs a command.
    call: str = ""
    shell_options: dict[str, Any] = field(default_factory=dict)
    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)
    after: list[str] = field(default_factory=list)
    #: Tables of what `zkplan.when` takes.
    when: list[dict[str, Any]] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)


@dataclass
class PlanFile:
    """What a plan file says. Its values have the right types; more is not checked yet."""

    path: str
    name: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    params: dict[str, Any] = field(default_factory=dict)
    tasks: dict[str, TaskTable] = field(default_factory=dict)

    def refuse(self, where: str, why: str) -> NoReturn:
        """Raise InvalidPlanFile for a table or key of this file."""
        raise InvalidPlanFile(f"{self.path}: {where}: {why}")


def read_plan_file(path: str | Path) -> PlanFile:
    """Raises InvalidPlanFile, which names the file, the table and the key."""
    found = PlanFile(str(path))
    try:
        with open(path, "rb") as file:
            content = tomllib.load(file)
    except OSError as error:
        raise InvalidPlanFile(f"{path} cannot be read: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidPlanFile(f"{path} is not TOML: {error}") from None
    _check_keys(found, "", content, {"plan": (dict,), "params": (dict,), "tasks": (dict,)})
    plan = content.get("plan", {})
    _check_keys(found, "[plan]", plan, _PLAN_KEYS)
    found.name = plan.pop("name", None)
    found.options = plan
    found.params = content.get("params", {})
    for name, value in found.params.items():
        if not isinstance(value, str | int | float | bool):
            found.refuse(
                f"[params] {name}",
                f"a default is a text, a number or true or false, not {told(value)}",
            )
    if not content.get("tasks"):
        found.refuse("[tasks]", "there is no task: a plan file has a table [tasks.NAME] for each")
    for name, table in content["tasks"].items():
        found.tasks[name] = _task(found, name, table)
    return found


def _task(file: PlanFile, name: str, table: Any) -> TaskTable:
    where = f"[tasks.{name}]"
    if not isinstance(table, dict):
        file.refuse(where, f"a task is a table, not {told(table)}")
    if ("shell" in table) == ("call" in table):
        file.refuse(where, 'it needs either shell = "COMMAND" or call = "MODULE:FUNCTION"')
    is_shell = "shell" in table
    known: dict[str, tuple[type, ...]] = (
        {"shell": (str, list)} | _SHELL_KEYS if is_shell else {"call": (str,)}
    )
    _check_keys(file, where, table, known | _CALL_KEYS)
    for key, what in (("shell", "texts"), ("after", "names of tasks")):
        value = table.get(key)
        if isinstance(value, list) and not all(isinstance(each, str) for each in value):
            file.refuse(f"{where} {key}", f"it is an array of {what}, and of nothing else")
    return TaskTable(
        name,
        table.get("shell"),
        table.get("call", ""),
        {key: table[key] for key in _SHELL_KEYS if key in table},
        table.get("args", []),
        table.get("kwargs", {}),
        table.get("after", []),
        _gates(file, f"{where} when", table.get("when", [])),
        {key: table[key] for key in _TASK_OPTIONS if key in table},
    )


def _gates(file: PlanFile, where: str, value: Any) -> list[dict[str, Any]]:
    tables = [value] if isinstance(value, dict) else value
    for table in tables:
        if not isinstance(table, dict) or "path" not in table:
            file.refuse(where, "it is a table with a path, or an array of such, and not this")
        _check_keys(file, where, table, _WHEN_KEYS)
    return tables


def _check_keys(
    file: PlanFile, where: str, table: Mapping[str, Any], known: Mapping[str, tuple[type, ...]]
) -> None:
    for key, value in table.items():
        place = f"{where} {key}".strip()
        if key not in known:
            file.refuse(place, f"there is no such key here; there are {', '.join(sorted(known))}")
        # A bool is an int in Python, and must not pass for one.
        if type(value) not in known[key]:
            kinds = (float,) if float in known[key] else known[key]
            wanted = " or ".join(_TOLD[kind] for kind in kinds)
            file.refuse(place, f"it is {wanted}, not {told(value)}")


# ---- Make the tasks of a plan file: references, order and functions checked, nothing written.


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
    given = file.options
    try:
        check_plan(
            file.name,
            given.get("on_failure", "hold"),
            given.get("retention"),
            given.get("max_running"),
        )
        check_share(given.get("weight"), None)
        options = {key: value for key, value in given.items() if key in _PLAN_OPTIONS}
        with_options(DEFAULT_OPTIONS, options, "the defaults of its tasks")
    except InvalidTask as error:
        file.refuse("[plan]", str(error))


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
        Checker().check(spec)
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


# ---- `zkplan run FILE`: create the plan that a file describes, start it, and wait for it.


@click.command()
@click.argument("file", metavar="FILE", type=click.Path())
@click.option("--name", help="Name of the plan, in place of the one in the file.")
@click.option(
    "--param",
    "params",
    multiple=True,
    metavar="NAME=VALUE",
    help="Value of a parameter that [params] of the file has. Repeat the option for others.",
)
@click.option(
    "--wait/--no-wait",
    "waits",
    default=True,
    help="Wait until the plan is done. Otherwise print the number of the plan.",
)
@wait_timeout_option
@click.option("--check", is_flag=True, help="Only read and check the file; write nothing.")
@import_path_option
@output_option
@connection_options
def run(
    file: str,
    name: str | None,
    params: tuple[str, ...],
    waits: bool,
    timeout: float | None,
    check: bool,
    import_path: tuple[str, ...],
    output: str,
    settings: Settings,
) -> None:
    """Create the plan that FILE describes, and start it. FILE is TOML with a table for each task.

    The whole file is checked before anything is written; functions that it calls are imported, also
    from the current folder (with --serializer json only if --import-path names it). A plan that is
    waited for is not cancelled by Ctrl-C.
    """
    given = {}
    for param in params:
        key, separator, value = param.partition("=")
        if not separator:
            raise click.UsageError("--param is NAME=VALUE, and one has no `=`")
        given[key] = value
    set_import_path(settings, import_path)  # as a worker
    described = read_plan_file(file)
    tasks = tasks_of(described, given)
    if check:
        click.echo(f"{file}: {count(len(tasks), 'task')}, nothing is wrong with it", err=True)
        return
    with open_client(settings, creates=True) as client:
        plan = create(client, described, tasks, name)
        click.echo(f"started {label_of(plan)} with {count(len(tasks), 'task')}", err=True)
        if waits:
            print_facts(status_row(plan.wait(timeout, progress=True), output), output)
        elif output == "json":
            print_facts(status_row(plan.status(), output), output)
        else:
            click.echo(int(plan.number))
