"""Compute what a time line shows: when tasks waited and ran, the critical path, and groups of
tasks."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from .history_state import PlanState, TaskState

#: More tasks than SINGLE_MAX are drawn by name, not one by one, in at most GROUPS_MAX groups.
SINGLE_MAX, GROUPS_MAX = 60, 25
_DIGITS = re.compile(r"\d+")


class Span(NamedTuple):
    """The time that a picture covers, in ms, and how many columns it has."""

    first: int
    last: int
    columns: int

    def column(self, ms: int) -> int:
        at = (ms - self.first) * self.columns // max(1, self.last - self.first)
        return min(self.columns - 1, max(0, at))

    def begin(self, column: int) -> int:
        """When a column begins; column `columns` begins at the end of the picture."""
        return self.first + column * (self.last - self.first) // self.columns


def runs(task: TaskState, now: int) -> list[tuple[int, int]]:
    """From when until when it ran, in ms: each attempt, and one that is claimed now.

    Only the end of an attempt says when its function began: until then it counts from the claim.
    """
    found = [(first, max(first + 1, last)) for first, last in task.earlier]
    if task.started_ms and task.ran_ms >= 0:
        # A run of less than a millisecond must be visible, too.
        found.append((task.started_ms, task.started_ms + max(1, task.ran_ms)))
    if task.place == "c":
        found.append((task.claimed_ms, now))
    return found


def waits(task: TaskState, now: int) -> tuple[int, int] | None:
    """From when until when it was runnable and no worker had started it; None if it never was."""
    if not task.runnable_ms:
        return None
    if task.place[:1] == "r":
        return task.runnable_ms, now
    end = task.claimed_ms if task.place == "c" else task.started_ms
    return (task.runnable_ms, end) if end >= task.runnable_ms else None


def average(spans: Iterable[tuple[int, int]], span: Span) -> list[float]:
    """How many of these spans of time overlap, on average, column by column.

    >>> average([(0, 40), (0, 10), (25, 25)], Span(0, 40, 4))
    [2.0, 1.0, 1.0, 1.0]
    """
    low, high, columns = span.first, span.last, span.columns
    wide = max(1, high - low)
    begins = [span.begin(at) for at in range(columns + 1)]
    ms, whole = [0] * columns, [0] * (columns + 1)
    for first, last in spans:
        first = max(first, low)
        last = min(last, high)
        if last <= first:
            continue
        begin = (first - low) * columns // wide
        end = min(columns - 1, (last - low) * columns // wide)
        if begin == end:
            ms[begin] += last - first
            continue
        ms[begin] += begins[begin + 1] - first
        ms[end] += last - begins[end]
        whole[begin + 1] += 1
        whole[end] -= 1
    through, found = 0, []
    for at in range(columns):
        through += whole[at]
        own = begins[at + 1] - begins[at]
        found.append(through + ms[at] / own if own else float(through))
    return found


def grouped(tasks: Iterable[TaskState]) -> dict[str, list[TaskState]]:
    """The tasks by name. With many names, those that differ in their numbers alone are one group:
    `page 12` and `page 13` are in `page #`."""
    groups: dict[str, list[TaskState]] = {}
    for task in tasks:
        groups.setdefault(task.name, []).append(task)
    if len(groups) <= GROUPS_MAX:
        return groups
    alike: dict[str, list[str]] = {}
    for name in groups:
        alike.setdefault(_DIGITS.sub("#", name), []).append(name)
    return {
        names[0] if len(names) == 1 else masked: [task for name in names for task in groups[name]]
        for masked, names in alike.items()
    }


def has_failed(task: TaskState) -> bool:
    """Whether it is dead, or has failed for good."""
    return task.state in ("dead", "failed")


def chosen(groups: dict[str, list[TaskState]], most: int = GROUPS_MAX) -> list[str]:
    """The groups that are drawn if there is no room for all: first those in which tasks have
    failed, then the largest."""

    def rank(name: str) -> tuple[bool, int]:
        return not any(map(has_failed, groups[name])), -len(groups[name])

    return sorted(groups, key=rank)[:most]


def critical_path(tasks: dict[int, TaskState]) -> list[TaskState]:
    """The tasks that the end waited for: from the last one that ended back along its edges, each
    time the dependency that ended last."""
    ended = [task for task in tasks.values() if task.gone and task.ended_ms]
    # By number: in a damaged history edges may lead in a circle.
    path: dict[int, TaskState] = {}
    at = max(ended, key=lambda task: task.ended_ms, default=None)
    while at is not None and at.number not in path:
        path[at.number] = at
        before = [tasks[n] for n in at.deps if n in tasks]
        at = max((t for t in before if t.gone), key=lambda task: task.ended_ms, default=None)
    return list(path.values())[::-1]


# ---- The rows of a time line as data, for other programs to draw: one row for each task or name.


#: How many intervals show how many tasks of a name run at a time.
COLUMNS = 120
#: The most tasks of the critical path that are listed: the longest.
PATH_MAX = 50


@dataclass(frozen=True, slots=True)
class Row:
    """One task, or the tasks of one name. Times are in ms since 1970, 0 if not known.

    `number` is that of a single task, else -1; `earlier` has the start and the end of each attempt
    before its last one. `ran_ms` is how long the tasks ran in total. `running` says how many tasks
    of a name run at a time, interval by interval: on average, rounded up. `is_critical`: the row is
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
    """The whole picture, from `first_ms` to `last_ms`. `others` counts the tasks that are left out.

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
    """The tasks that have begun or ended, as `timeline` draws them."""
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
