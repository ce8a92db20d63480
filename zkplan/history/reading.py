"""Read the history of a plan, once or as it grows."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

from ..errors import HistoryNotKept, PlanError, PlanNotFound
from ..protocol.compaction import History, read_history
from ..protocol.history import Record, history_path
from ..protocol.requests import ReadData
from ..transport import Transport
from .events import Event, Events
from .state import PlanState, TaskState

#: A follower looks again after so many seconds without a watch, which a connection can lose.
LOOK_S = 10.0
#: It lets so many seconds pass between two reads: a busy plan then costs few large ones.
GATHER_S = 0.05


def read(transport: Transport, plan_path: str) -> tuple[list[Event], History]:
    """All events, and what is missing. Raises HistoryNotKept, PlanNotFound and
    PayloadUndecodable."""
    found = read_records(transport, plan_path)
    return list(Events().of(found.records)), found


def read_state(transport: Transport, plan_path: str) -> tuple[PlanState, History]:
    """What all events add up to, and what is missing: cheaper than the events. Raises as `read`."""
    found = read_records(transport, plan_path)
    return PlanState().add(found.records), found


def read_records(transport: Transport, plan_path: str) -> History:
    """The history as it is written. Raises as `read`."""
    found = transport.run(read_history(plan_path))
    if found is None:
        raise _no_history(transport, plan_path)
    return found


def state_at(transport: Transport, plan_path: str, when: float) -> PlanState:
    """What the plan was like at `when`, in seconds since 1970. Raises as `read`."""
    found = read_records(transport, plan_path)
    return PlanState().add(record for record in found.records if record.ms <= when * 1000)


def ended_tasks(transport: Transport, plan_path: str) -> list[TaskState] | None:
    """The tasks that have ended, by number, as far as the history reaches; None without one."""
    tasks = told_tasks(transport, plan_path)
    if tasks is None:
        return None
    return [tasks[number] for number in sorted(tasks) if tasks[number].gone]


def told_tasks(transport: Transport, plan_path: str) -> dict[int, TaskState] | None:
    """All tasks that the history tells of, by number; None without one."""
    found = transport.run(read_history(plan_path))
    return None if found is None else PlanState().add(found.records).tasks


class RecordFollower:
    """Reads a history as it grows. `read_on` is for one thread at a time, `close` for any."""

    def __init__(self, transport: Transport, plan_path: str) -> None:
        self._transport, self._plan_path = transport, plan_path
        self._after, self._has_read = -1, False
        self._closed = threading.Event()
        self._woken = woken = threading.Event()
        path = history_path(plan_path)

        # It does not refer to the follower, which then goes with whoever iterates over it.
        def wake(changed: str | None) -> None:
            if changed is None or changed == path:
                woken.set()

        self._wake = wake
        transport.listen(wake)

    def read_on(self) -> list[Record] | None:
        """Wait for the next records: there may be none yet. None when the plan was removed, or this
        was closed. Raises as `read`."""
        if self._has_read:
            self._woken.wait(LOOK_S)
            self._closed.wait(GATHER_S)
        self._woken.clear()  # first: `close` may come behind the check
        if self._closed.is_set():
            return None
        found = self._transport.run(read_history(self._plan_path, self._after, watch=True))
        if found is None and not self._has_read:
            raise _no_history(self._transport, self._plan_path)
        self._has_read = True
        if found is None:
            return None
        if found.records:
            self._after = found.records[-1].number
        return found.records

    def close(self) -> None:
        """End it, also while it waits. Again does no harm."""
        if not self._closed.is_set():
            self._closed.set()
            self._transport.unlisten(self._wake)
            self._woken.set()


class Follower:
    """Reads the events of a history as they come, as `RecordFollower` reads its records."""

    def __init__(self, transport: Transport, plan_path: str) -> None:
        self._records, self._events = RecordFollower(transport, plan_path), Events()
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


def follow(transport: Transport, plan_path: str) -> Iterator[Event]:
    """All events, and those to come, until the plan ends or is removed. Raises as `read`."""
    with closing(Follower(transport, plan_path)) as follower:
        while told := follower.read_on():
            yield from told


def missing(found: History) -> list[str]:
    """What a history does not tell, in words; empty where it is whole."""
    told = []
    if found.cut.imported:
        told.append("it begins with the import of the plan")
    if found.cut.events:
        told.append(f"its first {found.cut.events:,} events were let go: it is bounded")
    if found.untold:
        told.append(f"{found.untold:,} transactions could not be told: no room, or no right")
    if found.damaged:
        told.append(f"cannot be read here: {', '.join(found.damaged)}")
    return told


def _no_history(transport: Transport, plan_path: str) -> PlanError:
    if transport.ask(ReadData(plan_path)) is None:
        return PlanNotFound(plan_path, f"there is no plan {plan_path}")
    return HistoryNotKept(
        plan_path,
        f"{plan_path} keeps no history: it was made with history=False, or by an older zkplan",
    )
