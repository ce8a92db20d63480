"""Pages of lists: how long one is, and the cursor that says where the next one begins."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Annotated, Generic, TypeVar

from fastapi import Query
from pydantic import BaseModel

from .problems import Problem

T = TypeVar("T")
M = TypeVar("M")
LIMIT_MAX = 500

Limit = Annotated[
    int, Query(ge=1, le=LIMIT_MAX, description="How many items one page has at most.")
]
Cursor = Annotated[
    str | None,
    Query(max_length=500, description="`next` of the page before; empty for the first page."),
]


class Page(BaseModel, Generic[M]):
    """Some items, and the cursor of the next page; null behind the last one.

    A page may have fewer items than `limit`, or none, where a filter passes many over.
    """

    items: list[M]
    next: str | None = None


def cursor_of(*parts: str | int) -> str:
    """
    >>> parts_of(cursor_of("a", 3), str, int)
    ['a', 3]
    """
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode().rstrip("=")


def parts_of(cursor: str, *kinds: type) -> list[str | int]:
    """What `cursor_of` was given. Raises Problem for a cursor that no page of this list has."""
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), b"-_", validate=True)
        parts = json.loads(text)
    except (ValueError, binascii.Error, RecursionError):
        parts = None
    if not isinstance(parts, list) or [type(each) for each in parts] != [*kinds]:
        raise Problem(
            400,
            "wrong-cursor",
            "the cursor is none that a page of this list has as `next`",
            "Leave the cursor out, to begin with the first page.",
        )
    return parts


def page_of(
    found: Iterable[T], limit: int, shown: Callable[[T], M], place: Callable[[T], str]
) -> Page[M]:
    """The first `limit` of them; `place` makes the cursor behind one."""
    items = list(islice(iter(found), limit + 1))
    more = len(items) > limit
    kept = items[:limit]
    return Page(items=[shown(each) for each in kept], next=place(kept[-1]) if more else None)
