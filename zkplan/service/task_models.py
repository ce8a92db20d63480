"""Tasks in the API: the models that requests send and that answers show, and how a stored task
becomes one."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field

from ..client import Client
from ..errors import InvalidTask, PayloadUndecodable
from ..protocol.features.update_changes import FINISHED, read_version
from ..protocol.records import Failure
from ..protocol.requests import Node
from ..values.blobs import value_size
from ..values.codec import FAILURE, VALUE
from ..values.function_codec import is_skipped, split_name
from ..views.task_details import neighbours_of
from ..views.task_info import TaskInfo, TaskRead, failures_in, info_of, read_task
from ..views.why import why_task
from .parameters import (
    NUMBER_MAX,
    Label,
    MomentIn,
    RunIf,
    Strict,
    TaskOptionsIn,
    TaskPlace,
    WhyOut,
    no_task,
    why_out,
)

#: How many tasks one request may add.
TASKS_MAX = 5000
LocalId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,80}$")]
#: A task of the plan by its number, or one of the same request, before it in the list, by its id.
TaskRef = Annotated[int, Field(ge=0, le=NUMBER_MAX)] | LocalId


class _TaskIn(TaskOptionsIn):
    id: Annotated[LocalId | None, Field(description="How later tasks of this request name it.")] = (
        None
    )
    args: Annotated[
        list[Any],
        Field(description='Anywhere in it, {"$task": REF} stands for the result of that task.'),
    ] = Field(default_factory=list)
    kwargs: dict[str, Any] = Field(default_factory=dict)
    name: Label | None = None
    key: Annotated[
        Label | None, Field(description="The plan has one task of a key: a repeat adds nothing.")
    ] = None
    after: Annotated[list[TaskRef], Field(max_length=1000)] = Field(default_factory=list)
    not_before: MomentIn | None = None
    deadline: MomentIn | None = None
    run_if: RunIf | None = None


class FunctionTaskIn(_TaskIn):
    """A task that runs MODULE:FUNCTION, which a worker imports."""

    function: Annotated[
        str,
        Field(
            pattern=r"^[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z][A-Za-z0-9_]*)*"
            r":[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z][A-Za-z0-9_]*)*$",
            max_length=500,
        ),
    ]


class KindTaskIn(_TaskIn):
    """A task of a kind: whoever does this kind of work takes it, in any language."""

    kind: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,39}$")]


class TasksIn(Strict):
    """Tasks to add, in order: one may only refer to those before it, and to those of the plan."""

    tasks: Annotated[list[FunctionTaskIn | KindTaskIn], Field(max_length=TASKS_MAX)]


class AddedTask(BaseModel):
    """A task that is in the plan now. `existed`: its key was there already."""

    number: int
    name: str
    id: str | None
    existed: bool


class AddedTasks(BaseModel):
    """The tasks that were added, in the order of the request."""

    tasks: list[AddedTask]


class TaskOut(BaseModel):
    """An unfinished task, as it was when it was read. `since`: when it came into that state."""

    plan: int
    plan_name: str
    number: int
    name: str | None
    state: str
    since: float
    attempts: int
    worker: str
    queue: str
    due: float | None
    error: str


class FailureOut(BaseModel):
    """Why an attempt failed. `n` is its number, `when` the time at which it ended."""

    n: int
    when: float
    worker: str
    kind: str
    message: str
    traceback: str


class NeighbourOut(BaseModel):
    """A task at the other end of an edge."""

    number: int
    name: str | None
    state: str


class OutcomeOut(BaseModel):
    """What a finished task has left: `result`, `skipped`, `failure` or `undecodable`.

    `size` is in bytes. A failure has its traceback in `failure`.
    """

    kind: str
    size: int
    failure: FailureOut | None = None


class TaskDetails(BaseModel):
    """One task. Of a finished one, what its kept outcome and the history of its plan do not say is
    null. `doubt` says why it may never have been a task, and is empty where that is certain.

    `attempts` is how often it may run, `attempts_used` how many of these are used up, `attempt` the
    number of the running one. `version` changes with every move of the task, for updates that
    depend on it. `waits_for` and `feeds` name 20 neighbours; the counts are of all.
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
    """What an action did: `changed` is false where there was nothing to do."""

    plan: int
    number: int
    changed: bool


class SkipIn(Strict):
    """The value that those get who take the result of the task."""

    value: Any = None


class TaskSetIn(Strict):
    """What may be changed of a task that does not run yet."""

    priority: Annotated[int, Field(ge=-4999, le=5000)]


# ---- What is shown of one task, read as `zkplan task show` reads it. No value is decoded.


_SHOWN = ("name", "function", "state", "attempts", "attempts_used", "attempt", "worker", "since")
_OPTIONS = ("queue", "priority", "timeout", "retry_delay", "run_if", "pure", "not_before")
_MORE = ("deadline", "due", "failed", "skipped", "last_error", "arrived", "doubt")


def task_details(task: TaskPlace, why: bool) -> TaskDetails:
    """Raises Problem for a task that was never added."""
    client: Client = task.client
    try:
        read = read_task(client, task.plan.path, task.number)
        while read.summary is not None:
            around = neighbours_of(client, task.path, read, people=False)
            if around:
                return _shown(task, read, around, why)
            read = read_task(client, task.plan.path, task.number)  # it has finished meanwhile
        return _shown(task, read, {}, why=False)
    except InvalidTask as error:
        raise no_task(task, error) from None


def _shown(task: TaskPlace, read: TaskRead, around: dict[str, Any], why: bool) -> TaskDetails:
    client: Client = task.client
    info: TaskInfo = info_of(client.codec, task.number, read)
    facts = {name: getattr(info, name) for name in (*_SHOWN, *_OPTIONS, *_MORE)}
    failures = failures_in(client.codec, read.logs)
    version = FINISHED
    if read.summary is not None:
        step = read_version(client.paths, task.plan.number, task.number)
        version = client.transport.run(step)
    cause = why_task(client, task.plan.path, task.number) if why else None
    return TaskDetails(
        **facts,
        plan=int(task.plan.number),
        number=int(task.number),
        path=task.path,
        version=version,
        limits=None if info.limits is None else list(info.limits),
        waits_for_count=around.get("waits_for_count", 0),
        feeds_count=around.get("feeds_count", 0),
        waits_for=[_neighbour(each) for each in around.get("waits_for", ())],
        feeds=[_neighbour(each) for each in around.get("feeds", ())],
        failures=[failure_out(each) for each in failures],
        notes=len(info._notes),
        outcome=None if read.outcome is None else _outcome(client, read.outcome),
        why=None if cause is None else why_out(cause),
    )


def _neighbour(facts: dict[str, Any]) -> NeighbourOut:
    return NeighbourOut(number=int(facts["number"]), name=facts["name"], state=facts["state"])


def failure_out(failure: Failure) -> FailureOut:
    """A failure as it is shown; its exception stays as it is."""
    shown = ("n", "when", "worker", "kind", "traceback")
    facts = {name: getattr(failure, name) for name in shown}
    return FailureOut(message=failure.text, **facts)


def _outcome(client: Client, node: Node) -> OutcomeOut:
    try:
        kind, body = client.codec.open(VALUE + FAILURE, node.data)
        if kind == FAILURE:
            failure = failure_out(Failure.from_bytes(body))
            return OutcomeOut(kind="failure", size=len(body), failure=failure)
    except PayloadUndecodable:
        return OutcomeOut(kind="undecodable", size=len(node.data))
    kept = "skipped" if is_skipped(body) else "result"
    return OutcomeOut(kind=kept, size=value_size(split_name(body)[1]))
