"""Routes of histories: what happened to a plan, event by event, and as a time line."""

from __future__ import annotations

from itertools import islice
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel

from ..history.events import Event
from ..history.lines import Lines, Row, lines
from ..history.reading import missing, read, read_state
from .asked import NUMBER_MAX, PlanOf, needs
from .etags import NotModified, Tagged
from .paging import Cursor, Limit, Page, cursor_of, parts_of
from .problems import documented

router = APIRouter(tags=["plans"], responses=documented(404, 409, 422))


class EventOut(BaseModel):
    """What happened to a task, or to its plan (`task` null), in one transaction.

    `position` is its place in ZooKeeper's order. `kind` says what: `claimed`, `committed` and so
    on. `by` did it: a worker, or a person or a token. `worker` has the claim: a worker, or a lease.
    `attempt` is the number of a claim. `seconds` is how long the function ran, `size` that of the
    outcome in bytes.
    """

    position: int
    when: float
    kind: str
    by: str
    task: int | None
    name: str
    worker: str
    attempt: int | None
    seconds: float | None
    size: int | None
    error: str
    detail: str


class HistoryPage(Page[EventOut]):
    """Events in order. `behind` is the cursor behind the last item, for what comes later.

    `missing` says what the history does not tell; empty where it is whole.
    """

    behind: str
    missing: list[str]


@router.get("/plans/{plan}/history", dependencies=[needs("read")], responses=NotModified)
def show_history(
    plan: PlanOf,
    tagged: Tagged,
    limit: Limit = 100,
    cursor: Cursor = None,
    task: Annotated[int | None, Query(ge=0, le=NUMBER_MAX)] = None,
    since: Annotated[float | None, Query(ge=0, le=1e11, description="Later events alone.")] = None,
) -> HistoryPage:
    """What happened to a plan, in the order in which ZooKeeper applied it."""
    events, found = read(plan.client.values, plan.path)
    start = 0 if cursor is None else _behind(events, *parts_of(cursor, int, int))
    wanted = (
        at
        for at in range(start, len(events))
        if (task is None or events[at].task == f"{task:010d}") and events[at].when >= (since or 0)
    )
    places = list(islice(wanted, limit + 1))
    shown = places[:limit]
    last = shown[-1] if shown else len(events) - 1
    behind = _cursor(events, last)
    return tagged(
        HistoryPage(
            items=[_event(events[at]) for at in shown],
            next=behind if len(places) > limit else None,
            behind=behind,
            missing=missing(found),
        )
    )


def _cursor(events: list[Event], at: int) -> str:
    """Behind one event: its position, and how many of that position it is."""
    if at < 0:
        return cursor_of(-1, 0)
    position = events[at].position
    first = at
    while first and events[first - 1].position == position:
        first -= 1
    return cursor_of(position, at - first + 1)


def _behind(events: list[Event], position: str | int, count: str | int) -> int:
    """Where the events behind a cursor begin, also if earlier ones were let go since."""
    at = next((at for at, each in enumerate(events) if each.position >= int(position)), len(events))
    passed = 0
    while at < len(events) and events[at].position == position and passed < int(count):
        at, passed = at + 1, passed + 1
    return at


def _event(event: Event) -> EventOut:
    facts = {name: getattr(event, name) for name in EventOut.model_fields}
    return EventOut(**facts | {"task": int(event.task) if event.task else None})


class RanOut(BaseModel):
    """From when until when an attempt ran."""

    started: float
    ended: float


class RowOut(BaseModel):
    """One task, or `count` tasks of one name (`number` null). Times are null where not known.

    `ran` is how many seconds they ran together. `running` counts how many of a name run, in equal
    intervals of the whole. `earlier` are attempts of a single task before its last one, the latest
    20.
    """

    name: str
    count: int
    number: int | None
    state: str
    worker: str
    error: str
    added: float | None
    runnable: float | None
    claimed: float | None
    started: float | None
    ended: float | None
    ran: float | None
    critical: bool
    running: list[int]
    earlier: list[RanOut]


class TimelineOut(BaseModel):
    """Who ran what when. `others` tasks have names that are left out.

    `path` is the critical path: what the end waited for, or its longest tasks; it has `path_tasks`
    and took `path_seconds`.
    """

    first: float
    last: float
    rows: list[RowOut]
    others: int
    path: list[RowOut]
    path_tasks: int
    path_seconds: float
    missing: list[str]


@router.get("/plans/{plan}/timeline", dependencies=[needs("read")], responses=NotModified)
def show_timeline(plan: PlanOf, tagged: Tagged) -> TimelineOut:
    """Who ran what when, and the critical path; many tasks are grouped by their names."""
    state, read_so = read_state(plan.client.values, plan.path)
    found: Lines = lines(state)
    return tagged(
        TimelineOut(
            first=found.first_ms / 1000,
            last=found.last_ms / 1000,
            rows=[_row(each) for each in found.rows],
            others=found.others,
            path=[_row(each) for each in found.path],
            path_tasks=found.path_tasks,
            path_seconds=found.path_ms / 1000,
            missing=missing(read_so),
        )
    )


def _row(row: Row) -> RowOut:
    names = ("added", "runnable", "claimed", "started", "ended")
    times = {name: getattr(row, f"{name}_ms") / 1000 or None for name in names}
    return RowOut(
        **times,
        name=row.name,
        count=row.count,
        number=row.number if row.number >= 0 else None,
        state=row.state,
        worker=row.worker,
        error=row.error,
        ran=row.ran_ms / 1000 if row.ran_ms >= 0 else None,
        critical=row.is_critical,
        running=row.running,
        earlier=[RanOut(started=begin / 1000, ended=end / 1000) for begin, end in row.earlier],
    )
