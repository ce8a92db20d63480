"""Define tasks: check the call, encode the function and its arguments, find its edges, and write
its record."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from math import ceil
from operator import attrgetter
from typing import Any

from ..basics.public_calls import in_seconds
from ..errors import ForeignTask, InvalidTask, NotSerialisable, PayloadTooLarge, ZkplanError
from ..gates import When
from ..protocol.core.add import NewTask
from ..protocol.layout import OWN_LIMIT, lane_of, rank_of
from ..protocol.records import SOURCE_BYTES, TaskRecord
from ..protocol.task_options import DEFAULT_OPTIONS, RUN_IF, TaskOptions
from ..protocol.transactions import REQUEST_BYTES_MAX
from ..values import codec as codecs
from ..values.function_codec import dump_function, function_name
from ..values.functions_by_name import dump_kind, dump_name
from ..values.json_values import NotJson, dump_json, kind_of
from ..values.pickle_by_value import not_serialisable
from ..values.plan_values import Values
from .functions import Kind, NamedFunction, task_kind
from .gates import Gates
from .options import as_names, as_options, check_key, check_options, memory_bytes, seconds_of
from .task_specs import TaskHandle, TaskSpec, run_chunk


def dump_function_pickled(
    spec: TaskSpec, fn: Callable[..., Any], plan_path: str, values: Values
) -> bytes:
    """The function, or a reference to it in the store. Raises NotSerialisable."""
    try:
        dumped = dump_function(fn)
    except ZkplanError:
        raise
    except Exception as error:
        what = f"{spec.label}: the function {function_name(fn)}"
        raise not_serialisable(what, fn, error) from error
    return values.function(plan_path, dumped)


def dump_call_pickled(
    spec: TaskSpec,
    args: Sequence[Any],
    plan_path: str,
    values: Values,
    position_of: Callable[[Any], int | None],
) -> bytes:
    """The arguments. Raises NotSerialisable, which names the argument."""
    kwargs = spec.kwargs or {}
    try:
        return values.dump_call(plan_path, args, dict(kwargs), position_of)
    except ZkplanError:
        raise
    except Exception as error:
        failure = error
    reduce_task = codecs.task_reducer(position_of)
    for name, value in (*enumerate(args), *kwargs.items()):
        try:
            codecs.dump(value, position_of)
        except ZkplanError:
            raise
        except Exception as error:
            what = f"{spec.label}: its argument {name!r}, {kind_of(value)},"
            raise not_serialisable(what, value, error, reduce_task) from error
    raise not_serialisable(f"{spec.label}: its arguments", None, failure) from failure


# ---- Tasks of plans with serializer json: functions by name, arguments as JSON, or a clear
# refusal.


def dump_function_json(spec: TaskSpec, fn: Callable[..., Any]) -> bytes:
    """The name of the function. Raises NotSerialisable, which says what to do."""
    if kind := task_kind(fn):
        return dump_kind(kind)
    if type(fn) is NamedFunction:
        return fn.zkplan_dumped
    of_each = each_of(fn)
    if task_kind(of_each):
        raise NotSerialisable(
            f"{spec.label}: a map makes tasks of a function, not of a kind: add one task for each "
            "item with add_tasks"
        )
    if hasattr(of_each, "zkplan_stands_for"):
        raise NotSerialisable(
            f"{spec.label}: with serializer json a task of a map makes one command: give map "
            "chunksize=1"
        )
    try:
        return dump_name(fn if of_each is None else of_each, each=of_each is not None)
    except ValueError as error:
        raise NotSerialisable(
            f"{spec.label}: with serializer json a function travels by its name, and "
            f"{function_name(fn)} cannot: {error}"
        ) from None


def dump_call_json(
    spec: TaskSpec,
    args: Sequence[Any],
    plan_path: str,
    values: Values,
    position_of: Callable[[Any], int | None],
) -> bytes:
    """The arguments. Raises NotSerialisable, which names the argument and the place in it."""
    why, kwargs = getattr(spec.fn, "zkplan_not_json", ""), spec.kwargs or {}
    if why:
        raise NotSerialisable(f"{spec.label}: {why}")
    if each_of(spec.fn) is not None:
        # The calls of one task of a map: each is a tuple, because a function is called with it.
        args = [[[*call] for call in calls] for calls in args]
    try:
        return values.dump_call_json(plan_path, args, kwargs, position_of)
    except NotJson as error:
        failure = error
    for name, value in (*enumerate(args), *kwargs.items()):
        try:
            dump_json(value, position_of)
        except NotJson as error:
            raise NotSerialisable(f"{spec.label}: its argument {name!r}: {error}") from None
    raise NotSerialisable(f"{spec.label}: its arguments: {failure}")


def each_of(fn: Callable[..., Any]) -> Callable[..., Any] | None:
    """The function that a task of `Plan.map` calls for each item; None for any other function."""
    if isinstance(fn, functools.partial) and fn.func is run_chunk:
        return fn.args[0]  # type: ignore[no-any-return]
    return None


# ---- Define tasks: check what the author gives, serialise it, and find its edges.


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
