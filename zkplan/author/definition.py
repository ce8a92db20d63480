"""Define tasks: check and serialise the author's specs, find the edges, and make the records."""

from __future__ import annotations

import functools
import inspect
import operator
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import Any

from ..errors import ForeignTask, InvalidTask, NotSerialisable, PayloadTooLarge, ZkplanError
from ..gates import When
from ..protocol.core.add import NewTask
from ..protocol.layout import OWN_LIMIT, lane_of, rank_of
from ..protocol.records import SOURCE_BYTES, TaskRecord
from ..protocol.task_options import DEFAULT_OPTIONS, RUN_IF, At, TaskOptions, options_at
from ..protocol.transactions import REQUEST_BYTES_MAX
from ..values import codec as codecs
from ..values.function_codec import dump_function, function_name
from ..values.functions_by_name import dump_kind, dump_name
from ..values.json_values import NotJson, dump_json, kind_of
from ..values.pickle_by_value import not_serialisable
from ..values.plan_values import Values
from .constants import Constant, Constants
from .functions import Kind, NamedFunction, task_kind
from .gates import Gates
from .handles import TaskHandle
from .options import check_key, with_options
from .task_specs import TaskSpec, run_chunk

#: The most bytes of a task's definition, which shares a transaction with the task's edges.
RECORD_BYTES_MAX = REQUEST_BYTES_MAX - 64 * 1024
#: The most edges into one task. The arguments of a wider join could fill the memory of a worker.
EDGES_MAX = 50_000
_OPTIONS = options_at(At.TASK)
_options_in: Callable[[TaskSpec], tuple[Any, ...]] = operator.attrgetter(*_OPTIONS)
_NONE: dict[str, Any] = {}
#: Returns the position of the edge that a value becomes, or None for a constant.
PositionOf = Callable[[Any], "int | None"]


# ---- Check a task: that its options are valid, and that the call fits the function.


#: The most functions that a `Checker` remembers, and the most different calls of each.
CHECKED_MAX = 1000
_NO_OPTIONS = (None,) * len(_OPTIONS)


class Checker:
    """Checks the tasks of one plan. Equal options and calls are checked only once."""

    def __init__(self, defaults: TaskOptions = DEFAULT_OPTIONS, as_json: bool = False) -> None:
        self.defaults, self._as_json = defaults, as_json
        #: What is known of each function, by its ID.
        self._known: dict[int, _Checked] = {}

    def check(self, spec: TaskSpec, unchanged: dict[int, _Checked] | None = None) -> TaskOptions:
        """The options of the task. Raises InvalidTask if options or arguments do not fit.

        `unchanged` collects the functions of one call of `add_tasks`, which are compared once.
        """
        known = None if unchanged is None else unchanged.get(id(spec.fn))
        if known is None:
            known = self._known.get(id(spec.fn))
            if known is None or not known.is_of(spec.fn):
                known = _Checked(spec.fn)
                _make_room(self._known)
                self._known[id(spec.fn)] = known
            if unchanged is not None:
                unchanged[id(spec.fn)] = known
        options = self._options_of(spec, known)
        if spec.key is not None:
            check_key(spec.key, spec.label, f"{spec.label}: its key")
        _check_arguments(spec)
        if type(spec.fn) is When:
            return options  # `Gates` checks the rest
        call = (len(spec.args), *(spec.kwargs or _NONE))
        if call not in known.calls:
            _check_call(spec)
            _make_room(known.calls)
            known.calls[call] = None
        return options

    def _options_of(self, spec: TaskSpec, known: _Checked) -> TaskOptions:
        rule = known.rule if spec.retry_if is None else spec.retry_if
        if not (spec.not_before is spec.deadline is None) or callable(rule):
            # A delay counts from now on, and a function may change.
            return _options(spec, self.defaults, self._as_json)
        given = values = _options_in(spec)
        if values != _NO_OPTIONS:
            given = (*values, *map(type, values))  # True is not 1 here
        try:
            options = known.options.get(given)
        except TypeError:  # not hashable: a list, or a wrong value
            return _options(spec, self.defaults, self._as_json)
        if options is None:
            options = _options(spec, self.defaults, self._as_json)
            _make_room(known.options)
            known.options[given] = options
        return options


_STATE = ("__code__", "__defaults__", "__kwdefaults__", "zkplan_options")


class _Checked:
    """What is known of a function as it was when it was checked. Does not keep it alive."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        try:
            self._fn: Callable[[], object] = weakref.ref(fn)
        except TypeError:
            self._fn = lambda: None
        self._state = _state_of(fn)
        #: Its own rule for retries.
        self.rule = getattr(fn, "zkplan_options", _NONE).get("retry_if")
        #: Calls that fit: the number of positional arguments, and the names of the others.
        self.calls: dict[tuple[object, ...], None] = {}
        #: The full options, by the options of a spec.
        self.options: dict[tuple[object, ...], TaskOptions] = {}

    def is_of(self, fn: Callable[..., Any]) -> bool:
        return self._fn() is fn and all(map(operator.is_, self._state, _state_of(fn)))


def _state_of(fn: Callable[..., Any]) -> tuple[object, ...]:
    """What a reload in a notebook replaces in the same function or class."""
    # Of an object, `__init__` would be a method that keeps the object alive.
    init = getattr(fn, "__init__", None) if isinstance(fn, type) else None
    return init, *(getattr(fn, name, None) for name in _STATE)


def _make_room(remembered: dict[Any, Any]) -> None:
    if len(remembered) >= CHECKED_MAX:
        remembered.clear()


def _options(spec: TaskSpec, defaults: TaskOptions, as_json: bool) -> TaskOptions:
    if not callable(spec.fn):
        raise InvalidTask(spec.label, f"a task needs a function, not {kind_of(spec.fn)}")
    # A function that `@zkplan.task` has decorated has options of its own.
    given: dict[str, Any] = dict(getattr(spec.fn, "zkplan_options", _NONE))
    given |= {name: value for name in _OPTIONS if (value := getattr(spec, name)) is not None}
    if hasattr(spec.fn, "zkplan_stands_for"):
        given["name"] = spec.called  # else all commands would have the same name
    if not given and defaults is DEFAULT_OPTIONS:
        return defaults
    options = with_options(defaults, given, spec.label, as_json)
    if options.is_isolated and inspect.iscoroutinefunction(inspect.unwrap(spec.fn)):
        if {"isolation", "memory_limit"} & given.keys():
            raise InvalidTask(
                spec.label,
                f"{spec.label} is a coroutine function: coroutines run in the loop of their "
                'worker, so they cannot have processes of their own. Leave out isolation="process" '
                "and memory_limit, or give a plain function that calls asyncio.run",
            )
        # The isolation in the plan's defaults is for its other tasks.
        return replace(options, isolation="thread", memory_limit=None)
    return options


def _check_arguments(spec: TaskSpec) -> None:
    what = ""
    if type(spec.args) not in (list, tuple) and (
        isinstance(spec.args, str | bytes) or not isinstance(spec.args, Sequence)
    ):
        what = f"its arguments must be a list or tuple, not {kind_of(spec.args)}"
    elif type(spec.after) not in (list, tuple):
        what = f"after must be a list of tasks, not {kind_of(spec.after)}"
    elif spec.kwargs is not None and not (
        isinstance(spec.kwargs, Mapping) and all(isinstance(name, str) for name in spec.kwargs)
    ):
        what = f"its keyword arguments must be a dict with names, not {kind_of(spec.kwargs)}"
    if what:
        raise InvalidTask(spec.label, f"{spec.label}: {what}")


def _check_call(spec: TaskSpec) -> None:
    """Refuse generators, and arguments that do not fit: the call would only fail in a worker."""
    fn = spec.fn
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise InvalidTask(
            spec.label, f"{spec.label} is a generator: return a list, or add one task for each item"
        )
    try:
        # The wrapper's own signature counts, because a decorator may add arguments.
        signature = inspect.signature(fn, follow_wrapped=False)
    except Exception:  # many builtins have no signature; a user's class may raise anything
        return
    try:
        signature.bind(*spec.args, **spec.kwargs or _NONE)
    except TypeError as error:
        raise InvalidTask(
            spec.label,
            f"{spec.label}: its arguments do not fit {function_name(fn)}{signature!s:.200}: "
            f"{error}",
        ) from None


# ---- Serialise a task of a plan with serializer pickle.


def _dump_function_pickled(
    spec: TaskSpec, fn: Callable[..., Any], plan_path: str, values: Values
) -> bytes:
    """The bytes of the function, or of a reference to the store. Raises NotSerialisable."""
    try:
        dumped = dump_function(fn)
    except ZkplanError:
        raise
    except Exception as error:
        what = f"{spec.label}: the function {function_name(fn)}"
        raise not_serialisable(what, fn, error) from error
    return values.function(plan_path, dumped)


def _dump_call_pickled(
    spec: TaskSpec,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    plan_path: str,
    values: Values,
    position_of: PositionOf,
) -> bytes:
    """The arguments. Raises NotSerialisable, which names the argument."""
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


# ---- Serialise a task of a plan with serializer json: the function by name, arguments as JSON.


def _dump_function_json(spec: TaskSpec, fn: Callable[..., Any]) -> bytes:
    """The name of the function. Raises NotSerialisable, which says what to do."""
    if kind := task_kind(fn):
        return dump_kind(kind)
    if type(fn) is NamedFunction:
        return fn.zkplan_dumped
    of_each = _of_each(fn)
    if task_kind(of_each):
        raise NotSerialisable(
            f"{spec.label}: map takes a function, not a kind: add one task for each item with "
            "add_tasks"
        )
    if hasattr(of_each, "zkplan_stands_for"):
        raise NotSerialisable(
            f"{spec.label}: with serializer json each task of a map runs one command: call map "
            "with chunksize=1"
        )
    try:
        return dump_name(fn if of_each is None else of_each, each=of_each is not None)
    except ValueError as error:
        raise NotSerialisable(
            f"{spec.label}: with serializer json a function travels by its name, which "
            f"{function_name(fn)} cannot: {error}"
        ) from None


def _dump_call_json(
    spec: TaskSpec,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    plan_path: str,
    values: Values,
    position_of: PositionOf,
) -> bytes:
    """The arguments. Raises NotSerialisable, which names the argument and the place inside it."""
    if why := getattr(spec.fn, "zkplan_not_json", ""):
        raise NotSerialisable(f"{spec.label}: {why}")
    if _of_each(spec.fn) is not None:
        # The calls of one task of a map are tuples of arguments, which JSON does not have.
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


def _of_each(fn: Callable[..., Any]) -> Callable[..., Any] | None:
    """The function that a task of `Plan.map` calls for each item; None for any other function."""
    if isinstance(fn, functools.partial) and fn.func is run_chunk:
        return fn.args[0]  # type: ignore[no-any-return]
    return None


# ---- Define the tasks of one call.


class Definer:
    """Defines the tasks of one `Plan.add_tasks`. Each task may take earlier ones as arguments.

    `own_limit` means that the plan has `max_running`, a limit of its own. Nothing is sent.
    """

    def __init__(
        self,
        plan_path: str,
        values: Values,
        *,
        checker: Checker | None = None,
        defaults: TaskOptions = DEFAULT_OPTIONS,
        as_json: bool = False,
        own_limit: bool = False,
        constants: Constants | None = None,
    ) -> None:
        """`checker` is one that has these defaults. Without `constants` nothing is shared."""
        self._plan_path, self._values = plan_path, values
        self._as_json, self._own_limit = as_json, own_limit
        self._constants = constants
        self._checker = checker or Checker(defaults, as_json)
        self._gates = Gates(plan_path, values, defaults, as_json)
        #: The bytes of functions, by the identity of the function.
        self._functions: dict[int, bytes] = {}
        #: The new task of each spec, by the identity of the spec.
        self._made: dict[int, NewTask] = {}
        #: The functions of this call, which are compared once.
        self._unchanged: dict[int, _Checked] = {}

    @property
    def gates(self) -> list[NewTask]:
        """The gates that tasks take as arguments. They are added before the tasks."""
        return self._gates.made

    def define(self, spec: TaskSpec) -> NewTask:
        """Check and serialise one task. Every error names the task.

        Raises InvalidTask, ForeignTask, NotSerialisable, PayloadTooLarge and StoreUnavailable.
        """
        options = self._checker.check(spec, self._unchanged)
        fn, args = spec.fn, spec.args
        if type(fn) is When:
            new = self._gates.define(spec, fn)
        else:
            self._refuse_for_serializer(spec, options)
            if (stands_for := getattr(fn, "zkplan_stands_for", None)) is not None:  # a command
                fn, args = stands_for[0], [stands_for[1], *args]
            new = self._define(spec, options, fn, args)
        self._made[id(spec)] = new
        return new

    def _refuse_for_serializer(self, spec: TaskSpec, options: TaskOptions) -> None:
        if not self._as_json and type(spec.fn) is Kind:
            raise InvalidTask(
                spec.label,
                f"{spec.label}: a task of a kind needs JSON, but this plan has serializer pickle: "
                'connect with serializer="json" to create a plan for it',
            )
        if self._as_json and options.is_isolated:
            raise InvalidTask(
                spec.label,
                f"{spec.label}: a task with serializer json cannot have its own process: leave out "
                'isolation="process" and memory_limit',
            )

    def _define(
        self, spec: TaskSpec, options: TaskOptions, fn: Callable[..., Any], args: Sequence[Any]
    ) -> NewTask:
        function = self._functions.get(id(fn)) or self._dump_function(spec, fn)
        if self._constants is not None and not self._as_json:
            function = self._constants.share_function(function, spec.label)
            self._functions[id(fn)] = function
        deps: list[str | NewTask] = []
        places: dict[str | NewTask, int] = {}
        constants: dict[str, int] = {}
        kwargs = spec.kwargs or _NONE
        if self._constants is not None:
            args, kwargs = self._constants.replace(args, kwargs, as_json=self._as_json)

        def position_of(value: Any, take: bool = True) -> int | None:
            kind = type(value)
            if issubclass(kind, TaskHandle):
                key = self._handle(spec, value)
            elif kind is TaskSpec:
                key = self._earlier(spec, value)
            elif kind is When:
                key = self._gates.of(value, spec, options, len(deps), take=take)
            elif kind is Constant:
                # They come after the values of the edges, the first one last.
                return -1 - constants.setdefault(self._shared(spec, value), len(constants))
            else:
                return None
            place = places.get(key)
            if place is None:
                place = places[key] = len(deps)
                deps.append(key)
            return place

        for each in spec.after:
            # No argument refers to this edge, which only orders the two tasks.
            position = position_of(each, take=False)
            if position is None or position < 0:
                raise InvalidTask(
                    spec.label, f"{spec.label}: after must be a list of tasks, not {each!r}"
                )
        dump = _dump_call_json if self._as_json else _dump_call_pickled
        arguments = dump(spec, args, kwargs, self._plan_path, self._values, position_of)
        if constants:
            options = replace(options, constants=tuple(constants))
        task = TaskRecord(len(deps), options.to_json(), function, arguments)
        record = self._values.codec.seal(codecs.TASK, task.to_bytes())
        _check_size(spec, len(deps), len(record))
        limits = (*options.limits, OWN_LIMIT) if self._own_limit else options.limits
        kind = task_kind(fn) if self._as_json else ""
        return NewTask(
            label=spec.label,
            rank=rank_of(options.priority),
            record=record,
            deps=deps,
            keep=options.keep,
            queue=lane_of(options.queue, limits, kind) if limits or kind else options.queue,
            key=spec.key or "",
            not_before_ms=ceil(1000 * (options.not_before or 0.0)),  # rounded up: never too early
            takes_failures=options.run_if != RUN_IF[0],
            name=options.name or function_name(spec.fn),
        )

    def _handle(self, spec: TaskSpec, handle: TaskHandle) -> str | NewTask:
        if handle.plan.path != self._plan_path:
            raise ForeignTask(
                spec.label, f"{spec.label} has {handle!r} as an argument, a task of another plan"
            )
        return handle._taken()

    def _earlier(self, spec: TaskSpec, argument: TaskSpec) -> NewTask:
        new = self._made.get(id(argument))
        if new is None:
            raise InvalidTask(
                spec.label,
                f"{spec.label} has {argument.label} as an argument, which is not an earlier spec "
                "of this call",
            )
        new.feeds = True
        return new

    def _shared(self, spec: TaskSpec, constant: Constant) -> str:
        """The reference to a constant, in hexadecimal."""
        if constant.plan_path != self._plan_path or self._constants is None:
            raise ForeignTask(
                spec.label, f"{spec.label} has {constant!r} as an argument, not one of its own plan"
            )
        return self._constants.take(constant).hex()

    def _dump_function(self, spec: TaskSpec, fn: Callable[..., Any]) -> bytes:
        if self._as_json:
            dumped = _dump_function_json(spec, fn)
        else:
            dumped = _dump_function_pickled(spec, fn, self._plan_path, self._values)
        self._functions[id(fn)] = dumped
        return dumped


def _check_size(spec: TaskSpec, edges: int, record_bytes: int) -> None:
    if edges > EDGES_MAX:
        raise InvalidTask(
            spec.label,
            f"{spec.label} has {edges} tasks as arguments, but at most {EDGES_MAX} fit: join them "
            "in groups first",
        )
    size = record_bytes + SOURCE_BYTES * edges
    if size > RECORD_BYTES_MAX:
        raise PayloadTooLarge(
            f"{spec.label}: its function and constant arguments", size, RECORD_BYTES_MAX
        )
