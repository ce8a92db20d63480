"""Read the history of a plan, once or as it grows."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from ..errors import HistoryNotKept, PlanError, PlanNotFound
from ..log import get_logger
from ..protocol.compaction import History, read_history
from ..protocol.history import history_path
from ..protocol.requests import ReadData
from ..transport import Transport
from .events import Event, Events
from .state import PlanState, TaskState

logger = get_logger("zkplan.plan")
#: A follower looks again after so many seconds without a watch, which a connection can lose.
LOOK_S = 10.0
#: It lets so many seconds pass between two reads: a busy plan then costs few large ones.
GATHER_S = 0.05


def read(transport: Transport, plan_path: str) -> tuple[list[Event], History]:
    """All events, and what is missing. Raises HistoryNotKept, PlanNotFound and
    PayloadUndecodable."""
    found = _read(transport, plan_path)
    return list(Events().of(found.records)), found


def read_state(transport: Transport, plan_path: str) -> tuple[PlanState, History]:
    """What all events add up to, and what is missing: cheaper than the events. Raises as `read`."""
    found = _read(transport, plan_path)
    return PlanState().add(found.records), found


def state_at(transport: Transport, plan_path: str, when: float) -> PlanState:
    """What the plan was like at `when`, in seconds since 1970. Raises as `read`."""
    found = _read(transport, plan_path)
    return PlanState().add(record for record in found.records if record.ms <= when * 1000)


def ended_tasks(transport: Transport, plan_path: str) -> list[TaskState] | None:
    """The tasks that have ended, by number, as far as the history reaches; None without one."""
    found = transport.run(read_history(plan_path))
    if found is None:
        return None
    tasks = PlanState().add(found.records).tasks
    return [tasks[number] for number in sorted(tasks) if tasks[number].gone]


def _read(transport: Transport, plan_path: str) -> History:
    found = transport.run(read_history(plan_path))
    if found is None:
        raise _no_history(transport, plan_path)
    return found


def follow(transport: Transport, plan_path: str) -> Iterator[Event]:
    """All events, and those to come, until the plan ends or is removed. Raises as `read`."""
    events, after = Events(), -1
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
            for event in events.of(found.records):
                yield event
                after = event.position
            if events.state.has_ended:
                return
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
