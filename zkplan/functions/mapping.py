"""`Plan.map`: many calls of one function as few tasks."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

from ..errors import ZkplanError
from ..serialization.functions import function_name
from .task_spec import TaskSpec

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
