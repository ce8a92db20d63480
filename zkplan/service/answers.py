"""What every answer follows: errors as application/problem+json, entity tags, and pages of
lists."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from itertools import islice
from typing import Annotated, Any, Generic, TypeAlias, TypeVar

from fastapi import Depends, Header, HTTPException, Query, Request, Response
from pydantic import BaseModel

from .. import errors

MEDIA_TYPE = "application/problem+json"
#: Seconds after which a client may ask again.
RETRY_AFTER_S = 5


class ProblemBody(BaseModel):
    """An error, as RFC 9457 says. `todo` says what to do; `plan` and `task` are numbers."""

    type: str
    title: str
    status: int
    detail: str
    todo: str = ""
    plan: int | None = None
    task: int | None = None


class Problem(HTTPException):
    """An answer that is an error. `kind` is the end of its `type`.

    It is an HTTPException, because FastAPI lets no other error out of where it reads a body.
    """

    def __init__(
        self,
        status: int,
        kind: str,
        detail: str,
        todo: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(status, detail, dict(headers or {}))
        self.kind, self.todo, self.more = kind, todo, more

    def body(self) -> dict[str, Any]:
        """What the answer says."""
        return {
            "type": f"urn:zkplan:problem:{self.kind}",
            "title": HTTPStatus(self.status_code).phrase,
            "status": self.status_code,
            "detail": self.detail,
            "todo": self.todo,
            **{name: value for name, value in self.more.items() if value is not None},
        }

    def response(self) -> Response:
        """The answer itself, in ASCII: a text of the tree may hold half of a character."""
        return Response(json.dumps(self.body()), self.status_code, self.headers, MEDIA_TYPE)


#: The first class that an error is of decides: status, kind, what to do.
_KINDS: tuple[tuple[type[errors.ZkplanError], int, str, str], ...] = (
    (errors.PlanNotFound, 404, "plan-not-found", "List the plans: GET /v1/plans."),
    (errors.ScheduleNotFound, 404, "schedule-not-found", "List them: GET /v1/schedules."),
    (errors.WorkerNotFound, 404, "worker-not-found", "List the workers: GET /v1/workers."),
    (errors.PlanExists, 409, "plan-exists", "Take the plan that has the key."),
    (errors.PlanDrained, 409, "plan-done", "Create another plan: this one has ended."),
    (errors.PlanCancelled, 409, "plan-cancelled", "Create another plan: this one has ended."),
    (errors.HistoryNotKept, 409, "history-not-kept", "Create plans with their history."),
    (errors.PlanError, 409, "plan-state", "Look at the state of the plan."),
    (errors.ResultNotKept, 404, "result-not-kept", "Add the task with keep=true."),
    (errors.InvalidTask, 422, "invalid-task", "Change what the detail names."),
    (errors.ForeignTask, 422, "invalid-task", "Change what the detail names."),
    (errors.TaskError, 409, "task-state", "Look at the state of the task."),
    (errors.NotSerialisable, 422, "not-json", "Change what the detail names."),
    (errors.PayloadTooLarge, 413, "too-large", "Give the service a store (--store)."),
    (errors.UpdateTooLarge, 413, "too-large", "Do it in several updates."),
    (errors.StoredValueLost, 410, "value-lost", "Run the task again, if its value is needed."),
    (errors.PayloadError, 409, "undecodable", "Read it with a client that has its keys."),
    (errors.BudgetSpent, 409, "budget-spent", "Remove plans that have ended."),
    (errors.StoreUnavailable, 503, "store-unavailable", "Ask again."),
    (errors.ZooKeeperUnavailable, 503, "zookeeper-unavailable", "Ask again."),
    (errors.ClientClosed, 503, "zookeeper-unavailable", "Ask again."),
    (errors.ServerRolledBack, 503, "zookeeper-restored", "Ask again."),
    (errors.AccessDenied, 403, "tree-denied", "Give the service a login that has the right."),
    (errors.ServerFull, 503, "server-full", "Remove plans that have ended, or raise the quota."),
    (errors.TransactionRejected, 409, "rejected", "Read the state again, then repeat."),
    (errors.InvariantViolated, 500, "tree-damaged", "Run `zkplan plan check`, and report it."),
    (errors.ZkplanError, 409, "refused", "Change what the detail names."),
)


def problem_of(error: errors.ZkplanError) -> Problem:
    """The answer for an error of zkplan."""
    _, status, kind, todo = next(each for each in _KINDS if isinstance(error, each[0]))
    headers = {"Retry-After": str(RETRY_AFTER_S)} if status == 503 else {}
    more: dict[str, Any] = {"plan": _number(getattr(error, "plan", ""))}
    more["task"] = _number(getattr(error, "task", ""))
    if error.added:
        more["added"] = error.added
    return Problem(status, kind, str(error), todo, headers=headers, **more)


def _number(text: object) -> int | None:
    digits = str(text).rpartition("-")[2]
    return int(digits) if digits.isascii() and digits.isdecimal() and len(digits) <= 10 else None


Responses = dict[int | str, dict[str, Any]]


def documented(*codes: int) -> Responses:
    """What a route may answer besides its result, for the contract."""
    return {
        code: {
            "model": ProblemBody,
            "description": HTTPStatus(code).phrase,
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemBody"}}},
        }
        for code in (400, 401, 403, 413, 421, 429, 503, *codes)
    }


# ---- Tags of answers: what has not changed is not sent again, nor changed by who has not seen it.


ShownModel = TypeVar("ShownModel", bound=BaseModel)
#: For the contract of routes whose answers have tags.
NotModified: dict[int | str, dict[str, Any]] = {
    304: {"description": "It is as If-None-Match says."}
}


class _Same(Exception):
    """The caller has it already."""

    def __init__(self, tag: str) -> None:
        super().__init__(tag)
        self.tag = tag


def tag_of(shown: BaseModel) -> str:
    """The tag of what is shown."""
    return f'"{hashlib.blake2b(shown.model_dump_json().encode(), digest_size=12).hexdigest()}"'


class Tagger:
    """Gives the answer its tag, or says that it has not changed."""

    def __init__(
        self,
        response: Response,
        if_none_match: Annotated[str | None, Header(max_length=2000)] = None,
    ) -> None:
        self._response, self._known = response, _tags(if_none_match)

    def __call__(self, shown: ShownModel) -> ShownModel:
        tag = tag_of(shown)
        if tag in self._known or "*" in self._known:
            raise _Same(tag)
        self._response.headers["ETag"] = tag
        return shown


Tagged: TypeAlias = Annotated[Tagger, Depends(Tagger)]
IfMatch: TypeAlias = Annotated[
    str | None,
    Header(max_length=2000, description="Change it only if it still has one of these tags."),
]


def demand(if_match: str | None, shown: BaseModel | None) -> None:
    """Raise Problem if the caller wants to change what is not there as it was seen."""
    if if_match is None:
        return
    known = _tags(if_match)
    if shown is None or not ("*" in known or tag_of(shown) in known):
        raise Problem(
            412,
            "changed-meanwhile",
            "it is not as If-Match says any more",
            "Read it again, and repeat with its new ETag.",
        )


def _tags(header: str | None) -> frozenset[str]:
    """Weak ones count as strong: an answer is made anew each time."""
    found = (each.strip().removeprefix("W/") for each in (header or "").split(","))
    return frozenset(each for each in found if each)


async def not_modified(_: Request, error: Exception) -> Response:
    """The handler of answers that need not be sent."""
    return Response(status_code=304, headers={"ETag": str(error)})


Same = _Same


# ---- Pages of lists: how long one is, and the cursor that says where the next one begins.


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
