"""Read the history of a plan, once or as it grows."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

from ..errors import HistoryNotKept, PayloadUndecodable, PlanError, PlanNotFound
from ..protocol.compaction import read_history
from ..protocol.history import Record, history_path
from ..protocol.requests import ReadData
from ..store.parts import Earlier, earlier
from ..store.values import Values
from .events import Event, Events
from .state import PlanState, TaskState

#: A follower looks again after so many seconds without a watch, which a connection can lose.
LOOK_S = 10.0
#: It lets so many seconds pass between two reads: a busy plan then costs few large ones.
GATHER_S = 0.05


class Whole(NamedTuple):
    """A history as far as it can be read: first what the store has of it, then the tree.

    `untold` and `damaged`: see `History`.
    """

    earlier: Earlier
    latest: list[Record]
    untold: int
    damaged: list[str]

    def records(self) -> Iterator[Record]:
        """All records in order; those of the store are decoded one part at a time."""
        for part in self.earlier.parts:
            try:
                yield from part.records()
            except PayloadUndecodable:
                self.damaged.append(part.span.name)
        yield from self.latest


def read(values: Values, plan_path: str) -> tuple[list[Event], Whole]:
    """All events, and what is missing. Raises HistoryNotKept, PlanNotFound and
    PayloadUndecodable."""
    found = read_whole(values, plan_path)
    return list(Events().of(found.records())), found


def read_state(values: Values, plan_path: str) -> tuple[PlanState, Whole]:
    """What all events add up to, and what is missing: cheaper than the events. Raises as `read`."""
    found = read_whole(values, plan_path)
    return PlanState().add(found.records()), found


def read_whole(values: Values, plan_path: str) -> Whole:
    """The history as it is written. Raises as `read`."""
    found = read_if_kept(values, plan_path)
    if found is None:
        raise _no_history(values, plan_path)
    return found


def read_if_kept(
    values: Values, plan_path: str, after: int = -1, watch: bool = False
) -> Whole | None:
    """As `read_whole`, but None without a history; of the records only those behind `after`.

    The tree comes first: what leaves it meanwhile is read in the store.
    """
    found = values.transport.run(read_history(plan_path, after, watch))
    if found is None:
        return None
    more = earlier(values, plan_path, found.cut, after)
    return Whole(more, found.records, found.untold, found.damaged)


def state_at(values: Values, plan_path: str, when: float) -> PlanState:
    """What the plan was like at `when`, in seconds since 1970. Raises as `read`."""
    records = read_whole(values, plan_path).records()
    return PlanState().add(record for record in records if record.ms <= when * 1000)


def ended_tasks(values: Values, plan_path: str) -> list[TaskState] | None:
    """The tasks that have ended, by number, as far as the history reaches; None without one."""
    tasks = told_tasks(values, plan_path)
    if tasks is None:
        return None
    return [tasks[number] for number in sorted(tasks) if tasks[number].gone]


def told_tasks(values: Values, plan_path: str) -> dict[int, TaskState] | None:
    """All tasks that the history tells of, by number; None without one."""
    found = read_if_kept(values, plan_path)
    return None if found is None else PlanState().add(found.records()).tasks


class RecordFollower:
    """Reads a history as it grows. `read_on` is for one thread at a time, `close` for any."""

    def __init__(self, values: Values, plan_path: str) -> None:
        self._values, self._plan_path = values, plan_path
        self._after, self._has_read = -1, False
        self._closed = threading.Event()
        self._woken = woken = threading.Event()
        path = history_path(plan_path)

        # It does not refer to the follower, which then goes with whoever iterates over it.
        def wake(changed: str | None) -> None:
            if changed is None or changed == path:
                woken.set()

        self._wake = wake
        values.transport.listen(wake)

    def read_on(self) -> list[Record] | None:
        """Wait for the next records: there may be none yet. None when the plan was removed, or this
        was closed. Raises as `read`."""
        if self._has_read:
            self._woken.wait(LOOK_S)
            self._closed.wait(GATHER_S)
        self._woken.clear()  # first: `close` may come behind the check
        if self._closed.is_set():
            return None
        found = read_if_kept(self._values, self._plan_path, self._after, watch=True)
        if found is None and not self._has_read:
            raise _no_history(self._values, self._plan_path)
        self._has_read = True
        if found is None:
            return None
        records = [each for each in found.records() if each.number > self._after]
        if records:
            self._after = records[-1].number
        return records

    def close(self) -> None:
        """End it, also while it waits. Again does no harm."""
        if not self._closed.is_set():
            self._closed.set()
            self._values.transport.unlisten(self._wake)
            self._woken.set()


class Follower:
    """Reads the events of a history as they come, as `RecordFollower` reads its records."""

    def __init__(self, values: Values, plan_path: str) -> None:
        self._records, self._events = RecordFollower(values, plan_path), Events()
        self.close = self._records.close

    def read_on(self) -> list[Event]:
        """Wait for the next events. None are left when the plan has ended, or was removed, or this
        was closed. Raises as `read`."""
        while not self._events.state.has_ended:
            records = self._records.read_on()
            if records is None:
                break
            if told := list(self._events.of(records)):
                return told
        return []


def follow(values: Values, plan_path: str) -> Iterator[Event]:
    """All events, and those to come, until the plan ends or is removed. Raises as `read`."""
    with closing(Follower(values, plan_path)) as follower:
        while told := follower.read_on():
            yield from told


def missing(found: Whole) -> list[str]:
    """What a history does not tell, in words; empty where it is whole."""
    return gaps(found.earlier, found.untold, found.damaged)


def gaps(earlier: Earlier, untold: int, damaged: list[str]) -> list[str]:
    """The same, of the fields of a `Whole`."""
    told, cut = list[str](), earlier.cut
    if cut.imported:
        told.append("it begins with the import of the plan")
    if cut.events:
        first = "its first" if not earlier.parts else "of its older events"
        events = f"{first} {cut.events:,}{'' if earlier.parts else ' events'}"
        told.append(f"{events} were let go: it is bounded{'; ' * bool(earlier.why)}{earlier.why}")
    if untold:
        told.append(f"{untold:,} transactions could not be told: no room, or no right")
    if damaged:
        told.append(f"cannot be read here: {', '.join(damaged)}")
    return told


def _no_history(values: Values, plan_path: str) -> PlanError:
    if values.transport.ask(ReadData(plan_path)) is None:
        return PlanNotFound(plan_path, f"there is no plan {plan_path}")
    return HistoryNotKept(
        plan_path,
        f"{plan_path} keeps no history: it was made with history=False, or by an older zkplan",
    )
