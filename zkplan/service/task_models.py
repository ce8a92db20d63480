"""Tasks in the contract: what is sent to add them, and what is shown of one."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field

from .asked import NUMBER_MAX
from .fields import Label, MomentIn, RunIf, Strict, TaskOptionsIn
from .why_models import WhyOut

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
