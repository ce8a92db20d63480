"""Routes of tasks: list, show, retry, skip, cancel and change them. No value is decoded."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from ..author.operator_actions import Decisions
from ..client import Client
from ..errors import InvalidTask, PayloadUndecodable
from ..protocol.features.update_changes import FINISHED, read_version
from ..protocol.records import Failure
from ..protocol.requests import Node
from ..values.blobs import value_size
from ..values.codec import FAILURE, VALUE
from ..values.function_codec import is_skipped, split_name
from ..views.find import STATES, Filter, find_tasks
from ..views.task_details import neighbours_of
from ..views.task_info import TaskRead, info_of, read_log, read_task
from ..views.unfinished import FoundTask
from ..views.why import why_task
from .answers import (
    NOT_MODIFIED,
    Cursor,
    Limit,
    NumberOut,
    Out,
    Page,
    Tagged,
    cursor_of,
    documented,
    page_of,
    parts_of,
)
from .parameters import (
    ClientOf,
    PlanOf,
    Strict,
    TaskOf,
    TaskPlace,
    WhyOut,
    existing,
    needs,
    no_task,
)


class TaskOut(Out):
    """An unfinished task, as it was when it was read. `since`: it came into this state then."""

    plan: NumberOut
    plan_name: str
    number: NumberOut
    name: str | None
    state: str
    since: float
    attempts: int
    worker: str
    queue: str
    due: float | None
    error: str


class FailureOut(BaseModel):
    """Why an attempt failed. `n` is its number; `when`: it ended at this time."""

    n: int
    when: float
    worker: str
    kind: str
    message: str
    traceback: str


class NeighbourOut(BaseModel):
    """A task at the other end of an edge."""

    number: NumberOut
    name: str | None
    state: str


class OutcomeOut(BaseModel):
    """The kept outcome of a finished task: `result`, `skipped`, `failure` or `undecodable`.

    `size` is in bytes. A failure has its traceback in `failure`.
    """

    kind: str
    size: int
    failure: FailureOut | None = None


class TaskDetails(BaseModel):
    """One task. For a finished task, facts that neither its kept outcome nor the history of its
    plan has are null. `doubt` says why there may never have been such a task; it is empty if there
    was one for certain.

    `attempts` is how often it may run, `attempts_used` how many of these are used up, `attempt` the
    number of the running one. `version` changes with every move of the task: an update can demand
    one. `waits_for` and `feeds` name 20 neighbours; the counts are of all.
    """

    plan: int
    number: int
    path: str
    version: str
    name: str | None
    function: str | None
    state: str
    attempts: int | None
    attempts_used: int | None
    attempt: int | None
    worker: str | None
    since: float | None
    due: float | None
    queue: str | None
    priority: int | None
    timeout: float | None
    retry_delay: float | None
    limits: list[str] | None
    run_if: str | None
    pure: bool | None
    not_before: float | None
    deadline: float | None
    failed: bool
    skipped: bool
    last_error: str
    doubt: str
    arrived: int | None
    waits_for_count: int
    feeds_count: int
    waits_for: list[NeighbourOut]
    feeds: list[NeighbourOut]
    failures: list[FailureOut]
    notes: int
    outcome: OutcomeOut | None
    why: WhyOut | None


class TaskChanged(BaseModel):
    """The effect of an action: `changed` is false if there was nothing to do."""

    plan: int
    number: int
    changed: bool


class SkipIn(Strict):
    """The value for the tasks that take the result of this task."""

    value: Any = None


class TaskSetIn(Strict):
    """The priority to set for a task that does not run yet."""

    priority: Annotated[int, Field(ge=-4999, le=5000)]


router = APIRouter(tags=["tasks"], responses=documented(404, 409, 422))
TaskState = Literal[STATES]  # type: ignore[valid-type]
Pattern = Annotated[str | None, Query(max_length=200, description="A pattern: load-*.")]


def _cursor(found: FoundTask) -> str:
    return cursor_of(found.plan, found.number)


def _after(cursor: str | None) -> tuple[str, str]:
    """The plan and the task after which a page begins."""
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
    """The unfinished tasks of a plan, the oldest first. For finished ones see its results."""
    wanted = Filter(state, worker, name, error)
    found = find_tasks(plan.client, wanted, [plan.number], _after(cursor))
    chosen = (each for each in found if queue in (None, each.queue))
    return page_of(chosen, limit, TaskOut.model_validate, _cursor)


@router.get("/dead-letters", dependencies=[needs("read")], tags=["root"])
def list_dead_letters(
    client: ClientOf,
    limit: Limit = 100,
    cursor: Cursor = None,
    name: Pattern = None,
    error: Pattern = None,
) -> Page[TaskOut]:
    """The dead tasks of all plans, by plan and number."""
    found = find_tasks(client, Filter("dead", None, name, error), None, _after(cursor))
    return page_of(found, limit, TaskOut.model_validate, _cursor)


@router.get("/plans/{plan}/tasks/{task}", dependencies=[needs("read")], responses=NOT_MODIFIED)
def show_task(task: TaskOf, tagged: Tagged, why: bool = True) -> TaskDetails:
    """One task: state, attempts with their errors, neighbours, outcome, and why it does not run."""
    client = task.client
    try:
        read = read_task(client, task.plan.path, task.number)
        while read.summary is not None:
            around = neighbours_of(client, task.path, read, people=False)
            if around:
                return tagged(_details(task, read, around, why))
            read = read_task(client, task.plan.path, task.number)  # it has finished meanwhile
        return tagged(_details(task, read, {}, why=False))
    except InvalidTask as error:
        raise no_task(task, error) from None


@router.post("/plans/{plan}/tasks/{task}/retry", dependencies=[needs("operate")])
def retry_task(task: TaskOf) -> TaskChanged:
    """Make a dead task runnable again, with all its attempts; a delayed one runs now."""
    return _changed(task, Decisions(existing(task).plan).retry(task.number))


@router.post("/plans/{plan}/tasks/{task}/skip", dependencies=[needs("operate")])
def skip_task(task: TaskOf, wanted: SkipIn | None = None) -> TaskChanged:
    """Skip the task: it does not run, and tasks that take its result get `value` (or null)."""
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


_SHOWN = ("name", "function", "state", "attempts", "attempts_used", "attempt", "worker", "since")
_OPTIONS = ("queue", "priority", "timeout", "retry_delay", "run_if", "pure", "not_before")
_MORE = ("deadline", "due", "failed", "skipped", "last_error", "arrived", "doubt")


def _details(task: TaskPlace, read: TaskRead, around: dict[str, Any], why: bool) -> TaskDetails:
    client, plan = task.client, task.plan
    info = info_of(client.codec, task.number, read)
    facts = {name: getattr(info, name) for name in (*_SHOWN, *_OPTIONS, *_MORE)}
    version = FINISHED
    if read.summary is not None:
        version = client.transport.run(read_version(client.paths, plan.number, task.number))
    return TaskDetails(
        **facts,
        plan=int(plan.number),
        number=int(task.number),
        path=task.path,
        version=version,
        limits=None if info.limits is None else list(info.limits),
        waits_for_count=around.get("waits_for_count", 0),
        feeds_count=around.get("feeds_count", 0),
        waits_for=[NeighbourOut(**each) for each in around.get("waits_for", ())],
        feeds=[NeighbourOut(**each) for each in around.get("feeds", ())],
        failures=[_failure(each) for each in read_log(client.codec, read.logs)[0]],
        notes=len(info._notes),
        outcome=None if read.outcome is None else _outcome(client, read.outcome),
        why=WhyOut.model_validate(why_task(client, plan.path, task.number)) if why else None,
    )


def _failure(failure: Failure) -> FailureOut:
    """A failure without its pickled exception."""
    facts = {name: getattr(failure, name) for name in ("n", "when", "worker", "kind", "traceback")}
    return FailureOut(message=failure.text, **facts)


def _outcome(client: Client, node: Node) -> OutcomeOut:
    try:
        kind, body = client.codec.open(VALUE + FAILURE, node.data)
        if kind == FAILURE:
            failure = _failure(Failure.from_bytes(body))
            return OutcomeOut(kind="failure", size=len(body), failure=failure)
    except PayloadUndecodable:
        return OutcomeOut(kind="undecodable", size=len(node.data))
    kept = "skipped" if is_skipped(body) else "result"
    return OutcomeOut(kind=kept, size=value_size(split_name(body)[1]))
