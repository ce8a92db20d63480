"""Routes of histories: the events of a plan, its timeline, and what its tasks printed and
logged."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from ..views.history import Event, missing, read, read_state, read_whole
from ..views.task_logs import AttemptTold, TaskLog, attempts_told, behind, joined, last_of, whole
from ..views.timeline_spans import Lines, Row, lines
from .answers import Cursor, Limit, NotModified, Page, Tagged, cursor_of, documented, parts_of
from .parameters import NUMBER_MAX, PlanOf, TaskOf, existing, needs

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


# ---- The route of what a task has printed and logged, as the history of its plan keeps it.


logs_router = APIRouter(tags=["tasks"], responses=documented(404, 409, 422))
#: Bytes of text in one item, and in one page, before the next one begins.
ITEM_BYTES, PAGE_BYTES = 64 * 1024, 1024 * 1024
#: So many attempts are named at most, the latest.
ATTEMPTS_MAX = 500
#: A claim has such a number in the tree.
Attempt = Annotated[int, Field(ge=0, le=NUMBER_MAX)] | Literal["last"]


class PrintedOut(BaseModel):
    """Some of what an attempt has printed and logged: `text` is as it was printed.

    `attempt` is the number of a claim, `worker` had that. `position` counts the bytes (of UTF-8)
    that the attempt had printed before, `cut` those of them that are missing just before this text.
    `when` it became known.
    """

    attempt: int
    worker: str
    when: float
    position: int
    cut: int
    text: str


class AttemptOut(BaseModel):
    """An attempt, also one that has printed nothing. `printed`: so many bytes, as far as is told.

    `claimed` is null where the history does not reach back to it.
    """

    attempt: int
    worker: str
    claimed: float | None
    printed: int


class LogsPage(Page[PrintedOut]):
    """What was printed, by attempt and in order. `behind` is the cursor for what comes later.

    `attempts` are all that the history tells of, the latest 500. `missing` says what the history
    does not tell; empty where it is whole.
    """

    behind: str
    attempts: list[AttemptOut]
    missing: list[str]


@logs_router.get(
    "/plans/{plan}/tasks/{task}/logs", dependencies=[needs("read")], responses=NotModified
)
def show_logs(
    task: TaskOf,
    tagged: Tagged,
    limit: Limit = 100,
    cursor: Cursor = None,
    attempt: Annotated[
        Attempt | None, Query(description="Only that attempt: its number, or `last`.")
    ] = None,
    tail: Annotated[
        int | None, Query(ge=1, le=PAGE_BYTES, description="Only the last so many bytes.")
    ] = None,
) -> LogsPage:
    """What a task has printed and logged, also one that has finished: the last of each attempt.

    It is text of the task, control characters and all. The events of the plan say when there is
    more.
    """
    found = read_whole(task.client.values, existing(task).plan.path)
    records, number = list(found.records()), int(task.number)
    attempts = attempts_told(records, number)
    wanted = attempts[-1].attempt if attempt == "last" and attempts else attempt
    pieces = [each for each in whole(records, number) if wanted in (None, each.attempt)]
    place = (-1, 0) if cursor is None else _place(cursor)
    pieces = list(behind(pieces, *place))
    if tail is not None:
        pieces = last_of(pieces, tail)
    items = list(joined(pieces, ITEM_BYTES))
    shown = _page(items, limit)
    if shown:
        place = shown[-1].attempt, shown[-1].end
    return tagged(
        LogsPage(
            items=[_printed(each) for each in shown],
            next=cursor_of(*place) if len(items) > len(shown) else None,
            behind=cursor_of(*place),
            attempts=[_attempt(each) for each in attempts[-ATTEMPTS_MAX:]],
            missing=missing(found),
        )
    )


def _place(cursor: str) -> tuple[int, int]:
    attempt, end = parts_of(cursor, int, int)
    return int(attempt), int(end)


def _page(items: Sequence[TaskLog], limit: int) -> Sequence[TaskLog]:
    """As many as one page has, at least one."""
    room = PAGE_BYTES
    for at, item in enumerate(items[:limit]):
        room -= item.end - item.position
        if room < 0 and at:
            return items[:at]
    return items[:limit]


def _printed(piece: TaskLog) -> PrintedOut:
    return PrintedOut(**{name: getattr(piece, name) for name in PrintedOut.model_fields})


def _attempt(told: AttemptTold) -> AttemptOut:
    return AttemptOut(**{name: getattr(told, name) for name in AttemptOut.model_fields})
