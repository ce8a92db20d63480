"""Routes of outcomes and values: a value is read only where it is asked for, never unpickled."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.responses import Response, StreamingResponse

from ..client import Client
from ..errors import PayloadUndecodable
from ..inspection.outcomes import OutcomeSummary, kept_outcomes
from ..protocol.records import Failure
from ..protocol.requests import ReadData
from ..serialization.codec import FAILURE, VALUE
from ..serialization.functions import split_name
from ..serialization.json_values import JSON, load_json
from ..store.blob import decode
from ..store.reference import Reference, is_stored
from .asked import PlanOf, TaskOf, TaskPlace, needs
from .paging import Cursor, Limit, Page, cursor_of, page_of, parts_of
from .problems import Responses, documented
from .task_views import failure_out

router = APIRouter(tags=["results"], responses=documented(404, 409, 422))
#: Bytes of one piece of a long value on its way.
PIECE = 256 * 1024
_ANY_JSON: Responses = {
    200: {"content": {"application/json": {"schema": {}}}, "description": "The value."}
}
_PROBLEMS = documented(406, 410)


class OutcomeSummaryOut(BaseModel):
    """The kept outcome of a finished task. `size` is in bytes, `when` the time at which it was
    kept."""

    number: int
    name: str
    kind: Literal["result", "skipped", "failure", "undecodable"]
    size: int
    when: float


@router.get("/plans/{plan}/results", dependencies=[needs("read")])
def list_results(
    plan: PlanOf, limit: Limit = 100, cursor: Cursor = None
) -> Page[OutcomeSummaryOut]:
    """The kept outcomes of finished tasks, by number, without their values."""
    after = "" if cursor is None else str(parts_of(cursor, str)[0])
    found = kept_outcomes(plan.client, plan.path, after)
    return page_of(found, limit, _summary, lambda each: cursor_of(each.number))


def _summary(found: OutcomeSummary) -> OutcomeSummaryOut:
    return OutcomeSummaryOut(**found._asdict() | {"number": int(found.number)})


@router.get(
    "/plans/{plan}/results/{task}",
    dependencies=[needs("read")],
    response_class=Response,
    responses=_ANY_JSON | _PROBLEMS,
)
def show_result(task: TaskOf) -> Response:
    """The value of a finished task, as JSON. A task that has failed gives a problem (409)."""
    client = task.client
    node = client.transport.ask(ReadData(f"{task.plan.path}/results/{task.number}"))
    if node is None:
        raise task.problem(
            404,
            "no-result",
            f"{task.path} has no kept result: it has not finished, or only others took its result",
            "Look at the task; add tasks with keep=true if their results are to be kept.",
        )
    kind, body = client.codec.open(VALUE + FAILURE, node.data)
    if kind == FAILURE:
        failure = failure_out(Failure.from_bytes(body))
        raise task.problem(
            409,
            "task-failed",
            f"{failure.kind}: {failure.message}",
            "Look at the traceback of the task; retry it if its plan holds failures.",
        )
    return _as_json(task, _plain(client, task, split_name(body)[1]))


class ArgumentsOut(BaseModel):
    """The arguments of a task. In place of results of other tasks stands {"$result": POSITION}."""

    args: list[Any]
    kwargs: dict[str, Any]


@router.get(
    "/plans/{plan}/tasks/{task}/arguments",
    dependencies=[needs("read")],
    response_class=Response,
    responses={200: {"model": ArgumentsOut}, **_PROBLEMS},
)
def show_arguments(task: TaskOf) -> Response:
    """The arguments of an unfinished task, as JSON."""
    client = task.client
    node = client.transport.ask(ReadData(task.path))
    if node is None:
        raise task.problem(
            404,
            "task-not-found",
            f"{task.path} is not there: it has finished, or was never added",
            "List the tasks of the plan.",
        )
    record = client.codec.open_definition(node.data)
    try:
        args, kwargs, places = load_json(_plain(client, task, record.arguments))
        for position, side, *path, last in places:
            holder = (args, kwargs)[side]
            for key in path:
                holder = holder[key]
            holder[last] = {"$result": position}
    except (TypeError, ValueError, LookupError):
        raise PayloadUndecodable(f"the arguments of {task.path} are damaged") from None
    # In ASCII: a text of a task may hold half of a character.
    shown = {"args": args, "kwargs": kwargs}
    return Response(json.dumps(shown), media_type="application/json")


def _plain(client: Client, task: TaskPlace, body: bytes) -> bytes | memoryview:
    """The bytes of a value, also if it lies in the store. Raises Problem for a pickle."""
    plain: bytes | memoryview = body
    if is_stored(body):
        plain = memoryview(
            decode(client.values.blob(task.plan.path, Reference.from_bytes(body)))[0]
        )
    if plain[:1] != JSON:
        raise task.problem(
            406,
            "not-json",
            f"the value of {task.path} is a pickle, and the service never unpickles",
            "Read it with a Python client, or create the plan here: then its values are JSON.",
        )
    return plain


def _as_json(task: TaskPlace, plain: bytes | memoryview) -> Response:
    """A value as its worker wrote it. A short one is read first, so that it is JSON for sure."""
    if len(plain) <= PIECE:
        value = load_json(plain)
        return Response(json.dumps(value), media_type="application/json")

    def pieces() -> Iterator[bytes]:
        for start in range(1, len(plain), PIECE):
            yield bytes(plain[start : start + PIECE])

    told = {"Content-Length": str(len(plain) - 1)}
    return StreamingResponse(pieces(), media_type="application/json", headers=told)
