"""The rows of a time line as data, for those who draw it elsewhere: a task each, or a name each."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from .spans import SINGLE_MAX, Span, average, chosen, critical_path, grouped, runs
from .state import PlanState, TaskState

#: So many intervals show how many tasks of a name run at a time.
COLUMNS = 120
#: So many tasks of the critical path are told at most: the longest.
PATH_MAX = 50


@dataclass(frozen=True, slots=True)
class Row:
    """One task, or the tasks of one name. Times are in ms since 1970, 0 if not known.

    `number` is that of a single task, else -1; `earlier` says when attempts before its last one
    ran. `ran_ms` is what they ran together. `running` says
    how many of a name run at a time, interval by interval: on average, rounded up. `is_critical`:
    on the critical path.
    """

    name: str
    count: int
    number: int
    state: str
    worker: str
    error: str
    added_ms: int
    runnable_ms: int
    claimed_ms: int
    started_ms: int
    ended_ms: int
    ran_ms: int
    is_critical: bool
    running: list[int] = field(default_factory=list)
    earlier: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Lines:
    """The whole picture, from `first_ms` to `last_ms`. `others` tasks have names that are left out.

    `path` is the critical path in order, or its longest tasks; `path_tasks` is how many it has, and
    `path_ms` how long it took.
    """

    first_ms: int
    last_ms: int
    rows: list[Row]
    others: int
    path: list[Row]
    path_tasks: int
    path_ms: int


def lines(state: PlanState) -> Lines:
    """What has begun or ended, as `timeline` draws it."""
    tasks = [task for task in state.tasks.values() if task.claims or task.gone]
    begun = [task.added_ms or task.runnable_ms or task.claimed_ms for task in tasks]
    span = Span(min(filter(None, begun), default=state.ms), state.ms, COLUMNS)
    path = critical_path(state.tasks)
    on_path = {task.number for task in path}
    others = 0
    if len(tasks) <= SINGLE_MAX:
        tasks.sort(key=lambda each: each.started_ms or each.claimed_ms or each.ended_ms)
        rows = [_single(task, on_path) for task in tasks]
    else:
        rows, others = _grouped(tasks, on_path, span)
    longest = sorted(path, key=lambda task: -task.ran_ms)[:PATH_MAX]
    kept = {task.number for task in longest}
    took = path[-1].ended_ms - (path[0].added_ms or path[0].claimed_ms) if path else 0
    shown = [_single(task, on_path) for task in path if task.number in kept]
    return Lines(span.first, span.last, rows, others, shown, len(path), max(0, took))


def _single(task: TaskState, on_path: set[int]) -> Row:
    times = (task.added_ms, task.runnable_ms, task.claimed_ms, task.started_ms, task.ended_ms)
    facts = task.state, task.worker, task.error
    own = Row(task.name, 1, task.number, *facts, *times, task.ran_ms, task.number in on_path)
    return replace(own, earlier=task.earlier)


def _grouped(tasks: list[TaskState], on_path: set[int], span: Span) -> tuple[list[Row], int]:
    groups = grouped(tasks)
    rows = []
    for name in chosen(groups):
        found = groups[name]
        starts = min((task.started_ms for task in found if task.started_ms), default=0)
        ends = max(task.ended_ms for task in found)
        ran = sum(max(0, task.ran_ms) for task in found)
        is_critical = any(task.number in on_path for task in found)
        among = average((each for task in found for each in runs(task, span.last)), span)
        counts = [math.ceil(each) for each in among]
        rows.append(
            Row(name, len(found), -1, "", "", "", 0, 0, 0, starts, ends, ran, is_critical, counts)
        )
    rows.sort(key=lambda row: row.started_ms or span.last)
    return rows, len(tasks) - sum(row.count for row in rows)
