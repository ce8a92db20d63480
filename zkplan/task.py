"""A task for its author: its description, and the handle that returns its result."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol

from .errors import (
    ForeignTask,
    InvalidTask,
    NotSerialisable,
    PayloadTooLarge,
    PlanError,
    ZkplanError,
)
from .inspection.waiting import wait_for_result
from .protocol.adding import NewTask
from .protocol.layout import PRIORITY_MAX, PRIORITY_MIN, rank_of
from .protocol.records import DEFAULT_OPTIONS, TaskOptions, TaskRecord
from .protocol.shared import REQUEST_BYTES_MAX
from .serialization import codec as codecs
from .serialization.codec import NAME_CHARS_MAX, Codec, function_name
from .tracebacks import told_to_caller

#: How many bytes a task's definition may have: it shares a transaction with the task's edges.
RECORD_BYTES_MAX = REQUEST_BYTES_MAX - 64 * 1024
#: The most edges into one task. Build a wider join as a tree, or its arguments fill up one worker.
EDGES_MAX = 50_000
DELAY_MAX_S = 30 * 24 * 3600.0
_OPTIONS = tuple(each.name for each in fields(TaskOptions))


@dataclass(eq=False)
class TaskSpec:
    """The description of one task for `Plan.add_tasks`.

    It may be an argument of a later task in the same call. Options left at None take the plan's
    defaults. `Plan.add_task` says what each option means.
    """

    fn: Callable[..., Any]
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] | None = None
    name: str | None = None
    attempts: int | None = None
    retry_delay: float | None = None
    timeout: float | None = None
    priority: int | None = None
    keep: bool | None = None
    _new: NewTask | None = field(default=None, init=False, repr=False)

    @property
    def label(self) -> str:
        """How errors name this task."""
        function = function_name(self.fn)
        return f"task {self.name!r} ({function})" if self.name else f"a task of {function}"


class PlanOfTask(Protocol):
    """What the handle of a task needs from its plan. Plan implements it."""

    path: str

    @property
    def client(self) -> Any: ...

    def flush(self) -> None: ...
    def _refuse_to_wait_inside(self) -> None: ...
    def retry_task(self, number: str) -> bool: ...


class Task:
    """A handle on a task. Given as an argument of another task, it stands for its result there."""

    __slots__ = ("_new", "_number", "_plan", "name")

    def __init__(
        self, plan: PlanOfTask, number: str = "", name: str = "", new: NewTask | None = None
    ) -> None:
        self._plan = plan
        self.name = name
        self._number = number
        self._new = new

    @property
    def plan(self) -> Any:
        """The plan of this task. (The type is Any because the module of Plan imports this one.)"""
        return self._plan

    @property
    def number(self) -> str:
        """The ten digits in the name of its znode. Inside a `with` block this sends the adds made
        so far."""
        if not self._number and self._new is not None:
            if not self._new.number:  # else a `with` block would send its adds one by one
                self._plan.flush()
            self._number, self._new = self._new.number, None if self._new.number else self._new
        return self._number

    @property
    def path(self) -> str:
        return f"{self._plan.path}/task-{self.number}"

    @told_to_caller
    def result(self, timeout: float | None = None) -> Any:
        """Wait for the result and return it. `timeout` is in seconds.

        If the task is out of attempts, this raises the function's own exception, or TaskFailed if
        that exception cannot be restored. Raises ResultNotKept and WaitTimeout, and what
        `Plan.wait` raises if the result can never come. Raises PlanError where the wait would never
        end: inside the plan's own `with` block, and for a task that the running task has just
        added.
        """
        self._plan._refuse_to_wait_inside()
        if not self.number:
            raise PlanError(
                self._plan.path,
                f"{self!r} is added when the task that adds it commits, so that one cannot wait "
                "for it; give it as an argument to another task",
            )
        return wait_for_result(self._plan.client, self._plan.path, self.number, self.name, timeout)

    def retry(self) -> bool:
        """Make a dead task runnable again, with all its attempts. Returns False if it is not
        dead."""
        return self._plan.retry_task(self.number)

    def _key(self) -> str | NewTask:
        """What an edge to this task refers to: its number, or its definition if it has no number
        yet."""
        if self._new is not None and not self._new.number:
            return self._new
        return self.number

    def __repr__(self) -> str:
        number = self._number or (self._new.number if self._new is not None else "")
        return f"<Task {self.name or number or '(not sent yet)'} of {self._plan.path}>"

    def __reduce__(self) -> Any:
        raise NotSerialisable(
            f"{self!r} is a handle, which becomes an edge only as an argument of a task (at any "
            "depth in lists, tuples, dicts and sets). A handle cannot be a result, nor stand in a "
            "closure: add a task that takes it as an argument"
        )


def define_all(
    specs: Sequence[TaskSpec], plan_path: str, codec: Codec, defaults: TaskOptions
) -> list[NewTask]:
    """Check and serialise tasks. Each may have those before it as arguments. Raises as `define`."""
    functions: dict[int, bytes] = {}
    signatures: dict[int, inspect.Signature | None] = {}
    try:
        return [define(spec, plan_path, codec, defaults, functions, signatures) for spec in specs]
    finally:
        for spec in specs:
            spec._new = None  # it is an argument within this call only


def define(
    spec: TaskSpec,
    plan_path: str,
    codec: Codec,
    defaults: TaskOptions,
    functions: dict[int, bytes],
    signatures: dict[int, inspect.Signature | None] | None = None,
) -> NewTask:
    """Check and serialise one task. Sends nothing; every error names the task.

    `functions` caches the bytes and `signatures` the signatures of functions that were met earlier
    in the same call.
    """
    options = _options(spec, defaults)
    _check_arguments(spec)
    _check_call(spec, {} if signatures is None else signatures)
    function = functions.get(id(spec.fn))
    if function is None:
        with _serialising(f"{spec.label}: the function {spec.fn!r}"):
            function = functions[id(spec.fn)] = codecs.dump_function(spec.fn)
    deps: list[str | NewTask] = []
    places: dict[str | NewTask, int] = {}

    def position_of(value: Any) -> int | None:
        kind = type(value)
        if kind is Task:
            if value.plan.path != plan_path:
                raise ForeignTask(
                    spec.label, f"{spec.label} has {value!r} as an argument, a task of another plan"
                )
            key = value._key()
        elif kind is TaskSpec:
            if value._new is None:
                raise InvalidTask(
                    spec.label,
                    f"{spec.label} has {value.label} as an argument, which is not added before it",
                )
            key = value._new
        else:
            return None
        place = places.get(key)
        if place is None:
            place = places[key] = len(deps)
            deps.append(key)
        return place

    arguments = _dump_call(spec, position_of)
    if len(deps) > EDGES_MAX:
        raise InvalidTask(
            spec.label,
            f"{spec.label} has {len(deps)} tasks as arguments, the limit is {EDGES_MAX}: join them "
            "in groups first",
        )
    body = TaskRecord(len(deps), options.to_json(), function, arguments).to_bytes()
    record = codec.seal(codecs.TASK, body)
    if len(record) > RECORD_BYTES_MAX:
        raise PayloadTooLarge(
            f"{spec.label}: its function and constant arguments", len(record), RECORD_BYTES_MAX
        )
    spec._new = NewTask(spec.label, rank_of(options.priority), record, deps)
    return spec._new


def _options(spec: TaskSpec, defaults: TaskOptions) -> TaskOptions:
    if not callable(spec.fn):
        raise InvalidTask(spec.label, f"a task needs a function, not {spec.fn!r}")
    if inspect.isgeneratorfunction(spec.fn) or inspect.isasyncgenfunction(spec.fn):
        raise InvalidTask(
            spec.label, f"{spec.label} is a generator; return a list, or add one task for each item"
        )
    given = {name: value for name in _OPTIONS if (value := getattr(spec, name)) is not None}
    if not given and defaults is DEFAULT_OPTIONS:
        return defaults
    options = replace(defaults, **given)
    check_options(options, spec.label)
    return options


def _check_arguments(spec: TaskSpec) -> None:
    if type(spec.args) not in (list, tuple) and (
        isinstance(spec.args, str | bytes) or not isinstance(spec.args, Sequence)
    ):
        raise InvalidTask(
            spec.label,
            f"{spec.label}: its arguments must be a list or tuple, not {spec.args!r:.100}",
        )
    if spec.kwargs is not None and not (
        isinstance(spec.kwargs, Mapping) and all(isinstance(name, str) for name in spec.kwargs)
    ):
        raise InvalidTask(
            spec.label,
            f"{spec.label}: its keyword arguments must be a dict with names, not "
            f"{spec.kwargs!r:.100}",
        )


def _check_call(spec: TaskSpec, signatures: dict[int, inspect.Signature | None]) -> None:
    """Refuse arguments that do not fit the function: the call could only fail in a worker."""
    fn, kwargs = spec.fn, spec.kwargs or {}
    if id(fn) not in signatures:
        try:
            # A decorator may add arguments of its own, so the signature of the wrapper counts.
            signatures[id(fn)] = inspect.signature(fn, follow_wrapped=False)
        except Exception:  # many builtins have none; a user's class may raise anything
            signatures[id(fn)] = None
    signature = signatures[id(fn)]
    if signature is None:
        return
    try:
        signature.bind(*spec.args, **kwargs)
    except TypeError as error:
        raise InvalidTask(
            spec.label,
            f"{spec.label}: its arguments do not fit {function_name(fn)}{signature!s:.200}: "
            f"{error}",
        ) from None


def check_options(options: TaskOptions, label: str) -> None:
    """Raises InvalidTask, which names the option and its bounds."""

    def demand(fits: bool, what: str) -> None:
        if not fits:
            raise InvalidTask(label, f"{label}: {what}")

    def seconds(value: object) -> bool:
        # True is a number in Python, but a record that holds it could not be decoded.
        return isinstance(value, int | float) and not isinstance(value, bool)

    demand(
        isinstance(options.name, str)
        and len(options.name) <= NAME_CHARS_MAX
        and options.name.isprintable(),
        f"name: at most {NAME_CHARS_MAX} printable characters, unlike {options.name!r:.50}",
    )
    demand(
        type(options.attempts) is int and 1 <= options.attempts <= 1000,
        f"attempts must be 1 to 1000, not {options.attempts!r}",
    )
    demand(
        seconds(options.retry_delay) and 0 <= options.retry_delay <= DELAY_MAX_S,
        f"retry_delay must be 0 to {DELAY_MAX_S:g} seconds, not {options.retry_delay!r}",
    )
    demand(
        options.timeout is None
        or (seconds(options.timeout) and 0 < options.timeout <= DELAY_MAX_S),
        f"timeout must be above 0 and at most {DELAY_MAX_S:g} seconds, not {options.timeout!r}",
    )
    demand(
        type(options.priority) is int and PRIORITY_MIN <= options.priority <= PRIORITY_MAX,
        f"priority must be {PRIORITY_MIN} to {PRIORITY_MAX}, not {options.priority!r}",
    )
    demand(
        options.keep is None or type(options.keep) is bool,
        f"keep must be True, False or None, not {options.keep!r}",
    )


@contextmanager
def _serialising(what: str) -> Iterator[None]:
    try:
        yield
    except ZkplanError:
        raise
    except Exception as error:
        raise NotSerialisable(
            f"{what} cannot be serialised: {type(error).__name__}: {error}"
        ) from error


def _dump_call(spec: TaskSpec, position_of: Callable[[Any], int | None]) -> bytes:
    kwargs = spec.kwargs or {}
    try:
        return codecs.dump_call(spec.args, kwargs, position_of)
    except ZkplanError:
        raise
    except Exception as error:
        failure = error
    for name, value in (*enumerate(spec.args), *kwargs.items()):
        with _serialising(f"{spec.label}: its argument {name!r} ({value!r:.100})"):
            codecs.dump(value, position_of)
    with _serialising(f"{spec.label}: its arguments"):
        raise failure
