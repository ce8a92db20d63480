"""Routes of histories: the events of a plan, its timeline, and the output of its tasks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from ..views.history import Event, missing, read, read_state, read_whole
from ..views.task_logs import TaskLog, attempts_told, behind, joined, last_of, whole
from ..views.timeline_spans import Row, lines
from .answers import (
    NOT_MODIFIED,
    Cursor,
    Limit,
    NumberOrNull,
    Out,
    Page,
    Tagged,
    cursor_of,
    documented,
    parts_of,
)
from .parameters import NUMBER_MAX, PlanOf, TaskOf, existing, needs

router = APIRouter(tags=["plans"], responses=documented(404, 409, 422))


class EventOut(Out):
    """An event of a task, or of its plan (`task` null), in one transaction.

    `position` is its place in ZooKeeper's order. `kind` is `claimed`, `committed` and so on. `by`
    names the actor: a worker, a person or a token. `worker` names the owner of the claim: a worker
    or a lease. `attempt` is the number of a claim. The function ran for `seconds`. `size` is the
    size of the outcome in bytes.
    """

    position: int
    when: float
    kind: str
    by: str
    task: NumberOrNull
    name: str
    worker: str
    attempt: int | None
    seconds: float | None
    size: int | None
    error: str
    detail: str


class HistoryPage(Page[EventOut]):
    """Events in order. `behind` is the cursor after the last item, for later events.

    `missing` says what the history leaves out; it is empty if the history is whole.
    """

    behind: str
    missing: list[str]


@router.get("/plans/{plan}/history", dependencies=[needs("read")], responses=NOT_MODIFIED)
def show_history(
    plan: PlanOf,
    tagged: Tagged,
    limit: Limit = 100,
    cursor: Cursor = None,
    task: Annotated[int | None, Query(ge=0, le=NUMBER_MAX)] = None,
    since: Annotated[float | None, Query(ge=0, le=1e11, description="Only later events.")] = None,
) -> HistoryPage:
    """The events of a plan, in the order in which ZooKeeper applied them."""
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
            items=[EventOut.model_validate(events[at]) for at in shown],
            next=behind if len(places) > limit else None,
            behind=behind,
            missing=missing(found),
        )
    )


def _cursor(events: list[Event], at: int) -> str:
    """The cursor after an event: its position, and its number among the events there."""
    if at < 0:
        return cursor_of(-1, 0)
    position = events[at].position
    first = at
    while first and events[first - 1].position == position:
        first -= 1
    return cursor_of(position, at - first + 1)


def _behind(events: list[Event], position: str | int, count: str | int) -> int:
    """The index of the first event after a cursor, even if earlier events were dropped since."""
    at = next((at for at, each in enumerate(events) if each.position >= int(position)), len(events))
    passed = 0
    while at < len(events) and events[at].position == position and passed < int(count):
        at, passed = at + 1, passed + 1
    return at


class RanOut(BaseModel):
    """When an attempt started and ended."""

    started: float
    ended: float


class RowOut(BaseModel):
    """One task, or `count` tasks of one name (`number` null). Unknown times are null.

    `ran` is their total run time in seconds. `running` counts the running tasks of a name in equal
    intervals of the whole time. `earlier` has the attempts of a single task before its last one, at
    most 20.
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
    """When and where tasks ran. The rows leave out `others` tasks.

    `path` is the critical path: the tasks that the end waited for, or the longest of them. It has
    `path_tasks` tasks and took `path_seconds`.
    """

    first: float
    last: float
    rows: list[RowOut]
    others: int
    path: list[RowOut]
    path_tasks: int
    path_seconds: float
    missing: list[str]


@router.get("/plans/{plan}/timeline", dependencies=[needs("read")], responses=NOT_MODIFIED)
def show_timeline(plan: PlanOf, tagged: Tagged) -> TimelineOut:
    """When and where tasks ran, and the critical path. Many tasks are grouped by their names."""
    state, history = read_state(plan.client.values, plan.path)
    found = lines(state)
    return tagged(
        TimelineOut(
            first=found.first_ms / 1000,
            last=found.last_ms / 1000,
            rows=[_row(each) for each in found.rows],
            others=found.others,
            path=[_row(each) for each in found.path],
            path_tasks=found.path_tasks,
            path_seconds=found.path_ms / 1000,
            missing=missing(history),
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


logs_router = APIRouter(tags=["tasks"], responses=documented(404, 409, 422))
#: The most bytes of text in one item, and in one page.
ITEM_BYTES, PAGE_BYTES = 64 * 1024, 1024 * 1024
#: The most attempts that are listed, from the latest on.
ATTEMPTS_MAX = 500
Attempt = Annotated[int, Field(ge=0, le=NUMBER_MAX)] | Literal["last"]


class PrintedOut(Out):
    """A part of the output and log lines of an attempt: `text` is as it was printed.

    `attempt` is the number of a claim, `worker` the owner of this claim. `position` counts the
    bytes (of UTF-8) that the attempt had printed before, `cut` those that are missing just before
    `text`. `when` is the time of the record.
    """

    attempt: int
    worker: str
    when: float
    position: int
    cut: int
    text: str


class AttemptOut(Out):
    """An attempt, also one that has printed nothing. `printed` counts the known bytes.

    `claimed` is null if the history does not reach back to the claim.
    """

    attempt: int
    worker: str
    claimed: float | None
    printed: int


class LogsPage(Page[PrintedOut]):
    """The output of a task, by attempt and in order. `behind` is the cursor for later output.

    `attempts` has the attempts in the history, the latest 500. `missing` says what the history
    leaves out; it is empty if the history is whole.
    """

    behind: str
    attempts: list[AttemptOut]
    missing: list[str]


@logs_router.get(
    "/plans/{plan}/tasks/{task}/logs", dependencies=[needs("read")], responses=NOT_MODIFIED
)
def show_logs(
    task: TaskOf,
    tagged: Tagged,
    limit: Limit = 100,
    cursor: Cursor = None,
    attempt: Annotated[
        Attempt | None, Query(description="Only this attempt: its number, or `last`.")
    ] = None,
    tail: Annotated[
        int | None, Query(ge=1, le=PAGE_BYTES, description="Only this many of the last bytes.")
    ] = None,
) -> LogsPage:
    """The output and log lines of a task, also a finished one: the last part of each attempt.

    The text is as the task wrote it, with any control characters. The events of the plan say when
    there is more.
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
            items=[PrintedOut.model_validate(each) for each in shown],
            next=cursor_of(*place) if len(items) > len(shown) else None,
            behind=cursor_of(*place),
            attempts=[AttemptOut.model_validate(each) for each in attempts[-ATTEMPTS_MAX:]],
            missing=missing(found),
        )
    )


def _place(cursor: str) -> tuple[int, int]:
    attempt, end = parts_of(cursor, int, int)
    return int(attempt), int(end)


def _page(items: Sequence[TaskLog], limit: int) -> Sequence[TaskLog]:
    """The items of one page, at least one."""
    room = PAGE_BYTES
    for at, item in enumerate(items[:limit]):
        room -= item.end - item.position
        if room < 0 and at:
            return items[:at]
    return items[:limit]
