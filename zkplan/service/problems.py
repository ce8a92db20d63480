"""Errors as answers: application/problem+json that says what happened, and what to do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import HTTPException
from pydantic import BaseModel
from starlette.responses import Response

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
