"""`zkplan run FILE`: read a plan from a TOML file, check it as a whole, create it, wait for it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
from .common import label_of, open_client, print_facts, result_options, wait_timeout_option
from .functions import import_path_option, set_import_path
from .plan import status_row

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@click.command()
@click.argument("file", type=click.Path())
@click.option("--name", help="Name of the plan, in place of the one in the file.")
@click.option(
    "--param",
    "params",
    multiple=True,
    metavar="NAME=VALUE",
    help="Value of a parameter in [params] of the file. Repeat the option for others.",
)
@click.option(
    "--wait/--no-wait",
    "waits",
    default=True,
    help="Wait until the plan is done, or print its number at once.",
)
@wait_timeout_option
@click.option("--check", is_flag=True, help="Only read and check the file; write nothing.")
@import_path_option
@result_options
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

    The whole file is checked before anything is written. The check imports the functions that the
    file calls, also from the current folder (with --serializer json only if --import-path names
    that folder). Ctrl-C ends the wait for the plan, and does not cancel the plan.
    """
    given = {}
    for param in params:
        key, separator, value = param.partition("=")
        if not separator:
            raise click.UsageError("--param must be NAME=VALUE, and one has no `=`")
        given[key] = value
    set_import_path(settings, import_path)  # as a worker does
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


# ---- Read the file: each key is known, and its value has the right type.


_Keys = dict[str, tuple[type, ...]]
_NUMBER = (int, float)
#: The types of a plan's options that are defaults for its tasks, and of a task's options.
_DEFAULTS: _Keys = {name: OPTIONS[name].values.toml for name in options_at(At.PLAN)}
_TASK_OPTIONS: _Keys = {name: OPTIONS[name].values.toml for name in options_at(At.FILE)}
#: The types of a plan's other options.
_OF_PLAN: _Keys = {
    "on_failure": (str,), "weight": (int,), "max_running": (int,), "retention": _NUMBER,
}  # fmt: skip
_TASK_KEYS: _Keys = _TASK_OPTIONS | {
    "args": (list,), "kwargs": (dict,), "after": (list,), "when": (dict, list),
}  # fmt: skip
_SHELL_KEYS: _Keys = {
    "cwd": (str,), "env": (dict,), "input": (str,), "output_limit": (int,), "check": (bool,),
}  # fmt: skip
_WHEN_KEYS: _Keys = {
    "path": (str,), "exists": (bool,), "absent": (bool,), "value": (str,), "children": (int,),
    "timeout": _NUMBER,
}  # fmt: skip
_KINDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    list: "an array",
    dict: "a table",
}


def kind_of(value: Any) -> str:
    """Name the kind of a value, for errors: the value itself may be an argument of a task."""
    return _KINDS.get(type(value), "a time or a date")


@dataclass
class PlanFile:
    """The content of a plan file. Only the types of its values are checked yet."""

    path: str
    name: str | None
    options: dict[str, Any]
    params: dict[str, Any]
    tasks: dict[str, dict[str, Any]]

    def refuse(self, where: str, why: str) -> NoReturn:
        """Raise InvalidPlanFile for a table or key of this file."""
        raise InvalidPlanFile(f"{self.path}: {where}: {why}")


def read_plan_file(path: str | Path) -> PlanFile:
    """Read a plan file. Raises InvalidPlanFile, which names the file, the table and the key."""
    try:
        with open(path, "rb") as opened:
            content = tomllib.load(opened)
    except OSError as error:
        raise InvalidPlanFile(f"{path} cannot be read: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidPlanFile(f"{path} is not TOML: {error}") from None
    file = PlanFile(str(path), None, {}, {}, {})
    _check_keys(file, "", content, {"plan": (dict,), "params": (dict,), "tasks": (dict,)})
    file.options = content.get("plan", {})
    file.params, file.tasks = content.get("params", {}), content.get("tasks", {})
    _check_keys(file, "[plan]", file.options, {"name": (str,)} | _OF_PLAN | _DEFAULTS)
    file.name = file.options.pop("name", None)
    for name, value in file.params.items():
        if not isinstance(value, str | int | float | bool):
            why = f"a default must be a text, a number, true or false, not {kind_of(value)}"
            file.refuse(f"[params] {name}", why)
    if not file.tasks:
        file.refuse("[tasks]", "there is no task: give each task a table [tasks.NAME]")
    for name, table in file.tasks.items():
        _check_task(file, f"[tasks.{name}]", table)
    return file


def _check_task(file: PlanFile, where: str, table: Any) -> None:
    if not isinstance(table, dict):
        file.refuse(where, f"a task must be a table, not {kind_of(table)}")
    if ("shell" in table) == ("call" in table):
        file.refuse(where, 'it needs either shell = "COMMAND" or call = "MODULE:FUNCTION"')
    own: _Keys = {"shell": (str, list)} | _SHELL_KEYS if "shell" in table else {"call": (str,)}
    _check_keys(file, where, table, own | _TASK_KEYS)
    for key, what in (("shell", "texts"), ("after", "names of tasks")):
        value = table.get(key)
        if isinstance(value, list) and not all(isinstance(each, str) for each in value):
            file.refuse(f"{where} {key}", f"an array must hold only {what}")
    for gate in _gates(table):
        if not isinstance(gate, dict) or "path" not in gate:
            file.refuse(f"{where} when", "it must be a table with a path, or an array of these")
        _check_keys(file, f"{where} when", gate, _WHEN_KEYS)


def _gates(table: dict[str, Any]) -> list[Any]:
    found = table.get("when", [])
    return found if isinstance(found, list) else [found]


def _check_keys(file: PlanFile, where: str, table: Mapping[str, Any], known: _Keys) -> None:
    for key, value in table.items():
        place = f"{where} {key}".strip()
        if key not in known:
            file.refuse(place, f"there is no such key here; there are {', '.join(sorted(known))}")
        # A bool is an int in Python, and must not pass for one.
        if type(value) not in known[key]:
            kinds = (float,) if float in known[key] else known[key]
            wanted = " or ".join(_KINDS[kind] for kind in kinds)
            file.refuse(place, f"it must be {wanted}, not {kind_of(value)}")


# ---- Make the tasks: check references, order and functions; write nothing.


_TRUTHS = {"true": True, "false": False}


def tasks_of(file: PlanFile, given: Mapping[str, str]) -> list[TaskSpec]:
    """Return the tasks, each after the tasks that it needs. `given` has values of parameters.

    Imports the modules of functions. Raises InvalidPlanFile.
    """
    _check_plan(file)
    making = _Making(file, _params(file, given))
    needs = {name: _needed(file, name, table) for name, table in file.tasks.items()}
    try:
        order = list(TopologicalSorter(needs).static_order())
    except CycleError as error:
        # The cycle lists each task before the one that needs it.
        file.refuse("[tasks]", f"tasks wait for one another: {' → '.join(error.args[1])}")
    return [making.make(name, file.tasks[name]) for name in order]


def create(client: Client, file: PlanFile, tasks: list[TaskSpec], name: str | None = None) -> Plan:
    """Create the plan of the file with these tasks, and start it. A failure leaves nothing behind.

    Raises the errors of `Client.create_plan` and `Plan.add_tasks`.
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
        options = {key: value for key, value in given.items() if key in _DEFAULTS}
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
            why = f"the given value must be {kind_of(values[name])}, as the default is"
            file.refuse(f"[params] {name}", why)
    return values


def _needed(file: PlanFile, name: str, table: dict[str, Any]) -> list[str]:
    """Return the tasks whose results the task `name` takes, or that it runs after."""
    found = [("after", each) for each in table.get("after", [])]
    for key in ("args", "kwargs"):

        def note(kind: str, value: Any, key: str = key) -> None:
            if kind == "task":
                found.append((key, value))

        _replaced(table.get(key), note)
    for key, needed in found:
        if not isinstance(needed, str) or needed not in file.tasks:
            known = ", ".join(list(file.tasks)[:20])
            why = f"there is no task {needed!r}; there are: {known}"
            file.refuse(f"[tasks.{name}] {key}", why)
    return [needed for _, needed in found]


def _replaced(value: Any, replace: Callable[[str, Any], Any]) -> Any:
    """Replace each `{task = …}`, `{param = …}` and `{when = …}` in a value."""
    if isinstance(value, list):
        return [_replaced(each, replace) for each in value]
    if isinstance(value, dict):
        if len(value) == 1 and (kind := next(iter(value))) in ("task", "param", "when"):
            return replace(kind, value[kind])
        return {key: _replaced(each, replace) for key, each in value.items()}
    return value


class _Making:
    """Makes the specs of tasks, one after the other."""

    def __init__(self, file: PlanFile, params: Mapping[str, Any]) -> None:
        self._file, self._params = file, params
        self._specs: dict[str, TaskSpec] = {}
        self._gates: dict[str, When] = {}

    def make(self, name: str, table: dict[str, Any]) -> TaskSpec:
        """Make the spec of one task, after the specs that it needs. Raises InvalidPlanFile."""
        where = f"[tasks.{name}]"

        def replace(kind: str, value: Any) -> Any:
            if kind == "when":
                return self._gate(value)
            if kind == "task":
                return self._specs[value]
            if not isinstance(value, str) or value not in self._params:
                known = ", ".join(self._params) or "none"
                self._file.refuse(where, f"there is no parameter {value!r}; there are: {known}")
            return self._params[value]

        options = {key: table[key] for key in _TASK_OPTIONS if key in table}
        after = [self._specs[each] for each in table.get("after", [])]
        try:
            spec = TaskSpec(
                self._function(where, table),
                _replaced(table.get("args", []), replace),
                _replaced(table.get("kwargs", {}), replace),
                name,
                **options,
                after=[*after, *map(self._gate, _gates(table))],
            )
            Checker().check(spec)
            if isinstance(spec.fn, ShellCommand):
                _check_words(spec, spec.fn)
        except (InvalidTask, TypeError, ValueError) as error:
            self._file.refuse(where, str(error))
        self._specs[name] = spec
        return spec

    def _gate(self, table: Any) -> When:
        """Return one gate for each znode and condition, however many tasks wait for it."""
        key = repr(sorted(table.items())) if isinstance(table, dict) else ""
        if key not in self._gates:
            self._gates[key] = when(**table)
        return self._gates[key]

    def _function(self, where: str, table: dict[str, Any]) -> Callable[..., Any]:
        if "shell" in table:
            options = {key: table[key] for key in _SHELL_KEYS if key in table}
            return shell(table["shell"], **options)
        try:
            return function_at(table["call"])
        except ValueError as error:
            self._file.refuse(f"{where} call", str(error))


def _check_words(spec: TaskSpec, command: ShellCommand) -> None:
    """Raises TypeError or ValueError for a value that cannot be a word of a command."""
    bound = command.__signature__.bind(*spec.args, **(spec.kwargs or {}))
    for name, value in bound.arguments.items():
        for each in value if isinstance(value, list) else [value]:
            if not isinstance(each, TaskSpec | When):
                words(name, each)
