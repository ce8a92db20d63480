"""Read a plan file: TOML with known keys of the right types and nothing else."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from ..errors import InvalidPlanFile

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_NUMBER = (int, float)
_TASK_OPTIONS: dict[str, tuple[type, ...]] = {
    "attempts": (int,),
    "retry_delay": _NUMBER,
    "timeout": _NUMBER,
    "priority": (int,),
    "keep": (bool,),
    "pure": (bool,),
    "queue": (str,),
    "isolation": (str,),
    "memory_limit": (str, int),
    "limits": (list,),
}
_RULES: dict[str, tuple[type, ...]] = {"fatal": (str, list), "retry_if": (str, list)}
_PLAN_KEYS = {
    "name": (str,),
    "on_failure": (str,),
    "weight": (int,),
    "max_running": (int,),
    "retention": _NUMBER,
    **_TASK_OPTIONS,
    **_RULES,
}
_CALL_KEYS: dict[str, tuple[type, ...]] = {
    "args": (list,),
    "kwargs": (dict,),
    "after": (list,),
    "when": (dict, list),
    "run_if": (str,),
    **_TASK_OPTIONS,
    **_RULES,
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
        {key: table[key] for key in (*_TASK_OPTIONS, *_RULES, "run_if") if key in table},
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
