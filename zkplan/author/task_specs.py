"""Describe tasks: the options that authors may give, TaskSpec, and the calls of Plan.map."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, TypedDict, TypeVar

from ..basics.public_calls import Duration, refuse_other_names
from ..errors import ZkplanError
from ..gates import When
from ..values.function_codec import function_name
from .handles import TaskHandle
from .options import Moment

#: On which outcomes of its predecessors a task runs.
RunIf = Literal["all_succeeded", "all_finished", "any_failed"]
FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


# ---- The options of tasks in the form that authors give. `protocol.task_options` has the table.


class PlanDefaults(TypedDict, total=False):
    """The options that `Client.create_plan` takes as the defaults for the tasks of a plan."""

    attempts: int | None
    retry_delay: Duration | None
    timeout: Duration | None
    priority: int | None
    keep: bool | None
    pure: bool | None
    queue: str | None
    isolation: Literal["thread", "process"] | None
    memory_limit: str | int | None
    limits: Sequence[str] | None
    fatal: Any
    retry_if: Any


class FunctionOptions(PlanDefaults, total=False):
    """The options that `@zkplan.task` takes."""

    name: str | None
    run_if: RunIf | None


class AddOptions(FunctionOptions, total=False):
    """The options that `Plan.add_task` takes."""

    after: Sequence[TaskHandle | TaskSpec | When]
    key: str | None
    not_before: Moment | None
    deadline: Moment | None


def shows(options: type, **defaults: Any) -> Callable[[FunctionT], FunctionT]:
    """Make editors and help() list the options of a function that takes `**options`."""

    def decorate(function: FunctionT) -> FunctionT:
        signature = inspect.signature(function)
        own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        more = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=defaults.get(name),
                annotation=getattr(kind, "__forward_arg__", kind),
            )
            for name, kind in options.__annotations__.items()
        ]
        function.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[*own, *more]
        )
        return function

    return decorate


@dataclass(eq=False)
class TaskSpec:
    """The description of one task for `Plan.add_tasks`.

    A TaskSpec may be an argument of a later task in the same call. Options left at None take the
    plan's defaults. `Plan.add_task` explains the options.
    """

    fn: Callable[..., Any]
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] | None = None
    name: str | None = None
    attempts: int | None = None
    retry_delay: Duration | None = None
    timeout: Duration | None = None
    priority: int | None = None
    keep: bool | None = None
    pure: bool | None = None
    queue: str | None = None
    after: Sequence[TaskHandle | TaskSpec | When] = ()
    isolation: str | None = None
    memory_limit: str | int | None = None
    key: str | None = None
    not_before: Moment | None = None
    deadline: Moment | None = None
    run_if: RunIf | None = None
    fatal: Any = None
    retry_if: Any = None
    limits: Sequence[str] | None = None

    def __new__(cls, *_: Any, **options: Any) -> TaskSpec:
        refuse_other_names(options)
        return super().__new__(cls)

    @property
    def called(self) -> str:
        """The name of the task: `name`, or the decorator's, or the function's."""
        own: dict[str, Any] = getattr(self.fn, "zkplan_options", {})
        return self.name or own.get("name") or function_name(self.fn)

    @property
    def label(self) -> str:
        """How errors name this task."""
        function = function_name(self.fn)
        return f"task {self.name!r} ({function})" if self.name else f"a task of {function}"


# ---- `Plan.map`: many calls of one function as few tasks.


#: With chunksize="auto" the calls make at most this many tasks.
TASKS_MAX = 500
#: The most calls of a map. More most likely mean endless iterables, which would fill the memory.
CALLS_MAX = 5_000_000


def run_chunk(fn: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> list[Any]:
    """The function of a task that makes several calls."""
    values = []
    for args in calls:
        try:
            values.append(fn(*args))
        except Exception as error:
            if sys.version_info >= (3, 11):
                error.add_note(
                    f"call {len(values) + 1} of {len(calls)} in this task: {args!r:.200}"
                )
            raise
    return values


def specs_for(
    fn: Callable[..., Any],
    iterables: Sequence[Iterable[Any]],
    chunksize: int | str,
    given: Mapping[str, Any],
) -> tuple[list[TaskSpec], int, int]:
    """The tasks, the number of calls per task, and of all calls. Raises ZkplanError."""
    if chunksize != "auto" and not (type(chunksize) is int and chunksize >= 1):
        raise ZkplanError(f'chunksize must be "auto" or a number from 1 on, not {chunksize!r}')
    if "key" in given:
        raise ZkplanError(
            "map takes no key, because a key belongs to one task: call add_task for each task"
        )
    calls = list(islice(zip(*iterables, strict=False), CALLS_MAX + 1))
    if len(calls) > CALLS_MAX:
        raise ZkplanError(
            f"a map has at most {CALLS_MAX:,} calls: if its iterables have an end, split them over "
            "several maps, or else take a part (itertools.islice)"
        )
    size = -(-len(calls) // TASKS_MAX) or 1 if chunksize == "auto" else int(chunksize)
    options = {**getattr(fn, "zkplan_options", {}), **given, "keep": True}
    if size == 1:
        return [TaskSpec(fn, args, **options) for args in calls], 1, len(calls)
    name = options.pop("name", None) or function_name(fn)
    # All tasks share one object, so that its bytes are made and stored once.
    chunk = functools.partial(run_chunk, fn)
    specs = [
        TaskSpec(
            chunk,
            (calls[start : start + size],),
            name=f"{name}[{start}:{min(start + size, len(calls))}]",
            **options,
        )
        for start in range(0, len(calls), size)
    ]
    return specs, size, len(calls)
