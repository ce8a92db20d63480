"""Read the history of a plan, once or as it grows, and turn its records into events."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..basics.text import count
from ..errors import HistoryNotKept, PayloadUndecodable, PlanError, PlanNotFound
from ..protocol.history.compaction import read_history
from ..protocol.history.events import RawEvent
from ..protocol.history.segments import Record, history_path
from ..protocol.layout import RANK_MIDDLE, parse_lease
from ..protocol.requests import ReadData
from ..values.plan_values import Values
from ..values.store_maintenance import Earlier, earlier
from .history_state import DAMAGED, FAILED, KINDS, SKIPPED, PlanState, TaskState, damaged

#: Seconds after which a follower looks again without a watch, which a connection can lose.
LOOK_S = 10.0
#: Seconds between two reads of a follower: a busy plan then costs few large reads.
GATHER_S = 0.05


class Whole(NamedTuple):
    """The readable parts of a history: those in the store, then the records in the tree.

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
    """All events, and the history that has them (for `missing`). Raises HistoryNotKept,
    PlanNotFound and PayloadUndecodable."""
    found = read_whole(values, plan_path)
    return list(Events().of(found.records())), found


def read_state(values: Values, plan_path: str) -> tuple[PlanState, Whole]:
    """The state after all events, and the history. Cheaper than `read`. Raises as `read`."""
    found = read_whole(values, plan_path)
    return PlanState().add(found.records()), found


def read_whole(values: Values, plan_path: str) -> Whole:
    """The history as records. Raises as `read`."""
    found = read_if_kept(values, plan_path)
    if found is None:
        raise _no_history(values, plan_path)
    return found


def read_if_kept(
    values: Values, plan_path: str, after: int = -1, watch: bool = False
) -> Whole | None:
    """As `read_whole`, but None if the plan keeps no history, and only records after `after`.

    It reads the tree before the store, so that it misses no records that move there meanwhile.
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
    """The ended tasks in the history, in the order of their numbers; None without a history."""
    tasks = told_tasks(values, plan_path)
    if tasks is None:
        return None
    return [tasks[number] for number in sorted(tasks) if tasks[number].gone]


def told_tasks(values: Values, plan_path: str) -> dict[int, TaskState] | None:
    """All tasks in the history, by number; None if the plan keeps no history."""
    found = read_if_kept(values, plan_path)
    return None if found is None else PlanState().add(found.records()).tasks


class RecordFollower:
    """Reads a history as it grows. One thread at a time may call `read_on`, any thread `close`."""

    def __init__(self, values: Values, plan_path: str) -> None:
        self._values, self._plan_path = values, plan_path
        self._after, self._has_read = -1, False
        self._closed = threading.Event()
        self._woken = woken = threading.Event()
        path = history_path(plan_path)

        # `wake` does not refer to the follower, so the follower can be collected with its iterator.
        def wake(changed: str | None) -> None:
            if changed is None or changed == path:
                woken.set()

        self._wake = wake
        values.transport.listen(wake)

    def read_on(self) -> list[Record] | None:
        """Wait for the next records, which may be none. Returns None after the plan was removed or
        this was closed. Raises as `read`."""
        if self._has_read:
            self._woken.wait(LOOK_S)
            self._closed.wait(GATHER_S)
        self._woken.clear()  # before the check, so that a later `close` sets it again
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
        """End `read_on`, even while it waits. May be called again."""
        if not self._closed.is_set():
            self._closed.set()
            self._values.transport.unlisten(self._wake)
            self._woken.set()


class Follower:
    """Reads the events of a history as it grows."""

    def __init__(self, values: Values, plan_path: str) -> None:
        self._records, self._events = RecordFollower(values, plan_path), Events()
        self.close = self._records.close

    def read_on(self) -> list[Event]:
        """Wait for the next events. Returns an empty list after the plan has ended or was removed,
        and after `close`. Raises as `read`."""
        while not self._events.state.has_ended:
            records = self._records.read_on()
            if records is None:
                break
            if told := list(self._events.of(records)):
                return told
        return []


def follow(values: Values, plan_path: str) -> Iterator[Event]:
    """All events so far, then each new one until the plan ends or is removed. Raises as `read`."""
    with closing(Follower(values, plan_path)) as follower:
        while told := follower.read_on():
            yield from told


def missing(found: Whole) -> list[str]:
    """What is missing of a history, in words; empty if it is whole."""
    return gaps(found.earlier, found.untold, found.damaged)


def gaps(earlier: Earlier, untold: int, damaged: list[str]) -> list[str]:
    """As `missing`, from the fields of a `Whole`."""
    told, cut = list[str](), earlier.cut
    if cut.imported:
        told.append("it begins with the import of the plan")
    if cut.events:
        first = "its first" if not earlier.parts else "of its older events"
        events = f"{first} {cut.events:,}{'' if earlier.parts else ' events'}"
        more = f"; {earlier.why}" if earlier.why else ""
        told.append(f"{events} were let go: its size is limited{more}")
    if untold:
        told.append(f"{untold:,} transactions have no events (full server, or access list)")
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


# ---- Events for people and programs, made from the records of a history. Pure.


#: The kind of the event that changes a plan's state, by the new state.
_STATES = {"running": "resumed", "paused": "paused", "cancelled": "cancelled"}
#: All kinds of events, each with the first fields of the stored events that may be of this kind.
EVENT_KINDS: dict[str, tuple[str, ...]] = {
    **{kind: (letter,) for letter, kind in KINDS.items() if letter != "S"},
    **dict.fromkeys(("skipped", "failed"), ("k",)),
    "lapsed": ("l",),
    "share changed": ("S",),
    **{kind: ("S", state) for state, kind in _STATES.items()},
    "ready": ("S", "running"),
}


@dataclass(frozen=True, slots=True)
class Event:
    """What happened to a task, or to its plan, in one transaction.

    `kind` is `added`, `runnable`, `claimed`, `committed`, `skipped`, `failed` (for good, and passed
    to its dependents), `dead` (for good, and kept), `attempt failed`, `handed back`, `lost` (with
    its worker), `lapsed` (with its lease), `retried`, `decided`, `due`, `opened`, `moved`,
    `result stored`, `delivered`, `edges added`, `started`, `logged`, `printed` (`Task.logs` gives
    the text); of a plan `ready`, `paused`, `resumed`, `cancelled`, `share changed`, `done`.

    `position` is its place in the order in which ZooKeeper applied the transactions; `when` is
    ZooKeeper's time, in wall-clock seconds. `by` is who did it: the ID of a worker, or a user, a
    machine and a command. `task` is the number of a task, empty for a plan. `worker` holds the
    claim: the ID of a worker, or a lease. `attempt` is the number of the claim, which grows with
    each claim of the task. Of an ended attempt, `seconds` is how long its function ran, by the
    worker's clock; under a lease it is the time since the task was given out. `size` is the size of
    an outcome as it is stored, or of printed text, in bytes. `detail` says more.
    """

    position: int
    when: float
    kind: str
    by: str
    task: str = ""
    name: str = ""
    worker: str = ""
    attempt: int | None = None
    seconds: float | None = None
    size: int | None = None
    error: str = ""
    detail: str = ""


class Events:
    """Turns the records of one history into events; `state` is the plan after those so far."""

    def __init__(self) -> None:
        self.state = PlanState()

    def of(self, records: Iterable[Record]) -> Iterator[Event]:
        """The events of the next records. Raises PayloadUndecodable for a damaged one."""
        for record in records:
            for told in record.events:
                before = self.state.state
                try:
                    self.state.apply([record._replace(events=[told])])
                    event = self._event(record, told, before)
                except DAMAGED as error:
                    raise damaged(record, error) from None
                if event is not None:
                    yield event

    def _event(self, record: Record, told: RawEvent, before: str) -> Event | None:
        letter, when = told[0], record.ms / 1000
        if letter == "S":
            kind = "share changed" if told[1] == before else _STATES[told[1]]
            if before == "defining" and told[1] == "running":
                kind = "ready"
            shares = zip(("weight", "priority"), told[2:], strict=False)
            detail = ", ".join(f"{name} {value}" for name, value in shares if value is not None)
            return Event(record.number, when, kind, record.by, detail=detail)
        if letter in "DR":
            dead = sum(task.place == "x" for task in self.state.tasks.values())
            detail = f"{count(dead, 'task')} failed" if dead and letter == "D" else ""
            return Event(record.number, when, KINDS[letter], record.by, detail=detail)
        if letter not in KINDS:
            return None
        task = self.state.tasks[told[1]]
        more: dict[str, Any] = {}
        kind = KINDS[letter]
        if letter == "l" and parse_lease(task.worker) is not None:
            kind = "lapsed"
        if letter in "chlkxf":
            more["worker"], more["attempt"] = task.worker, task.n if task.n >= 0 else None
        if letter == "p":
            more["worker"], more["attempt"] = (told[5] if len(told) > 5 else record.by), told[2]
            more["size"] = len(told[4].encode())
        if letter in "kxfv":
            more["seconds"] = task.ran_ms / 1000 if task.ran_ms >= 0 else None
        if letter in "kxf":
            more["error"] = task.error
        if letter == "k":
            more["size"] = task.size
            kind = "skipped" if task.flags & SKIPPED else "failed" if task.flags & FAILED else kind
        elif letter in "arhlfotumw":
            more["detail"] = _place(task.place, task.k)
        if letter == "o":
            more["detail"] = _decision(told)
        elif letter == "m" and len(told) > 3:
            more["detail"] += f", priority {RANK_MIDDLE - int(told[3])}"
        elif letter == "e":
            more["detail"] = "to " + ", ".join(map(str, told[2]))
        return Event(record.number, when, kind, record.by, f"{told[1]:010d}", task.name, **more)


def _decision(told: RawEvent) -> str:
    if len(told) > 4 and told[4]:
        return "skipped"
    return "its failure is delivered again" if told[3] == "x" else "cancelled"


def _place(place: str, k: int) -> str:
    """Where a task stands, in words.

    >>> _place("r5000.1.0~db/gpu", 0), _place("", 2)
    ('queue gpu, limits db', 'waits for 2')
    """
    if not place:
        return f"waits for {k}"
    entry, _, queue = place.partition("/")
    limits = entry.split("~")[1:]
    told = [f"queue {queue}"] if queue else []
    told += [f"limits {', '.join(limits)}"] if limits else []
    if place[0] == "d":
        told.insert(0, "delayed")
    if place[0] == "g":
        told.insert(0, "gated")
    return ", ".join(told)
