"""What a history tells of tasks that have no znode: how each ended, or that it never was a task."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from ..errors import PayloadUndecodable, PlanNotFound
from ..protocol.history import GAP, Record
from ..protocol.layout import PLAN_FIXED, number_of
from ..protocol.requests import ReadData, ReadMany
from ..protocol.telling import Told
from ..store.values import Values
from .across import of_tasks
from .reading import missing, read_if_kept
from .state import DAMAGED, PlanState, TaskState, damaged


class Past(NamedTuple):
    """What is known of one number.

    `task` is what the history tells of it, None if that does not reach so far. `never`: no task
    ever had the number. `doubt`: why it may never have been a task; empty if it certainly was one.
    """

    task: TaskState | None = None
    never: bool = False
    doubt: str = ""


def past_of(values: Values, plan_path: str, numbers: Collection[str]) -> dict[str, Past]:
    """What is known of each of these numbers, which no task of the plan has now.

    A kept outcome proves that a number was a task: ask about it first. Raises PlanNotFound.
    """
    reads = [ReadData(plan_path), ReadData(f"{plan_path}/{PLAN_FIXED[-1]}")]
    plan, fixed = values.transport.ask(ReadMany(reads))
    if plan is None:
        raise PlanNotFound(plan_path, f"there is no plan {plan_path}")
    # Tasks share their numbers with all other children. Those that were made with the plan itself
    # came first; of a plan by plain creates that is not known.
    first = len(PLAN_FIXED) if fixed is not None and fixed.czxid == plan.czxid else 0
    end = (plan.cversion + plan.child_count) // 2
    inside = [each for each in numbers if first <= int(each) < end]
    told = _Kept({int(each) for each in inside})
    doubt = _read(values, plan_path, told) if inside else ""
    found = {each: told.past(int(each), doubt) for each in inside}
    return {each: found.get(each, Past(never=True)) for each in numbers}


def decided_by(values: Values, plan_path: str, number: str) -> str:
    """Who has skipped or cancelled a task last; empty where no history tells."""
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
    """Take the history up. Returns why it does not tell of all tasks, empty if it does."""
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
        told.first = None  # an add may be among what it misses
    return f"the history of {name} is not whole: {'; '.join(gaps)}" if gaps else ""


class _Kept:
    """What the records of a history tell of some tasks."""

    def __init__(self, numbers: Collection[int]) -> None:
        self._numbers, self._state = numbers, PlanState()
        self._seen: set[int] = set()
        #: The first task whose add is told behind the last gap. Numbers grow, so that no later one
        #: is missing.
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

    def _note(self, event: Told) -> None:
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
