"""`Plan.map`: many calls of one function as few tasks, and their results as a sequence."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, takewhile
from typing import Any, overload

from ..errors import NotSerialisable, ZkplanError
from ..serialization.functions import function_name
from ..tasks import Task, TaskSpec
from ..waiting.outcomes import read_outcomes, with_reads

#: With chunksize="auto" the calls make at most so many tasks.
TASKS_MAX = 500
#: At most so many calls: more are most likely an iterable without an end, which fills the memory.
CALLS_MAX = 5_000_000
#: Iterating reads the outcomes of so many tasks ahead, but no more than so many bytes.
AHEAD, AHEAD_BYTES = 100, 8 * 1024 * 1024


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


class MapResults(Sequence[Any]):
    """The results of `Plan.map`, in the order of the calls. Each is waited for when it is used.

    Iterating reads many results at once, and keeps none. Raises as `Task.result`.
    """

    def __init__(self, tasks: list[Task], size: int, calls: int) -> None:
        #: The tasks, each of which makes `chunksize` of the calls (the last one perhaps fewer).
        self.tasks = tasks
        self.chunksize = size
        self._calls = calls
        self._last: tuple[int, list[Any]] | None = None

    def __len__(self) -> int:
        return self._calls

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError(f"{index} of {len(self)} results")
        chunk = at // self.chunksize
        if self._last is None or self._last[0] != chunk:
            self._last = chunk, self._values(self.tasks[chunk])
        return self._last[1][at % self.chunksize]

    def __iter__(self) -> Iterator[Any]:
        at = 0
        while at < len(self.tasks):
            ahead = self.tasks[at : at + AHEAD]
            if ahead[0]._outcome is None:
                self._read_ahead(ahead)
            # The first one is waited for, if it has not ended yet.
            there = ahead[:1] + list(takewhile(lambda task: task._outcome is not None, ahead[1:]))
            outcomes = ((task, task._outcome) for task in there)
            for task, outcome, read in with_reads(outcomes, lambda task: task._waited_for()[:2]):
                task._bring(outcome, read)
                yield from self._values(task)
            at += len(there)

    def __repr__(self) -> str:
        return f"<MapResults of {len(self)} calls in {len(self.tasks)} tasks>"

    def __reduce__(self) -> Any:
        raise NotSerialisable(
            f"{self!r} cannot be an argument or a result: pass its `tasks`, each of which becomes "
            f"{'a value' if self.chunksize == 1 else f'a list of {self.chunksize} values'}"
        )

    def _values(self, task: Task) -> list[Any]:
        value = task.result()
        return [value] if self.chunksize == 1 else value

    def _read_ahead(self, tasks: list[Task]) -> None:
        """Read the outcomes that are there in batches: one by one would take ten times as long."""
        by_number = {task.number: task for task in tasks}
        client, plan_path, _ = tasks[0]._waited_for()
        size = 0
        for number, outcome in read_outcomes(client.transport, plan_path, list(by_number)):
            by_number[number]._bring(outcome)
            size += len(outcome or b"")
            if size > AHEAD_BYTES:
                return
