"""What an update of several tasks sends and gets: see `updates`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from ..leases.updating import OPERATIONS_MAX
from .asked import NUMBER_MAX
from .fields import Priority, Strict
from .problems import ProblemBody
from .task_models import AddedTask, FunctionTaskIn, KindTaskIn
from .work_models import ClaimIdIn

Number = Annotated[int, Field(ge=0, le=NUMBER_MAX, description="The number of a task.")]
Expect = Annotated[
    str,
    Field(
        pattern=r"^[a-z]{1,20}(\.[0-9]{1,10}){0,3}$",
        description="A `version` of the task, or the beginning of one: `dead`, `running.3`.",
    ),
]


class AddIn(Strict):
    """Add a task. Later ones of the update may refer to it by its `id`."""

    do: Literal["add"]
    new: FunctionTaskIn | KindTaskIn


class CompleteIn(Strict):
    """Commit a result under a claim, as `/v1/leases/complete` does."""

    do: Literal["complete"]
    id: ClaimIdIn
    value: Any = None


class _OfTask(Strict):
    task: Number
    expect: Expect | None = None


class SkipIn(_OfTask):
    """Let the task not run: those that take its result get the value."""

    do: Literal["skip"]
    value: Any = None


class CancelIn(_OfTask):
    """Let the task fail for good."""

    do: Literal["cancel"]


class RetryIn(_OfTask):
    """Make a dead task runnable again; a delayed one runs now."""

    do: Literal["retry"]


class MoveIn(_OfTask):
    """Give a task that has not started another priority."""

    do: Literal["move"]
    priority: Priority


class CheckIn(Strict):
    """Change nothing, but demand that the task is as it is expected."""

    do: Literal["check"]
    task: Number
    expect: Expect


OperationIn = Annotated[
    AddIn | CompleteIn | SkipIn | CancelIn | RetryIn | MoveIn | CheckIn, Field(discriminator="do")
]


class UpdateIn(Strict):
    """Operations on tasks of one plan: all of them, or none."""

    operations: Annotated[list[OperationIn], Field(min_length=1, max_length=OPERATIONS_MAX)]


class UpdatedOut(BaseModel):
    """The tasks that were added, in order. `repeated`: an earlier request of the same key did
    it."""

    tasks: list[AddedTask]
    repeated: bool


class RefusalOut(BaseModel):
    """Why an operation does not fit. `index` is its place in `operations`; `expected` and `found`
    are versions of the task or states of it, `why` says it for people, `todo` what to do."""

    index: int
    task: int | None
    expected: str
    found: str
    why: str
    todo: str


class UpdateProblem(ProblemBody):
    """Nothing was written. `refusals` has every operation that does not fit."""

    refusals: list[RefusalOut] = Field(default_factory=list)
