"""Routes of tasks and results: add, list, show, retry, skip, cancel and change tasks; read
outcomes and values."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel
from starlette.responses import Response, StreamingResponse

from ..author.functions import NamedFunction
from ..author.operator_actions import Decisions
from ..author.task_specs import TaskSpec
from ..client import Client
from ..errors import InvalidTask, PayloadUndecodable
from ..plan import Plan
from ..protocol.records import Failure
from ..protocol.requests import ReadData
from ..tasks import Task
from ..values.blobs import Reference, decode, is_stored
from ..values.codec import FAILURE, VALUE
from ..values.function_codec import split_name
from ..values.json_values import DEPTH_MAX, JSON, load_json
from ..views.find_tasks import STATES, Filter, FoundTask, find_tasks
from ..views.task_lists import OutcomeSummary, kept_outcomes
from .answers import (
    Cursor,
    Limit,
    NotModified,
    Page,
    Responses,
    Tagged,
    cursor_of,
    documented,
    page_of,
    parts_of,
)
from .parameters import (
    ClientOf,
    PlanOf,
    TaskOf,
    TaskOptionsIn,
    TaskPlace,
    existing,
    idempotency_key_header,
    needs,
    number_text,
)
from .task_models import (
    AddedTask,
    AddedTasks,
    FunctionTaskIn,
    KindTaskIn,
    SkipIn,
    TaskChanged,
    TaskDetails,
    TaskOut,
    TaskSetIn,
    TasksIn,
    failure_out,
    task_details,
)

#: What stands for the result of a task in arguments.
TASK = "$task"
_OPTIONS = (*TaskOptionsIn.model_fields, "name", "key", "not_before", "deadline", "run_if")
_REF = f'{{"{TASK}": REF}}, where REF is the number of a task, or the id of one before it'


def specs_of(
    plan: Plan,
    wanted: Sequence[FunctionTaskIn | KindTaskIn],
    repeat: str | None = None,
    places: Sequence[str] = (),
) -> list[TaskSpec]:
    """The tasks in the order of the request. With `repeat`, the key of a request that may be sent
    again, each has a key of its own. `places` say where each stands in the request. Raises
    InvalidTask."""
    by_id: dict[str, TaskSpec] = {}
    functions: dict[str, NamedFunction] = {}
    specs = []
    for index, each in enumerate(wanted):
        where = places[index] if places else f"tasks[{index}]"
        refs = _Refs(plan, by_id, where)
        options = {name: value for name in _OPTIONS if (value := getattr(each, name)) is not None}
        if repeat is not None:
            options.setdefault("key", f"{repeat}#{index}")
        spec = TaskSpec(
            _function(each, functions, where),
            refs.replaced(each.args, 0),
            refs.replaced(each.kwargs, 0),
            after=[refs.task(ref) for ref in each.after],
            **options,
        )
        if each.id is not None:
            if each.id in by_id:
                raise InvalidTask("", f"{where}: the id {each.id!r} is that of a task before it")
            by_id[each.id] = spec
        specs.append(spec)
    return specs


def _function(
    wanted: FunctionTaskIn | KindTaskIn, made: dict[str, NamedFunction], where: str
) -> NamedFunction:
    """One object for each name: tasks of one function are checked once."""
    is_kind = isinstance(wanted, KindTaskIn)
    name = wanted.kind if isinstance(wanted, KindTaskIn) else wanted.function
    known = f"{is_kind}{name}"
    if known not in made:
        try:
            made[known] = NamedFunction.of_kind(name) if is_kind else NamedFunction(name)
        except ValueError as error:
            raise InvalidTask("", f"{where}: {error}") from None
    return made[known]


class _Refs:
    """Finds the tasks that one task of a request refers to."""

    def __init__(self, plan: Plan, by_id: dict[str, TaskSpec], where: str) -> None:
        self._plan, self._by_id, self._where = plan, by_id, where

    def task(self, ref: Any) -> Any:
        """Raises InvalidTask."""
        if type(ref) is int and 0 <= ref < 10**10:
            return Task(self._plan, number_text(ref))
        if type(ref) is str and ref in self._by_id:
            return self._by_id[ref]
        known = ", ".join(list(self._by_id)[:20]) or "none"
        told = f"there is no task {ref!r:.100} before it; ids before it: {known}. Write {_REF}"
        raise InvalidTask("", f"{self._where}: {told}")

    def replaced(self, value: Any, depth: int) -> Any:
        """The value with tasks in place of references. Raises InvalidTask."""
        if depth > DEPTH_MAX:
            told = f"its arguments are nested too deeply (more than {DEPTH_MAX} levels)"
            raise InvalidTask("", f"{self._where}: {told}")
        if isinstance(value, list):
            return [self.replaced(each, depth + 1) for each in value]
        if isinstance(value, dict):
            if TASK in value:
                if len(value) > 1:
                    told = f"{TASK} stands alone in its object: {_REF}"
                    raise InvalidTask("", f"{self._where}: {told}")
                return self.task(value[TASK])
            return {key: self.replaced(each, depth + 1) for key, each in value.items()}
        return value


# ---- Routes of tasks: list, add, show, and what is decided about one: retry, skip, cancel, set.


router = APIRouter(tags=["tasks"], responses=documented(404, 409, 422))
TaskState = Literal[STATES]  # type: ignore[valid-type]
Pattern = Annotated[str | None, Query(max_length=200, description="A pattern, as load-*.")]


def task_out(found: FoundTask) -> TaskOut:
    """An unfinished task as it is shown in lists."""
    facts = found._asdict() | {"plan": int(found.plan), "number": int(found.number)}
    return TaskOut(**facts)


def _cursor(found: FoundTask) -> str:
    return cursor_of(found.plan, found.number)


def after_of(cursor: str | None) -> tuple[str, str]:
    """Behind which task of which plan a page begins."""
    if cursor is None:
        return "", ""
    plan, task = parts_of(cursor, str, str)
    return str(plan), str(task)


@router.get("/plans/{plan}/tasks", dependencies=[needs("read")])
def list_tasks(
    plan: PlanOf,
    limit: Limit = 100,
    cursor: Cursor = None,
    state: TaskState | None = None,
    queue: Annotated[str | None, Query(max_length=40)] = None,
    name: Pattern = None,
    error: Pattern = None,
    worker: Annotated[str | None, Query(max_length=200)] = None,
) -> Page[TaskOut]:
    """The unfinished tasks of a plan, the oldest first. Finished ones are under its results."""
    wanted = Filter(state, worker, name, error)
    found = find_tasks(plan.client, wanted, [plan.number], after_of(cursor))
    chosen = (each for each in found if queue in (None, each.queue))
    return page_of(chosen, limit, task_out, _cursor)


@router.get("/dead-letters", dependencies=[needs("read")], tags=["root"])
def list_dead_letters(
    client: ClientOf,
    limit: Limit = 100,
    cursor: Cursor = None,
    name: Pattern = None,
    error: Pattern = None,
) -> Page[TaskOut]:
    """The tasks of all plans that are out of attempts, by plan and number."""
    found = find_tasks(client, Filter("dead", None, name, error), None, after_of(cursor))
    return page_of(found, limit, task_out, _cursor)


@router.post("/plans/{plan}/tasks", status_code=201, dependencies=[needs("author")])
def add_tasks(
    plan: PlanOf,
    wanted: TasksIn,
    idempotency_key: Annotated[
        str | None,
        idempotency_key_header("Gives each task a key: a repeat of the request adds nothing."),
    ] = None,
) -> AddedTasks:
    """Add tasks, all checked before the first is written. The plan takes JSON alone.

    If only some could be written, the problem has `added`: that many, from the first on, are in the
    plan.
    """
    added = plan.add_tasks(specs_of(plan, wanted.tasks, idempotency_key))
    return AddedTasks(
        tasks=[
            AddedTask(number=int(each.number), name=each.name, id=sent.id, existed=not each.is_new)
            for each, sent in zip(added, wanted.tasks, strict=True)
        ]
    )


@router.get("/plans/{plan}/tasks/{task}", dependencies=[needs("read")], responses=NotModified)
def show_task(task: TaskOf, tagged: Tagged, why: bool = True) -> TaskDetails:
    """One task: state, attempts with their errors, neighbours, outcome, and why it does not run."""
    return tagged(task_details(task, why))


@router.post("/plans/{plan}/tasks/{task}/retry", dependencies=[needs("operate")])
def retry_task(task: TaskOf) -> TaskChanged:
    """Make a dead task runnable again, with all its attempts; a delayed one runs now."""
    return _changed(task, Decisions(existing(task).plan).retry(task.number))


@router.post("/plans/{plan}/tasks/{task}/skip", dependencies=[needs("operate")])
def skip_task(task: TaskOf, wanted: SkipIn | None = None) -> TaskChanged:
    """Let the task not run: those that take its result get the value, null by default."""
    value = wanted.value if wanted is not None else None
    return _changed(task, Decisions(existing(task).plan).skip(task.number, value))


@router.post("/plans/{plan}/tasks/{task}/cancel", dependencies=[needs("operate")])
def cancel_task(task: TaskOf) -> TaskChanged:
    """Let the task fail for good, whether it runs, waits, or has failed."""
    return _changed(task, Decisions(existing(task).plan).cancel(task.number))


@router.post("/plans/{plan}/tasks/{task}/set", dependencies=[needs("operate")])
def set_task(task: TaskOf, wanted: TaskSetIn) -> TaskChanged:
    """Change the priority of a task that no worker has claimed."""
    stood = Decisions(existing(task).plan).set_priority(task.number, wanted.priority)
    return _changed(task, stood)


def _changed(task: TaskPlace, stood: str) -> TaskChanged:
    return TaskChanged(plan=int(task.plan.number), number=int(task.number), changed=bool(stood))


# ---- Routes of outcomes and values: a value is read only where it is asked for, never unpickled.


results_router = APIRouter(tags=["results"], responses=documented(404, 409, 422))
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


@results_router.get("/plans/{plan}/results", dependencies=[needs("read")])
def list_results(
    plan: PlanOf, limit: Limit = 100, cursor: Cursor = None
) -> Page[OutcomeSummaryOut]:
    """The kept outcomes of finished tasks, by number, without their values."""
    after = "" if cursor is None else str(parts_of(cursor, str)[0])
    found = kept_outcomes(plan.client, plan.path, after)
    return page_of(found, limit, _summary, lambda each: cursor_of(each.number))


def _summary(found: OutcomeSummary) -> OutcomeSummaryOut:
    return OutcomeSummaryOut(**found._asdict() | {"number": int(found.number)})


@results_router.get(
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


@results_router.get(
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
