"""Routes of results: kept outcomes, values and arguments. No value is unpickled."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.responses import Response, StreamingResponse

from ..errors import PayloadUndecodable
from ..protocol.records import Failure
from ..protocol.requests import ReadData
from ..values.blobs import Reference, decode, is_stored
from ..values.codec import FAILURE, VALUE
from ..values.function_codec import split_name
from ..values.json_values import JSON, load_json
from ..views.outcomes import kept_outcomes
from .answers import (
    Cursor,
    Limit,
    NumberOut,
    Out,
    Page,
    Responses,
    cursor_of,
    documented,
    page_of,
    parts_of,
)
from .parameters import PlanOf, TaskOf, TaskPlace, needs

router = APIRouter(tags=["results"], responses=documented(404, 409, 422))
#: The size in bytes of the pieces in which a long value is sent.
PIECE = 256 * 1024
_ANY_JSON: Responses = {
    200: {"content": {"application/json": {"schema": {}}}, "description": "The value."}
}
_PROBLEMS = documented(406, 410)


class OutcomeSummaryOut(Out):
    """The kept outcome of a finished task. `size` is in bytes. `when`: it was kept at this time."""

    number: NumberOut
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
    shown = OutcomeSummaryOut.model_validate
    return page_of(found, limit, shown, lambda each: cursor_of(each.number))


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
            f"{task.path} has no kept result: it has not finished, or only tasks took its result",
            "Look at the task; add tasks with keep=true if their results are to be kept.",
        )
    kind, body = client.codec.open(VALUE + FAILURE, node.data)
    if kind == FAILURE:
        failure = Failure.from_bytes(body)
        raise task.problem(
            409,
            "task-failed",
            f"{failure.kind}: {failure.text}",
            "Look at the traceback of the task; retry it if its plan holds failures.",
        )
    plain = _plain(task, split_name(body)[1])
    if len(plain) <= PIECE:  # it is decoded, to be sure that it is JSON
        return Response(json.dumps(load_json(plain)), media_type="application/json")

    def pieces() -> Iterator[bytes]:
        """A long value, as its worker wrote it."""
        for start in range(1, len(plain), PIECE):
            yield bytes(plain[start : start + PIECE])

    length = {"Content-Length": str(len(plain) - 1)}
    return StreamingResponse(pieces(), media_type="application/json", headers=length)


class ArgumentsOut(BaseModel):
    """The arguments of a task. {"$result": POSITION} stands for the result of another task, and
    {"$constant": NUMBER} for a constant of the plan."""

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
        args, kwargs, places = load_json(_plain(task, record.arguments))
        for position, side, *path, last in places:
            holder = (args, kwargs)[side]
            for key in path:
                holder = holder[key]
            # Constants are counted from the end.
            holder[last] = {"$result": position} if position >= 0 else {"$constant": -1 - position}
    except (TypeError, ValueError, LookupError):
        raise PayloadUndecodable(f"the arguments of {task.path} are damaged") from None
    # It is ASCII, since a text of a task may hold half of a surrogate pair.
    return Response(json.dumps({"args": args, "kwargs": kwargs}), media_type="application/json")


def _plain(task: TaskPlace, body: bytes) -> bytes | memoryview:
    """The bytes of a value, also if it is in the store. Raises Problem for a pickle."""
    plain: bytes | memoryview = body
    if is_stored(body):
        blob = task.client.values.blob(task.plan.path, Reference.from_bytes(body))
        plain = memoryview(decode(blob)[0])
    if plain[:1] != JSON:
        raise task.problem(
            406,
            "not-json",
            f"the value of {task.path} is a pickle, and the service never unpickles",
            "Read it with a Python client, or create the plan here: then its values are JSON.",
        )
    return plain
