"""Events for people and programs, made from the records of a history. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ..basics.text import count
from ..protocol.history import Record
from ..protocol.layout import RANK_MIDDLE, parse_lease
from ..protocol.telling import Told
from .state import DAMAGED, FAILED, KINDS, SKIPPED, PlanState, damaged

#: What a change of a plan's state is called, by the state that it makes.
_STATES = {"running": "resumed", "paused": "paused", "cancelled": "cancelled"}
#: All kinds of events, each with what those begin with that may be of it, as they are written.
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

    `kind` is `added`, `runnable`, `claimed`, `committed`, `skipped`, `failed` (for good, and told
    to its dependents), `dead` (for good, and kept), `attempt failed`, `handed back`, `lost` (with
    its worker), `lapsed` (with its lease), `retried`, `decided`, `due`, `opened`, `moved`,
    `result stored`, `delivered`, `edges added`, `started`, `logged`, `printed` (`Task.logs` gives
    the text); of a plan `ready`, `paused`, `resumed`, `cancelled`, `share changed`, `done`.

    `position` is its place in the order in which ZooKeeper applied the transactions; `when` is
    ZooKeeper's time, in wall-clock seconds. `by` did it: the ID of a worker, or a user, a machine
    and a command. `task` is the number of a task, empty for a plan. `worker` has the claim: it is
    the ID of a worker, or a lease. `attempt` is the number of a claim, which grows with each. Of an
    attempt that ended: `seconds` is how long its function ran, by the worker's clock; under a lease
    it is the time since the task was given out. `size` is that of an outcome in bytes, as it is
    stored, or of what is told to be printed. `detail` says more.
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
    """Follows one history: `state` is what its events have added up to so far."""

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

    def _event(self, record: Record, told: Told, before: str) -> Event | None:
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


def _decision(told: Told) -> str:
    if len(told) > 4 and told[4]:
        return "skipped"
    return "its failure is told once more" if told[3] == "x" else "cancelled"


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
