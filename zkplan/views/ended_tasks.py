"""Find ended tasks in all plans, as far back as the histories reach."""

from __future__ import annotations

import json
import math
import re
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, NamedTuple

from ..protocol.core.plans_and_queues import plan_records
from ..protocol.history.segments import Record
from ..protocol.layout import number_of
from ..values.connection import Connection
from .find import Filter
from .history_search import Across, of_tasks
from .history_state import FAILED, SKIPPED, PlanState, TaskState

#: How a task can have ended.
ENDED = ("committed", "skipped", "failed")


class EndedTask(NamedTuple):
    """A task that has ended, by the history of its plan.

    The fields are those of `FoundTask`, and: `since` is when it ended, `started` when its last
    attempt began, both in wall-clock seconds of the server; `seconds` is how long that ran.
    """

    plan: str
    plan_name: str
    number: str
    name: str
    state: str
    since: float
    attempts: int
    worker: str
    queue: str
    started: float | None
    seconds: float | None
    error: str


#: These match the stored events of an add (task, name), and of an end (task, flags, ms of the run)
#: or a stored result (task, ms). Only events begin like this: see `StoredHistory.bodies`.
_ADDED = re.compile(rb'\["a",(\d+),("[^"\\]*(?:\\.[^"\\]*)*")')
_RAN = re.compile(rb'\["(?:k",(\d+),(\d+|null)|v",(\d+)),(?:\d+|null),(\d{1,14})')
#: Matches the stored event of a death: the task, and how many ms it ran.
_DIED = re.compile(rb'\["x",(\d+),"[^"\\]*(?:\\.[^"\\]*)*",(\d{1,14})')
#: The flags of a committed task: without a kept result, with one, or left out.
_COMMITTED = (b"0", b"1", b"null")


class UsualTimes:
    """How long committed tasks of each name ran, in all plans that were looked at: the median.

    Times of a history are in ms, so a median is never less than one. A failure that a wide delivery
    brought to the dependents counts as well.
    """

    def __init__(self) -> None:
        self._ran: defaultdict[bytes, array[int]] = defaultdict(lambda: array("Q"))
        self._longest: dict[str, dict[bytes, int]] = {}
        self._medians: dict[bytes, float] = {}
        self._seconds: dict[str, float] = {}

    def note(self, path: str, bodies: Sequence[bytes]) -> None:
        """Add the times of one plan. It searches the text, which takes a third of the time of
        decoding it."""
        names: dict[bytes, bytes] = {}
        longest: dict[bytes, int] = {}
        name_of, all_ran = names.get, self._ran
        for body in bodies:
            names.update(_ADDED.findall(body))
        for body in bodies:
            for ended, flags, fixed, digits in _RAN.findall(body):
                ms, name = int(digits), name_of(ended or fixed, b'""')
                if ms > longest.get(name, -1):
                    longest[name] = ms
                if fixed or flags in _COMMITTED:
                    all_ran[name].append(ms)
            for died, digits in _DIED.findall(body):
                name = name_of(died, b'""')
                longest[name] = max(int(digits), longest.get(name, -1))
        self._longest[path] = longest

    def seconds(self, name: str) -> float:
        """The median of that name; infinite if no task of that name has been committed."""
        if name not in self._seconds:
            written = json.dumps(name, ensure_ascii=False).encode(errors="replace")
            self._seconds[name] = self._median(written)
        return self._seconds[name]

    def _median(self, name: bytes) -> float:
        if name not in self._medians:
            found = sorted(self._ran.get(name, ()))
            self._medians[name] = max(1, found[len(found) // 2]) / 1000 if found else math.inf
        return self._medians[name]

    def exceeded(self, path: str, times: float) -> bool:
        """Whether a task of that plan may have run longer than `times` its median."""
        longest = self._longest.get(path, {})
        return any(ms / 1000 > times * self._median(name) for name, ms in longest.items())


def usual(across: Across) -> UsualTimes:
    """The times in all of these histories."""
    found = UsualTimes()
    for path, stored in across:
        found.note(path, stored.bodies)
    return found


def find_ended(
    across: Across,
    names: Mapping[str, str],
    wanted: Filter,
    since: float = 0.0,
    longest: Callable[[str], float] | None = None,
) -> Iterator[EndedTask]:
    """The matching tasks that ended at `since` or later, by plan and number, including dead ones.

    `names` has the name of each plan by its path. `longest` gives seconds for the name of a task:
    only tasks that ran longer match.
    """
    search = _Search(wanted, since, longest)
    for path, stored in across:
        state, records = PlanState(), stored.records()
        try:
            state.apply(of_tasks(records, search.candidates(records)))
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            across.damaged(path, error)
            continue
        for number in sorted(state.tasks):
            task = state.tasks[number]
            if (task.gone or task.place == "x") and search.matches(task):
                yield _ended(path, names.get(path, ""), task)


def plan_names(client: Connection) -> dict[str, str]:
    """The name of each plan under the root by its path, oldest first; empty if it has none or
    cannot be read."""
    records = client.transport.run(plan_records(client.paths))
    return {path: record.name if record is not None else "" for path, record in records}


def _state_of(task: TaskState) -> str:
    """As `TaskState.state`, but `failed` for a dead task, which stays until it is retried."""
    return "failed" if task.place == "x" else task.state


class _Search:
    """The search for matching tasks: first in single events, then exactly in the state that all
    events of a task add up to.

    The last event alone rules out most tasks. To build the state of a task takes ten times as long.
    """

    def __init__(
        self, wanted: Filter, since: float, longest: Callable[[str], float] | None
    ) -> None:
        self._wanted, self._since = wanted, since
        self._longest = longest
        glob = wanted.name

        @cache
        def takes_name(name: str) -> bool:
            return glob is None or fnmatchcase(name, glob)

        self._takes_name = takes_name

    def candidates(self, records: Sequence[Record]) -> set[int]:
        """The tasks that may match, by their numbers. Raises what damaged events raise."""
        names: dict[int, str] = {}
        found, decided = set[int](), set[int]()
        since_ms, worker = self._since * 1000, self._wanted.worker
        takes_name, takes = self._takes_name, self._takes
        for record in records:
            is_late, by = record.ms >= since_ms, record.by
            is_by = worker is None or by.startswith(worker)
            for event in record.events:
                letter = event[0]
                if letter == "a":
                    names[event[1]] = event[2]
                elif letter == "o":
                    decided.add(event[1])
                elif letter in "kx" and is_late:
                    number, at = event[1], 7 if letter == "k" else 5
                    if not is_by and not (len(event) > at and event[at].startswith(worker)):
                        continue
                    if number not in decided and not takes(event, names.get(number, "")):
                        continue
                    if takes_name(names.get(number, "")):
                        found.add(number)
        return found

    def _takes(self, event: list[Any], name: str) -> bool:
        """Whether the end of a task that no operator has decided may match."""
        wanted, longest = self._wanted, self._longest
        has_died = event[0] == "x"
        if wanted.state is not None:
            flags = FAILED if has_died else event[2] or 0
            told = "skipped" if flags & SKIPPED else "failed" if flags & FAILED else "committed"
            if told != wanted.state:
                return False
        at = 3 if has_died else 4
        ran = event[at] if len(event) > at else None
        # After a wide delivery it is -1: the event of the stored result has how long the task ran.
        if longest is not None and ran is not None and ran >= 0:
            return bool(ran / 1000 > longest(name))
        return True

    def matches(self, task: TaskState) -> bool:
        wanted = self._wanted
        if wanted.state not in (None, _state_of(task)) or task.ended_ms < self._since * 1000:
            return False
        if wanted.worker is not None and not task.worker.startswith(wanted.worker):
            return False
        if wanted.error is not None and not fnmatchcase(task.error, wanted.error):
            return False
        if self._longest is not None and task.ran_ms / 1000 <= self._longest(task.name):
            return False
        return self._takes_name(task.name)


def _ended(path: str, name: str, task: TaskState) -> EndedTask:
    return EndedTask(
        *(number_of(path), name, f"{task.number:010d}", task.name, _state_of(task)),
        *(task.ended_ms / 1000, task.claims, task.worker, task.queue),
        task.started_ms / 1000 if task.started_ms else None,
        task.ran_ms / 1000 if task.ran_ms >= 0 else None,
        task.error,
    )
