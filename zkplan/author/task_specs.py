"""Describe a task with TaskSpec, and the calls of Plan.map as few tasks."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Literal

from ..basics.public_calls import Duration, refuse_other_names
from ..errors import ZkplanError
from ..gates import When
from ..protocol.core.add import NewTask
from ..values.function_codec import function_name

#: When a task runs, by how those ended that it waits for.
RunIf = Literal["all_succeeded", "all_finished", "any_failed"]


class TaskHandle:
    """What becomes an edge where it is an argument of a task. Task is the only one."""

    __slots__ = ()

    @property
    def plan(self) -> Any:
        """The plan of the task."""
        raise NotImplementedError

    def _taken(self) -> str | NewTask:
        """What an edge to the task refers to. The handle notes that another task takes it."""
        raise NotImplementedError


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
    not_before: datetime | timedelta | float | None = None
    deadline: datetime | timedelta | float | None = None
    run_if: RunIf | None = None
    fatal: Any = None
    retry_if: Any = None
    limits: Sequence[str] | None = None
    _new: NewTask | None = field(default=None, init=False, repr=False)

    def __new__(cls, *_: Any, **options: Any) -> TaskSpec:
        refuse_other_names(options)
        return super().__new__(cls)

    @property
    def called(self) -> str:
        """The name of the task: that given here, that of the decorator, or the function's."""
        own: dict[str, Any] = getattr(self.fn, "zkplan_options", {})
        return self.name or own.get("name") or function_name(self.fn)

    @property
    def label(self) -> str:
        """How errors name this task."""
        function = function_name(self.fn)
        return f"task {self.name!r} ({function})" if self.name else f"a task of {function}"


# ---- `Plan.map`: many calls of one function as few tasks.


#: With chunksize="auto" the calls make at most so many tasks.
TASKS_MAX = 500
#: At most so many calls: more are most likely an iterable without an end, which fills the memory.
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
    options: dict[str, Any],
) -> tuple[list[TaskSpec], int, int]:
    """The tasks, the number of calls in each, and the number of calls. Raises ZkplanError."""
    if chunksize != "auto" and not (type(chunksize) is int and chunksize >= 1):
        raise ZkplanError(f'chunksize must be "auto" or a number from 1 on, not {chunksize!r}')
    if "key" in options:
        raise ZkplanError("a map has many tasks, and a key names one: give each add_task its key")
    calls = list(islice(zip(*iterables, strict=False), CALLS_MAX + 1))
    if len(calls) > CALLS_MAX:
        raise ZkplanError(
            f"a map has at most {CALLS_MAX:,} calls: do its iterables have no end? Give it a part "
            "of them (itertools.islice), or several maps"
        )
    size = -(-len(calls) // TASKS_MAX) or 1 if chunksize == "auto" else int(chunksize)
    options = {**getattr(fn, "zkplan_options", {}), **options, "keep": True}
    if size == 1:
        return [TaskSpec(fn, args, **options) for args in calls], 1, len(calls)
    name = options.pop("name", None) or function_name(fn)
    # One object for all tasks: its bytes are made, and stored, once.
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
