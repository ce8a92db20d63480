"""Look into the histories of many plans, and find how tasks without a znode ended.

Searches look at the bytes first, and decode only what they need.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from ..basics.text import count
from ..errors import PayloadUndecodable, PlanNotFound
from ..protocol.history.compaction import Cut, StoredHistory, read_histories
from ..protocol.history.events import RawEvent
from ..protocol.history.segments import GAP, Record
from ..protocol.layout import PLAN_FIXED, number_of
from ..protocol.requests import ReadData, ReadMany
from ..values.plan_values import Values
from ..values.store_maintenance import Earlier, earlier
from .history import EVENT_KINDS, Event, Events, gaps, missing, read_if_kept
from .history_state import DAMAGED, PlanState, TaskState, damaged

#: The letters of events that concern the whole plan.
OF_PLAN = f"SD{GAP}"
#: How many plans are read together. Each may have a mebibyte of history, and several times as much
#: when it is unpacked.
PLANS_AT_A_TIME = 40
#: How many plans with something missing are named.
_NAMED = 3


class Across:
    """The histories of some plans. One that ends before `since` (seconds since 1970) has no records
    here.

    `gaps` says in words what is missing in the histories that were read so far.
    """

    def __init__(self, values: Values, plan_paths: Sequence[str], since: float = 0.0) -> None:
        self._values, self._paths, self._since = values, plan_paths, since
        self._without: list[str] = []
        self._missing: dict[str, str] = {}

    def __iter__(self) -> Iterator[tuple[str, StoredHistory]]:
        """The path of each plan, and its history."""
        since_ms = int(self._since * 1000)
        for start in range(0, len(self._paths), PLANS_AT_A_TIME):
            paths = self._paths[start : start + PLANS_AT_A_TIME]
            histories = self._values.transport.run(read_histories(paths, since_ms))
            for path in paths:
                found = histories.pop(0)  # so that no history stays in memory after its turn
                if found is None:
                    self._without.append(path)
                    continue
                # The part that has left the tree does not matter if all of it is older.
                is_older = 0 < found.cut.until < self._since
                more = earlier(self._values, path, Cut() if is_older else found.cut)
                if more.parts:
                    found = found.behind([(part.span, part.data) for part in more.parts], more.cut)
                yield path, found
                self._note(path, more, found)

    def damaged(self, path: str, error: Exception) -> None:
        """Note that the records of this plan are damaged. The search goes on with other plans."""
        self._missing[path] = str(error)

    def _note(self, path: str, more: Earlier, found: StoredHistory) -> None:
        if told := gaps(more, found.untold, found.damaged):
            self._missing.setdefault(path, "; ".join(told))

    @property
    def gaps(self) -> list[str]:
        told = []
        if self._without:
            told.append(
                f"{count(len(self._without), 'plan')} with no history to read here: "
                f"{_first(self._without)}"
            )
        told += [
            f"the history of {path} is not whole: {self._missing[path]}"
            for path in list(self._missing)[:_NAMED]
        ]
        if len(self._missing) > _NAMED:
            others = count(len(self._missing) - _NAMED, "other plan")
            told.append(f"the histories of {others} are not whole either")
        return told


def _first(paths: Sequence[str]) -> str:
    return ", ".join(paths[:_NAMED]) + (", …" if len(paths) > _NAMED else "")


def of_tasks(records: Iterable[Record], numbers: Collection[int]) -> Iterator[Record]:
    """The records with only the events of the tasks `numbers` and of the plan. They add up to the
    same states of these tasks as all events do."""
    for record in records:
        events = [
            event
            for event in record.events
            if event[0] in OF_PLAN or (len(event) > 1 and event[1] in numbers)
        ]
        if events:
            yield record._replace(events=events)


def events_across(
    across: Across, kinds: Collection[str], since: float
) -> Iterator[tuple[str, Event]]:
    """Yield the path of the plan and the event, plan by plan, for each event of these `kinds` (if
    empty: of any kind) at `since` or later."""
    beginnings = {EVENT_KINDS[kind] for kind in kinds}
    written = [json.dumps(each, separators=(",", ":")).encode()[:-1] for each in beginnings]
    letters = {each[0] for each in beginnings}
    for path, stored in across:
        if written and not any(text in body for text in written for body in stored.bodies):
            continue
        try:
            records = stored.records()
            numbers = _numbers(records, letters, since * 1000)
            found = list(Events().of(of_tasks(records, numbers)))
        except (PayloadUndecodable, TypeError) as error:
            across.damaged(path, error)
            continue
        for event in found:
            if event.when >= since and (not kinds or event.kind in kinds):
                yield path, event


def _numbers(records: Iterable[Record], letters: Collection[str], since_ms: float) -> set[int]:
    """The tasks of the events with these `letters`, or of all events if `letters` is empty."""
    return {
        event[1]
        for record in records
        if record.ms >= since_ms
        for event in record.events
        if (not letters or event[0] in letters) and len(event) > 1 and event[0] != "S"
    }


# ---- Tell how a task without a znode ended, or that it never existed.


class Past(NamedTuple):
    """What is known about the task with one number.

    `task` is its state by the history, None if the history does not reach back so far. `never`: no
    task ever had the number. `doubt`: why it may never have existed; empty if that is certain.
    """

    task: TaskState | None = None
    never: bool = False
    doubt: str = ""


def past_of(values: Values, plan_path: str, numbers: Collection[str]) -> dict[str, Past]:
    """What is known about each of these numbers, which no task of the plan has now.

    A kept outcome proves that the task existed: look for an outcome first. Raises PlanNotFound.
    """
    reads = [ReadData(plan_path), ReadData(f"{plan_path}/{PLAN_FIXED[-1]}")]
    plan, fixed = values.transport.ask(ReadMany(reads))
    if plan is None:
        raise PlanNotFound(plan_path, f"there is no plan {plan_path}")
    # Tasks share one counter with the other children. The children made with the plan have the
    # first numbers, unless somebody deleted one by hand and the check made it again.
    first = len(PLAN_FIXED) if fixed is not None and fixed.czxid == plan.czxid else 0
    end = (plan.cversion + plan.child_count) // 2
    inside = [each for each in numbers if first <= int(each) < end]
    told = _Kept({int(each) for each in inside})
    doubt = _read(values, plan_path, told) if inside else ""
    found = {each: told.past(int(each), doubt) for each in inside}
    return {each: found.get(each, Past(never=True)) for each in numbers}


def decided_by(values: Values, plan_path: str, number: str) -> str:
    """Who skipped or cancelled a task last; empty if the history does not say."""
    by = ""
    try:
        whole = read_if_kept(values, plan_path)
        for record in whole.records() if whole is not None else ():
            if any(event[:2] == ["o", int(number)] for event in record.events):
                by = record.by
    except PayloadUndecodable:
        return ""
    return by


def _read(values: Values, plan_path: str, told: _Kept) -> str:
    """Read the history into `told`. Returns why tasks may be missing; empty if none can be."""
    name = f"plan {int(number_of(plan_path))}"
    try:
        whole = read_if_kept(values, plan_path)
        if whole is None:
            return f"{name} keeps no history"
        told.take(whole.records())
    except PayloadUndecodable as error:
        told.first = None
        return f"the history of {name} cannot be read: {error}"
    gaps = missing(whole)
    if whole.untold or whole.damaged or whole.earlier.cut.imported:
        told.first = None  # the missing events may include an add
    return f"the history of {name} is not whole: {'; '.join(gaps)}" if gaps else ""


class _Kept:
    """Some tasks, as the records of a history show them."""

    def __init__(self, numbers: Collection[int]) -> None:
        self._numbers, self._state = numbers, PlanState()
        self._seen: set[int] = set()
        #: The first task that was added after the last gap. Numbers grow: no later add is missing.
        self.first: int | None = None

    def take(self, records: Iterable[Record]) -> None:
        """Raises PayloadUndecodable for a damaged record."""
        for record in records:
            try:
                for event in record.events:
                    self._note(event)
                self._state.apply(of_tasks([record], self._numbers))
            except DAMAGED as error:
                raise damaged(record, error) from None

    def _note(self, event: RawEvent) -> None:
        if event[0] == GAP:
            self.first = None
        elif event[0] == "a" and self.first is None:
            self.first = int(event[1])
        if len(event) > 1 and event[1] in self._numbers:
            self._seen.add(event[1])

    def past(self, number: int, doubt: str) -> Past:
        if number in self._seen:
            return Past(self._state.tasks.get(number))
        is_told = not doubt or (self.first is not None and number > self.first)
        return Past(never=is_told, doubt="" if is_told else doubt)
