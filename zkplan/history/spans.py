"""What a time line is drawn from: when tasks waited and ran, and many tasks as few groups. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from .state import TaskState

#: More tasks than that are drawn by name, not one by one; and so many groups at most.
SINGLE_MAX, GROUPS_MAX = 60, 25
_DIGITS = re.compile(r"\d+")


class Span(NamedTuple):
    """What the picture covers, in ms, and how many columns it has."""

    first: int
    last: int
    columns: int

    def column(self, ms: int) -> int:
        at = (ms - self.first) * self.columns // max(1, self.last - self.first)
        return min(self.columns - 1, max(0, at))

    def begin(self, column: int) -> int:
        """When a column begins; that of `columns` is the end of all."""
        return self.first + column * (self.last - self.first) // self.columns


def runs(task: TaskState, now: int) -> list[tuple[int, int]]:
    """From when until when it ran, in ms: each attempt, and one that is claimed now.

    When the function of a claimed task began is told only at its end: it counts from the claim.
    """
    found = [(first, max(first + 1, last)) for first, last in task.earlier]
    if task.started_ms and task.ran_ms >= 0:
        # What takes less than a millisecond is to be seen, too.
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
    """How many of these spans of time there were at a time, on average, column by column.

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
