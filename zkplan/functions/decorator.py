"""The decorator `@zkplan.task`: a function whose call adds a task while a plan is being built."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Literal, Protocol, overload

from ..basics.durations import Duration
from ..basics.other_names import refuse_other_names
from ..errors import InvalidTask
from ..serialization.functions import function_name
from .task_spec import RunIf


class PlanOpen(Protocol):
    """What a decorated function needs of the plan that is being built. Plan implements it."""

    def add_task(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any: ...


#: The plans in whose `with` blocks the code runs, the innermost last.
open_plans: ContextVar[tuple[PlanOpen, ...]] = ContextVar("zkplan_open_plans", default=())


class TaskFunction:
    """A function with options for its tasks. It is called as it is, but inside the `with` block of
    a plan: there a call adds a task and returns its handle."""

    def __init__(self, fn: Callable[..., Any], options: dict[str, Any]) -> None:
        functools.update_wrapper(self, fn)
        self.__signature__ = _signature(fn)
        self._fn = fn
        #: What `Plan.add_task` takes where the call itself does not say otherwise.
        self.zkplan_options = options

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        plans = open_plans.get()
        if plans:
            return plans[-1].add_task(self, args, kwargs)
        return self._fn(*args, **kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if instance is None:
            return self
        raise TypeError(
            f"{function_name(self._fn)} is a method: @zkplan.task is for functions, since a task "
            "would need the object that the method belongs to"
        )

    def __repr__(self) -> str:
        return f"<zkplan.task {function_name(self._fn)}>"


@overload
def task(fn: Callable[..., Any], /) -> TaskFunction: ...
@overload
def task(
    *,
    name: str | None = None,
    attempts: int | None = None,
    retry_delay: Duration | None = None,
    timeout: Duration | None = None,
    priority: int | None = None,
    keep: bool | None = None,
    pure: bool | None = None,
    queue: str | None = None,
    isolation: Literal["thread", "process"] | None = None,
    memory_limit: str | int | None = None,
    limits: Sequence[str] | None = None,
    run_if: RunIf | None = None,
    fatal: Any = None,
    retry_if: Any = None,
) -> Callable[[Callable[..., Any]], TaskFunction]: ...
def task(fn: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a function whose calls in the `with` block of a plan add tasks.

    >>> @task(attempts=5)
    ... def double(x):
    ...     return 2 * x
    >>> double(4)
    8

    Inside `with client.create_plan() as plan:` the call `double(4)` adds a task to the plan of the
    innermost block and returns its handle, which may be an argument of the next call. Everywhere
    else, also inside a running task, it calls the function. The options are those of
    `Plan.add_task`; they hold, too, where the function is given to `Plan.add_task`, unless that
    says otherwise. Raises InvalidTask for what is not a function, and TypeError for an unknown
    option.
    """
    refuse_other_names(options)
    unknown = set(options) - set(OPTIONS)
    if unknown:
        raise TypeError(f"@zkplan.task has no option {', '.join(sorted(unknown))}")
    if fn is not None and not callable(fn):
        raise InvalidTask("", f"@zkplan.task is for a function, not for {fn!r}")

    def decorate(fn: Callable[..., Any]) -> TaskFunction:
        return TaskFunction(fn, options)

    return decorate if fn is None else decorate(fn)


OPTIONS = (
    *("name", "attempts", "retry_delay", "timeout", "priority", "keep", "pure", "queue"),
    *("isolation", "memory_limit", "limits", "run_if", "fatal", "retry_if"),
)


def _signature(fn: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(fn)
    except (TypeError, ValueError):  # many builtins have none
        return None
