"""Read the history of a plan, once or as it grows."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from contextlib import closing

from ..errors import HistoryNotKept, PlanError, PlanNotFound
from ..log import get_logger
from ..protocol.compaction import History, read_history
from ..protocol.history import Record, history_path
from ..protocol.requests import ReadData
from ..transport import Transport
from .events import Event, Events
from .state import PlanState, TaskState

logger = get_logger("zkplan.plan")
#: A follower looks again after so many seconds without a watch, which a connection can lose.
LOOK_S = 10.0
#: It lets so many seconds pass between two reads: a busy plan then costs few large ones.
GATHER_S = 0.05


def read(transport: Transport, plan_path: str) -> tuple[Events, list[Event], History]:
    """All events, what they add up to, and what is missing. Raises HistoryNotKept, PlanNotFound and
    PayloadUndecodable."""
    found = read_records(transport, plan_path)
    events = Events()
    return events, list(events.of(found.records)), found


def read_records(transport: Transport, plan_path: str) -> History:
    """The history as it is written. Raises as `read`."""
    found = transport.run(read_history(plan_path))
    if found is None:
        raise _no_history(transport, plan_path)
    return found


def state_at(transport: Transport, plan_path: str, when: float) -> PlanState:
    """What the plan was like at `when`, in seconds since 1970. Raises as `read`."""
    found = read_records(transport, plan_path)
    events = Events()
    for _ in events.of(record for record in found.records if record.ms <= when * 1000):
        pass
    return events.state


def ended_tasks(transport: Transport, plan_path: str) -> list[TaskState] | None:
    """The tasks that have ended, by number, as far as the history reaches; None without one."""
    tasks = told_tasks(transport, plan_path)
    if tasks is None:
        return None
    return [tasks[number] for number in sorted(tasks) if tasks[number].gone]


def told_tasks(transport: Transport, plan_path: str) -> dict[int, TaskState] | None:
    """All tasks that the history tells of, by number; None without one."""
    found = transport.run(read_history(plan_path))
    if found is None:
        return None
    events = Events()
    for _ in events.of(found.records):
        pass
    return events.state.tasks


def follow(transport: Transport, plan_path: str) -> Iterator[Event]:
    """All events, and those to come, until the plan ends or is removed. Raises as `read`."""
    events = Events()
    with closing(batches(transport, plan_path)) as found:
        for records in found:
            yield from events.of(records)
            if events.state.has_ended:
                return


def batches(transport: Transport, plan_path: str) -> Generator[list[Record], None, None]:
    """All records, and those to come, until the plan is removed. Raises as `read`."""
    after = -1
    path, woken = history_path(plan_path), threading.Event()

    def wake(changed: str | None) -> None:
        if changed is None or changed == path:
            woken.set()

    transport.listen(wake)
    try:
        while True:
            woken.clear()
            found = transport.run(read_history(plan_path, after, watch=True))
            if found is None and after < 0:
                raise _no_history(transport, plan_path)
            if found is None:
                return  # removed
            if found.records:
                after = found.records[-1].number
            yield found.records
            woken.wait(LOOK_S)
            threading.Event().wait(GATHER_S)
    finally:
        transport.unlisten(wake)


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
