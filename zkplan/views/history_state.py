"""Add up the events of a plan: where each task stands, or how it ended."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ..errors import PayloadUndecodable
from ..protocol.history.events import RawEvent
from ..protocol.history.segments import GAP, Record
from ..protocol.layout import DEFAULT_QUEUE, RANK_MIDDLE, queue_in

#: The kind of an event, by its letter.
KINDS = {
    "a": "added",
    "c": "claimed",
    "e": "delivered",
    "f": "attempt failed",
    "g": "opened",
    "h": "handed back",
    "j": "edges added",
    "k": "committed",
    "l": "lost",
    "m": "moved",
    "n": "logged",
    "o": "decided",
    "p": "printed",
    "r": "runnable",
    "s": "started",
    "t": "retried",
    "u": "due",
    "v": "result stored",
    "w": "waits again",
    "x": "dead",
    "D": "done",
    "R": "plan retried",
    "S": "state",
}
KEPT, SKIPPED, FAILED, DEAD = 1, 2, 4, 8
#: For how many attempts before the last one the times are kept: the latest ones.
EARLIER_MAX = 20
#: Matches the beginning of a place that has a rank, N and A.
_ENTRY = re.compile(r"[rdg](?:\d+-)?(\d{4})\.\d+\.(\d+)")
_PLACES = {"r": "runnable", "c": "running", "d": "delayed", "g": "gated", "x": "dead"}


@dataclass(slots=True)
class TaskState:
    """A task as its events describe it. Times are of the server, in ms since 1970, 0 if not known.

    `place`: see docs/internals/protocol.md; empty while it waits. `open` counts the edges from each
    task that it still waits for. `claimed_ms`, `started_ms`, `ended_ms` and `ran_ms` are of its
    last attempt; `earlier` has the start and the end of each attempt before. `printed`: how many
    bytes the latest attempt that printed anything has printed, as far as the history says.
    `decided`: the flags of the outcome that an operator has fixed. `is_known`: its add is in the
    history, which may have lost its beginning. `entry` is the last place that had a rank and a
    count of attempts, and `used` how many attempts were used up at its end, -1 if not known.
    """

    number: int
    name: str = ""
    lane: str = ""
    k: int = 0
    place: str = ""
    worker: str = ""
    n: int = -1
    deps: tuple[int, ...] = ()
    open: dict[int, int] = field(default_factory=dict)
    added_ms: int = 0
    runnable_ms: int = 0
    claimed_ms: int = 0
    started_ms: int = 0
    ended_ms: int = 0
    failed: int = 0
    claims: int = 0
    error: str = ""
    size: int = 0
    ran_ms: int = -1
    flags: int = 0
    gone: bool = False
    is_known: bool = False
    decided: int = 0
    printed: int = 0
    earlier: tuple[tuple[int, int], ...] = ()
    entry: str = ""
    used: int = -1

    @property
    def priority(self) -> int | None:
        """Its priority in its last entry; None if the history has no entry."""
        found = _ENTRY.match(self.entry)
        return RANK_MIDDLE - int(found[1]) if found else None

    @property
    def queue(self) -> str:
        return queue_in(self.lane or DEFAULT_QUEUE)

    @property
    def state(self) -> str:
        """Its state as in `Plan.tasks`, or how it ended: `committed`, `skipped`, `failed`."""
        if self.gone:
            if self.flags & SKIPPED:
                return "skipped"
            return "failed" if self.flags & FAILED else "committed"
        return _PLACES.get(self.place[:1], "waiting")


#: What a damaged event raises while it is applied.
DAMAGED = (LookupError, TypeError, ValueError, AttributeError)


def damaged(record: Record, error: Exception) -> PayloadUndecodable:
    return PayloadUndecodable(f"record {record.number} of a history is damaged: {error}")


class PlanState:
    """The state of a plan, built from the records of its history in order."""

    def __init__(self) -> None:
        self.state = "defining"
        self.done = False
        self.tasks: dict[int, TaskState] = {}
        self.ms = 0
        self.number = -1
        self._feeds: dict[int, set[int]] = {}

    def apply(self, records: Iterable[Record]) -> None:
        """Apply the next records. Raises an error in DAMAGED for a damaged event."""
        for record in records:
            self.number, self.ms = record.number, record.ms
            for event in record.events:
                self._event(record, event)

    def add(self, records: Iterable[Record]) -> PlanState:
        """As `apply`, but returns `self`, and raises PayloadUndecodable for a damaged record."""
        for record in records:
            try:
                self.apply((record,))
            except DAMAGED as error:
                raise damaged(record, error) from None
        return self

    @property
    def end(self) -> str:
        """`done`, `failed` or `cancelled`; empty while it has not ended. See `PlanStatus.state`."""
        if self.done:
            return "failed" if any(task.place == "x" for task in self.tasks.values()) else "done"
        return "cancelled" if self.state == "cancelled" else ""

    @property
    def has_ended(self) -> bool:
        """Whether nothing more happens: the plan is done, or cancelled with no claim left."""
        if self.done or self.state != "cancelled":
            return self.done
        return not any(task.place == "c" for task in self.tasks.values())

    def task(self, number: int) -> TaskState:
        found = self.tasks.get(number)
        if found is None:
            if type(number) is not int or not 0 <= number < 10**10:
                raise ValueError("an event has no valid number of a task")
            found = self.tasks[number] = TaskState(number)
        return found

    def _event(self, record: Record, event: RawEvent) -> None:
        letter = event[0]
        if letter == "S":
            self.state = event[1]
            return
        if letter in "DR":
            self.done = letter == "D"
            return
        if letter == GAP:  # unfinished tasks may have ended in the gap
            self.tasks = {number: task for number, task in self.tasks.items() if task.gone}
            self._feeds.clear()
            return
        if letter not in KINDS:
            return  # an event of a newer zkplan
        task = self.task(event[1])
        if letter == "a":
            self._added(record, task, event)
        elif letter == "j":
            self._add_edges(task, _at(event, 2, []), again=task.place == "x")
        elif letter == "e":
            for target in _at(event, 2, []):
                self._close(self.task(target), task.number)
        elif letter == "k":
            self._ended(record, task, event)
        elif letter in "ns":
            pass
        elif letter == "p":
            task.printed = _at(event, 3, 0) + len(_at(event, 4, "").encode())
        elif letter == "v":
            _ran(record, task, _at(event, 3, -1), _at(event, 4, -1))
            _use(task, _at(event, 3, -1))
        else:
            self._moved(record, task, event)

    def _added(self, record: Record, task: TaskState, event: RawEvent) -> None:
        task.is_known, task.added_ms = True, record.ms
        task.name, task.lane, task.k = _at(event, 2, ""), _at(event, 5, ""), _at(event, 6, 0)
        self._add_edges(task, _at(event, 4, []))
        place = _at(event, 3, "")
        if place:
            _stand(record, task, place)

    def _add_edges(self, task: TaskState, sources: list[int], *, again: bool = False) -> None:
        """`again`: the task has waited for `sources` before, and they failed."""
        task.deps += () if again else tuple(sources)
        for source in sources:
            task.open[source] = task.open.get(source, 0) + 1
            self._feeds.setdefault(source, set()).add(task.number)

    def _close(self, task: TaskState, source: int) -> None:
        left = task.open.pop(source, 0) - 1
        if left > 0:
            task.open[source] = left

    def _ended(self, record: Record, task: TaskState, event: RawEvent) -> None:
        task.flags, task.size = _at(event, 2, 0) | task.decided, _at(event, 3, 0)
        task.error = _at(event, 6, "")
        task.worker = _at(event, 7, "") or record.by if task.place == "c" else task.worker
        if task.place != "c":
            task.worker = record.by  # in a run of pure tasks it has no claim of its own
        if task.used < 0 or _at(event, 4, -1) >= 0:  # else the wide delivery has noted it
            _use(task, _at(event, 4, -1))
        if _at(event, 4, -1) >= 0 or task.ran_ms < 0:
            _ran(record, task, _at(event, 4, -1), _at(event, 5, -1))
        task.gone, task.place = True, ""
        task.ended_ms = task.ended_ms or record.ms
        for target in self._feeds.pop(task.number, ()):
            self.tasks[target].open.pop(task.number, None)

    def _moved(self, record: Record, task: TaskState, event: RawEvent) -> None:
        letter = event[0]
        if letter == "c":
            task.place, task.n = "c", _at(event, 2, 0)
            task.worker = _at(event, 3, "") or record.by
            task.claimed_ms, task.claims = record.ms, task.claims + 1
            return
        if letter == "x":
            task.place, task.error, task.ended_ms = "x", _at(event, 2, ""), record.ms
            task.failed += 1
            if _at(event, 3, -1) >= 0 or task.ran_ms < 0:  # else the wide delivery has noted it
                _ran(record, task, _at(event, 3, -1), _at(event, 4, -1))
            return
        if letter == "w":
            task.decided, task.place, task.ended_ms = 0, "", 0
            self._add_edges(task, _at(event, 2, []), again=True)
            return
        if letter == "f":
            task.error, task.failed = _at(event, 3, ""), task.failed + 1
            _ran(record, task, _at(event, 4, -1), _at(event, 5, -1))
        elif letter == "t":
            task.decided = 0
        elif letter == "o":
            task.open.clear()  # its edges are cut
            if _at(event, 4, 0):
                task.decided = SKIPPED
            elif _at(event, 3, "") != "x":
                task.decided = FAILED
        place = _at(event, 2, "")
        if place or letter != "m":
            _stand(record, task, place)
        else:  # it was moved while it waited
            task.entry = f"r{_at(event, 3, '')}.0.0"


def _stand(record: Record, task: TaskState, place: str) -> None:
    task.place, task.ended_ms = place, 0
    if place[0] in "rdg":
        task.entry = place
    if place[0] == "r":
        task.runnable_ms = record.ms


def _use(task: TaskState, ran_ms: int) -> None:
    """Set `used` at the end of a task, by an attempt, or by an operator or another task."""
    found = _ENTRY.match(task.entry)
    before = int(found[2]) if found else 0 if task.is_known else -1
    task.used = before + (ran_ms >= 0) if before >= 0 else -1


def _ran(record: Record, task: TaskState, ran_ms: int, ago_ms: int) -> None:
    if task.ran_ms >= 0:
        before = task.started_ms, task.started_ms + task.ran_ms
        task.earlier = (*task.earlier, before)[-EARLIER_MAX:]
    task.ran_ms = ran_ms
    if ran_ms >= 0:
        end = record.ms - max(0, ago_ms)
        task.started_ms, task.ended_ms = end - ran_ms, end


def _at(event: RawEvent, index: int, default: Any) -> Any:
    """A field of an event, or `default` if the event leaves it out. Raises TypeError."""
    value = event[index] if index < len(event) else None
    if value is None:
        return default
    if type(value) is not type(default):
        raise TypeError(f"field {index} of an event is not of type {type(default).__name__}")
    return value
