"""Check a history (S13): rebuilt from its events alone, it fits what stands, the results, and what
the tasks recorded themselves. Pure, and apart from what zkplan itself makes of a history.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ...protocol.history import Record
from .evidence import Evidence

#: The fields of an event at which its place stands, by its letter.
_PLACES = {"a": 3, "r": 2, "u": 2, "g": 2, "m": 2, "t": 2, "f": 2, "h": 2, "l": 2, "o": 2}


@dataclass
class _Told:
    """One task: how often it was added and ended, where it stood last, the claims of it."""

    added: int = 0
    ended: int = 0
    flags: int = 0
    place: str = ""
    claims: list[tuple[int, str]] = field(default_factory=list)


def the_history_agrees(evidence: Evidence[Any]) -> Iterator[str]:
    """S13: as far as it is whole. One that was let go in part is judged by what is left."""
    left = evidence.remains
    if left.told is None:
        return
    if left.told.untold:
        return  # a full server or an access list: it says so itself
    tasks, ends = _rebuilt(left.told.records)
    yield from _order(left.told.records)
    yield from (f"{name} of the history cannot be read" for name in left.told.damaged)
    standing = {int(name[5:]) for name in left.plan if name.startswith("task-")}
    kept, dead = _numbers(left.outcomes), _numbers(left.dead)
    is_whole = not (left.told.cut.events or left.told.cut.imported)
    for number, task in sorted(tasks.items()):
        if is_whole and task.added != 1:
            yield f"task {number} was added {task.added} times"
        if task.ended > 1:
            yield f"task {number} ended {task.ended} times"
        if bool(task.ended) == (number in standing):
            yield f"task {number} ended {task.ended} times, and it stands: {number in standing}"
        if (task.place == "x") != (number in dead):
            yield f"task {number} is told to be at {task.place!r}, a letter: {number in dead}"
        if task.ended and bool(task.flags & 1) != (number in kept):
            yield f"task {number} ended with flags {task.flags}, an outcome: {number in kept}"
        attempts = [n for n, _ in task.claims]
        if attempts != sorted(set(attempts)):
            yield f"task {number} was claimed with the numbers {attempts}"
    if is_whole:
        yield from (f"task {number} stands, untold" for number in sorted(standing - set(tasks)))
    if ("done" in left.plan) != bool(ends) or ends > 1:
        yield f"the plan is told to be done {ends} times"
    waiting = sum(task.place[:1] == "d" for task in tasks.values())
    if waiting != len(left.delayed) and is_whole:
        yield f"{waiting} tasks are told to be delayed, and {len(left.delayed)} are"
    if is_whole:
        yield from _attempts(evidence, tasks)


def _numbers(names: Iterable[str]) -> set[int]:
    return {int(name) for name in names if name.isdecimal()}


def _rebuilt(records: list[Record]) -> tuple[dict[int, _Told], int]:
    """The tasks, and how often the plan is told to be done, less how often it was retried."""
    tasks: defaultdict[int, _Told] = defaultdict(_Told)
    ends = 0
    for record in records:
        for letter, *rest in record.events:
            if letter in "DR":
                ends += 1 if letter == "D" else -1
            elif letter not in "Se":
                _moved(tasks[rest[0]], record.by, letter, [letter, *rest])
    return dict(tasks), ends


def _moved(task: _Told, by: str, letter: str, event: list[Any]) -> None:
    task.added += letter == "a"
    if letter == "k":
        task.ended, task.place, task.flags = task.ended + 1, "", event[2]
    elif letter in "xw":
        task.place = "x" if letter == "x" else ""
    elif letter == "c":
        n = event[2] if len(event) > 2 and event[2] else 0
        task.place = "c"
        task.claims.append((n, event[3] if len(event) > 3 else by))
    elif letter in _PLACES:
        at = _PLACES[letter]
        task.place = event[at] if len(event) > at else ""


def _order(records: list[Record]) -> Iterator[str]:
    numbers = [record.number for record in records]
    for before, after in itertools.pairwise(numbers):
        if after <= before:
            yield f"number {after} comes behind number {before}"


def _attempts(evidence: Evidence[Any], tasks: dict[int, _Told]) -> Iterator[str]:
    """Whatever ran, ran under a claim that is told; pure tasks are also run without one."""
    told = {claim for task in tasks.values() for claim in task.claims}
    for execution in evidence.everything:
        if (execution.n, execution.worker) not in told and not evidence.runs_ahead:
            yield f"{execution} ran, and no such claim is told"
