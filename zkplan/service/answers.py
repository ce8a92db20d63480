"""Common parts of answers: problems, entity tags, and pages of lists."""

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
from pydantic import BaseModel, BeforeValidator, ConfigDict

from .. import errors

MEDIA_TYPE = "application/problem+json"
#: Seconds after which a client may ask again.
RETRY_AFTER_S = 5


class Out(BaseModel):
    """A part of an answer: `model_validate` reads it from the attributes of an object."""

    model_config = ConfigDict(from_attributes=True)


#: The number of a plan or task, from the digits of its znode.
NumberOut = Annotated[int, BeforeValidator(int)]
NumberOrNull = Annotated[
    int | None, BeforeValidator(lambda text: int(text) if str(text).isdecimal() else None)
]


class ProblemBody(BaseModel):
    """An error, by RFC 9457. `todo` says what to do; `plan` and `task` are numbers."""

    type: str
    title: str
    status: int
    detail: str
    todo: str = ""
    plan: int | None = None
    task: int | None = None


class Problem(HTTPException):
    """An error as an answer. `kind` is the end of its `type`.

    It is an HTTPException, because FastAPI turns any other error in reading a body into a 400.
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
        """The JSON of the answer."""
        return {
            "type": f"urn:zkplan:problem:{self.kind}",
            "title": HTTPStatus(self.status_code).phrase,
            "status": self.status_code,
            "detail": self.detail,
            "todo": self.todo,
            **{name: value for name, value in self.more.items() if value is not None},
        }

    def response(self) -> Response:
        """The answer. It is ASCII, since a text of the tree may hold half of a surrogate pair."""
        return Response(json.dumps(self.body()), self.status_code, self.headers, MEDIA_TYPE)


#: The status, kind and advice for each class of errors. The first class that fits decides.
_KINDS: tuple[tuple[type[errors.ZkplanError], int, str, str], ...] = (
    (errors.PlanNotFound, 404, "plan-not-found", "List the plans: GET /v1/plans."),
    (errors.ScheduleNotFound, 404, "schedule-not-found", "List the schedules: GET /v1/schedules."),
    (errors.WorkerNotFound, 404, "worker-not-found", "List the workers: GET /v1/workers."),
    (errors.PlanExists, 409, "plan-exists", "Use the plan that has the key."),
    (errors.PlanDrained, 409, "plan-done", "Create another plan: this one has ended."),
    (errors.PlanCancelled, 409, "plan-cancelled", "Create another plan: this one has ended."),
    (errors.HistoryNotKept, 409, "history-not-kept", "Create the plan with history=true."),
    (errors.PlanError, 409, "plan-state", "Look at the state of the plan."),
    (errors.ResultNotKept, 404, "result-not-kept", "Add the task with keep=true."),
    (errors.InvalidTask, 422, "invalid-task", "Change what the detail names."),
    (errors.ForeignTask, 422, "invalid-task", "Change what the detail names."),
    (errors.TaskError, 409, "task-state", "Look at the state of the task."),
    (errors.NotSerialisable, 422, "not-json", "Change what the detail names."),
    (errors.PayloadTooLarge, 413, "too-large", "Give the service a store (--store)."),
    (errors.UpdateTooLarge, 413, "too-large", "Split it into several updates."),
    (errors.StoredValueLost, 410, "value-lost", "Run the task again, if its value is needed."),
    (errors.PayloadError, 409, "undecodable", "Read the value with a client that has its keys."),
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
    """The problem for an error of zkplan."""
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
    """The problems of a route, for the contract."""
    return {
        code: {
            "model": ProblemBody,
            "description": HTTPStatus(code).phrase,
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemBody"}}},
        }
        for code in (400, 401, 403, 413, 421, 429, 503, *codes)
    }


# ---- Entity tags: an unchanged answer is not sent again, and a caller who has seen an older state
# changes nothing.


ShownModel = TypeVar("ShownModel", bound=BaseModel)
#: For the contract of routes whose answers have tags.
NOT_MODIFIED: Responses = {304: {"description": "If-None-Match has the current tag."}}


class NotModified(Exception):
    """The caller has this answer already. The message is its tag."""


def tag_of(shown: BaseModel) -> str:
    """The entity tag of an answer."""
    return f'"{hashlib.blake2b(shown.model_dump_json().encode(), digest_size=12).hexdigest()}"'


class Tagger:
    """Sets the tag of an answer. Raises NotModified if the caller has it already."""

    def __init__(
        self,
        response: Response,
        if_none_match: Annotated[str | None, Header(max_length=2000)] = None,
    ) -> None:
        self._response, self._known = response, _tags(if_none_match)

    def __call__(self, shown: ShownModel) -> ShownModel:
        tag = tag_of(shown)
        if tag in self._known or "*" in self._known:
            raise NotModified(tag)
        self._response.headers["ETag"] = tag
        return shown


Tagged: TypeAlias = Annotated[Tagger, Depends(Tagger)]
IfMatch: TypeAlias = Annotated[
    str | None,
    Header(max_length=2000, description="Make the change only if the current tag is one of these."),
]


def demand(if_match: str | None, shown: BaseModel | None) -> None:
    """Raises Problem if the caller has seen another state than `shown`."""
    if if_match is None:
        return
    known = _tags(if_match)
    if shown is None or not ("*" in known or tag_of(shown) in known):
        raise Problem(
            412,
            "changed-meanwhile",
            "the resource has changed: If-Match does not have its current tag",
            "Read it again, and repeat with its new ETag.",
        )


def _tags(header: str | None) -> frozenset[str]:
    """The tags in a header. Weak tags count as strong ones, since answers are compared whole."""
    found = (each.strip().removeprefix("W/") for each in (header or "").split(","))
    return frozenset(each for each in found if each)


async def not_modified(_: Request, error: Exception) -> Response:
    """The handler of NotModified."""
    return Response(status_code=304, headers={"ETag": str(error)})


# ---- Pages of lists.


T = TypeVar("T")
M = TypeVar("M")
LIMIT_MAX = 500

Limit = Annotated[int, Query(ge=1, le=LIMIT_MAX, description="At most this many items.")]
Cursor = Annotated[
    str | None,
    Query(max_length=500, description="`next` of the previous page; none for the first page."),
]


class Page(BaseModel, Generic[M]):
    """Some items, and the cursor of the next page; null on the last page.

    A page may have fewer items than `limit`, or none, if a filter leaves many out.
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
    """The parts of a cursor. Raises Problem if they are not of these kinds."""
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), b"-_", validate=True)
        parts = json.loads(text)
    except (ValueError, binascii.Error, RecursionError):
        parts = None
    if not isinstance(parts, list) or [type(each) for each in parts] != [*kinds]:
        raise Problem(
            400,
            "wrong-cursor",
            "the cursor is not the `next` of a page of this list",
            "Leave the cursor out, to begin with the first page.",
        )
    return parts


def page_of(
    found: Iterable[T], limit: int, shown: Callable[[T], M], place: Callable[[T], str]
) -> Page[M]:
    """The first `limit` items; `place` makes the cursor after an item."""
    items = list(islice(found, limit + 1))
    more = len(items) > limit
    kept = items[:limit]
    return Page(items=[shown(each) for each in kept], next=place(kept[-1]) if more else None)
