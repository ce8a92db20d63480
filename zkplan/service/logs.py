"""The route of what a task has printed and logged, as the history of its plan keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from ..history.logs import AttemptTold, TaskLog, attempts_told, behind, joined, last_of, whole
from ..history.reading import missing, read_whole
from .asked import NUMBER_MAX, TaskOf, existing, needs
from .etags import NotModified, Tagged
from .paging import Cursor, Limit, Page, cursor_of, parts_of
from .problems import documented

router = APIRouter(tags=["tasks"], responses=documented(404, 409, 422))
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


@router.get("/plans/{plan}/tasks/{task}/logs", dependencies=[needs("read")], responses=NotModified)
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
