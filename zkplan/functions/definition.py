"""Define tasks: check what the author gives, serialise it, and find its edges."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from math import ceil
from operator import attrgetter
from typing import Any

from ..basics.durations import in_seconds
from ..errors import ForeignTask, InvalidTask, PayloadTooLarge
from ..gates import When
from ..protocol.adding import NewTask
from ..protocol.layout import (
    OWN_LIMIT,
    lane_of,
    rank_of,
)
from ..protocol.options import DEFAULT_OPTIONS, RUN_IF, TaskOptions
from ..protocol.records import SOURCE_BYTES, TaskRecord
from ..protocol.shared import REQUEST_BYTES_MAX
from ..serialization import codec as codecs
from ..serialization.blame import kind_of
from ..serialization.functions import function_name
from ..store.values import Values
from .gates import Gates
from .json_task import dump_call_json, dump_function_json
from .kinds import Kind, task_kind
from .limit_names import as_names
from .moments import seconds_of
from .option_checks import check_key, check_options, memory_bytes
from .pickle_task import dump_call_pickled, dump_function_pickled
from .retry_rules import as_options
from .task_spec import TaskHandle, TaskSpec

#: How many bytes a task's definition may have: it shares a transaction with the task's edges.
RECORD_BYTES_MAX = REQUEST_BYTES_MAX - 64 * 1024
#: The most edges into one task. Build a wider join as a tree, or its arguments fill up one worker.
EDGES_MAX = 50_000
NO_PROCESS = (
    'a task with serializer json has no process of its own: leave out isolation="process" and '
    "memory_limit"
)
ONLY_JSON = (
    "a task of a kind carries JSON alone, and this plan has serializer pickle: connect with "
    'serializer="json" to create it'
)
_OPTIONS = tuple(each.name for each in fields(TaskOptions) if each.name != "traceparent")
_options_in: Callable[[TaskSpec], tuple[Any, ...]] = attrgetter(*_OPTIONS)
_MOMENTS, _DURATIONS = {"not_before", "deadline"}, {"retry_delay", "timeout"}
_NONE: dict[str, Any] = {}


class Checked:
    """What was checked for earlier tasks of the same call: an equal one is not checked again."""

    __slots__ = ("as_json", "calls", "options")

    def __init__(self, as_json: bool = False) -> None:
        self.as_json = as_json
        #: Calls that fit: a function, the number of its arguments, and the names of the others.
        self.calls: set[tuple[object, ...]] = set()
        #: The options, by the function and those that its task gives.
        self.options: dict[tuple[object, ...], TaskOptions] = {}


def define_all(
    specs: Sequence[TaskSpec],
    plan_path: str,
    values: Values,
    defaults: TaskOptions,
    as_json: bool = False,
    own_limit: bool = False,
) -> tuple[list[NewTask], list[NewTask]]:
    """Check and serialise tasks, each of which may have those before it as arguments.

    `own_limit` says that the plan has a limit of its own. Returns the tasks, and the gates that
    they have as arguments. Raises as `define`.
    """
    gates = Gates(plan_path, values, defaults, as_json, own_limit)
    functions: dict[int, bytes] = {}
    checked = Checked(as_json)
    try:
        made = [
            define(spec, plan_path, values, defaults, functions, checked, gates) for spec in specs
        ]
        return made, gates.made
    finally:
        for spec in specs:
            spec._new = None  # it is an argument within this call only


def define(
    spec: TaskSpec,
    plan_path: str,
    values: Values,
    defaults: TaskOptions,
    functions: dict[int, bytes],
    checked: Checked | None = None,
    gates: Gates | None = None,
) -> NewTask:
    """Check and serialise one task. Sends nothing; every error names the task.

    `functions` has the bytes of those met before, `checked` what fits; `gates` gets the gates.
    """
    gates = gates or Gates(plan_path, values, defaults)
    options = check_spec(spec, defaults, checked or Checked(gates.as_json))
    as_json, fn, args = gates.as_json, spec.fn, spec.args
    if type(fn) is When:
        spec._new = gates.define(spec, fn)
        return spec._new
    if not as_json and type(fn) is Kind:
        raise InvalidTask(spec.label, f"{spec.label}: {ONLY_JSON}")
    if as_json and options.is_isolated:
        raise InvalidTask(spec.label, f"{spec.label}: {NO_PROCESS}")
    if (stands_for := getattr(fn, "zkplan_stands_for", None)) is not None:  # a shell command
        fn, args = stands_for[0], [stands_for[1], *args]
    function = functions.get(id(fn))
    if function is None:
        dumped = dump_function_json(spec, fn) if as_json else None
        function = dumped or dump_function_pickled(spec, fn, plan_path, values)
        functions[id(fn)] = function
    deps: list[str | NewTask] = []
    places: dict[str | NewTask, int] = {}

    def position_of(value: Any, take: bool = True) -> int | None:
        kind = type(value)
        if issubclass(kind, TaskHandle):
            if value.plan.path != plan_path:
                raise ForeignTask(
                    spec.label, f"{spec.label} has {value!r} as an argument, a task of another plan"
                )
            key = value._taken()
        elif kind is TaskSpec:
            if value._new is None:
                raise InvalidTask(
                    spec.label,
                    f"{spec.label} has {value.label} as an argument, which is not added before it",
                )
            key = value._new
            key.feeds = True
        elif kind is When:
            key = gates.of(value, spec, options, len(deps), take=take)
        else:
            return None
        place = places.get(key)
        if place is None:
            place = places[key] = len(deps)
            deps.append(key)
        return place

    for each in spec.after:
        # An edge that no argument refers to: it only orders the two tasks.
        if position_of(each, take=False) is None:
            raise InvalidTask(spec.label, f"{spec.label}: after is a list of tasks, not {each!r}")
    dump = dump_call_json if as_json else dump_call_pickled
    called = dump(spec, args, plan_path, values, position_of)
    task = TaskRecord(len(deps), options.to_json(), function, called)
    record = values.codec.seal(codecs.TASK, task.to_bytes())
    kind = task_kind(fn) if as_json else ""
    return _new_task(spec, options, record, deps, gates.own_limit, kind)


def _new_task(
    spec: TaskSpec,
    options: TaskOptions,
    record: bytes,
    deps: list[str | NewTask],
    own_limit: bool,
    kind: str,
) -> NewTask:
    if len(deps) > EDGES_MAX:
        raise InvalidTask(
            spec.label,
            f"{spec.label} has {len(deps)} tasks as arguments, the limit is {EDGES_MAX}: join them "
            "in groups first",
        )
    size = len(record) + SOURCE_BYTES * len(deps)
    if size > RECORD_BYTES_MAX:
        raise PayloadTooLarge(
            f"{spec.label}: its function and constant arguments", size, RECORD_BYTES_MAX
        )
    limits = (*options.limits, OWN_LIMIT) if own_limit else options.limits
    spec._new = NewTask(
        *(spec.label, rank_of(options.priority), record, deps),
        keep=options.keep,
        queue=lane_of(options.queue, limits, kind) if limits or kind else options.queue,
        key=spec.key or "",
        not_before_ms=ceil(1000 * (options.not_before or 0.0)),  # rounded up: never before
        takes_failures=options.run_if != RUN_IF[0],
        name=options.name or function_name(spec.fn),
    )
    return spec._new


def check_spec(spec: TaskSpec, defaults: TaskOptions, checked: Checked) -> TaskOptions:
    """The options of the task. Raises InvalidTask for options and arguments that do not fit."""
    options = _known_options(spec, defaults, checked)
    if spec.key is not None:
        check_key(spec.key, spec.label, f"{spec.label}: its key")
    _check_arguments(spec)
    if type(spec.fn) is When:
        return options  # `Gates` checks the rest
    call = (id(spec.fn), len(spec.args), *(spec.kwargs or _NONE))
    if call not in checked.calls:
        _check_call(spec)
        checked.calls.add(call)
    return options


def _known_options(spec: TaskSpec, defaults: TaskOptions, checked: Checked) -> TaskOptions:
    given = (id(spec.fn), *_options_in(spec))
    try:
        options = checked.options.get(given)
    except TypeError:  # an option that is wrong, or a list
        return _options(spec, defaults, checked.as_json)
    if options is None:
        options = checked.options[given] = _options(spec, defaults, checked.as_json)
    return options


def _options(spec: TaskSpec, defaults: TaskOptions, as_json: bool) -> TaskOptions:
    if not callable(spec.fn):
        raise InvalidTask(spec.label, f"a task needs a function, not {kind_of(spec.fn)}")
    # A function that `@zkplan.task` has decorated has options of its own.
    own = getattr(spec.fn, "zkplan_options", _NONE)
    given = {name: value for name in _OPTIONS if (value := getattr(spec, name)) is not None}
    for name in _MOMENTS.intersection(given):
        try:
            given[name] = seconds_of(given[name], f"{spec.label}: {name}")
        except ValueError as error:
            raise InvalidTask(spec.label, str(error)) from None
    if hasattr(spec.fn, "zkplan_stands_for"):
        given["name"] = spec.called  # else it would be called as all commands
    if not given and not own and defaults is DEFAULT_OPTIONS:
        return defaults
    given = as_options(_as_stored({**own, **given}, spec.label), spec.label, as_json)
    options = replace(defaults, **given)
    check_options(options, spec.label)
    if options.is_isolated and inspect.iscoroutinefunction(inspect.unwrap(spec.fn)):
        if {"isolation", "memory_limit"} & {*own, *given}:
            raise InvalidTask(
                spec.label,
                f"{spec.label} is a coroutine function: coroutines run in the loop of their "
                'worker, so they can have no process of their own. Leave out isolation="process" '
                "and memory_limit, or make it a plain function (asyncio.run)",
            )
        # The defaults of the plan are for its other tasks.
        return replace(options, isolation="thread", memory_limit=None)
    return options


def _as_stored(options: dict[str, Any], label: str) -> dict[str, Any]:
    """Options as records hold them. Changes `options`."""
    if (limit := options.get("memory_limit")) is not None:
        options["memory_limit"] = memory_bytes(limit, label)
    options |= {name: in_seconds(options[name]) for name in _DURATIONS & options.keys()}
    if "limits" in options:
        options["limits"] = as_names(options["limits"])
    return options


def _check_arguments(spec: TaskSpec) -> None:
    if type(spec.args) not in (list, tuple) and (
        isinstance(spec.args, str | bytes) or not isinstance(spec.args, Sequence)
    ):
        raise InvalidTask(
            spec.label,
            f"{spec.label}: its arguments must be a list or tuple, not {kind_of(spec.args)}",
        )
    if type(spec.after) not in (list, tuple):
        raise InvalidTask(
            spec.label, f"{spec.label}: after is a list of tasks, not {kind_of(spec.after)}"
        )
    if spec.kwargs is not None and not (
        isinstance(spec.kwargs, Mapping) and all(isinstance(name, str) for name in spec.kwargs)
    ):
        raise InvalidTask(
            spec.label,
            f"{spec.label}: its keyword arguments must be a dict with names, not "
            f"{kind_of(spec.kwargs)}",
        )


def _check_call(spec: TaskSpec) -> None:
    """Refuse generators, and arguments that do not fit: the call could only fail in a worker."""
    fn, kwargs = spec.fn, spec.kwargs or {}
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise InvalidTask(
            spec.label, f"{spec.label} is a generator; return a list, or add one task for each item"
        )
    try:
        # A decorator may add arguments of its own, so the signature of the wrapper counts.
        signature = inspect.signature(fn, follow_wrapped=False)
    except Exception:  # many builtins have none; a user's class may raise anything
        return
    try:
        signature.bind(*spec.args, **kwargs)
    except TypeError as error:
        raise InvalidTask(
            spec.label,
            f"{spec.label}: its arguments do not fit {function_name(fn)}{signature!s:.200}: "
            f"{error}",
        ) from None
