"""Plans in the contract: what is sent to make and to change one, and what is shown of one."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from ..protocol.control import PlanStatus
from ..protocol.limits import SIZE_MAX
from ..protocol.records import WEIGHT_MAX, PlanRecord
from .fields import Label, MomentIn, Priority, Strict, TaskOptionsIn

PlanState = Literal["defining", "running", "paused", "cancelled", "done", "failed"]
Weight = Annotated[int, Field(ge=1, le=WEIGHT_MAX)]


class PlanIn(TaskOptionsIn):
    """A new plan. Options of tasks are the defaults for its tasks."""

    name: Label | None = None
    key: Label | None = None
    if_exists: Literal["return", "raise", "replace_finished"] = "return"
    on_failure: Literal["hold", "cascade"] = "hold"
    retention: Annotated[float, Field(ge=0, le=1e9)] | None = None
    weight: Weight = 1
    max_running: Annotated[int, Field(ge=1, le=SIZE_MAX)] | None = None
    not_before: MomentIn | None = None
    deadline: MomentIn | None = None
    history: bool = True


class PlanShareIn(Strict):
    """What may be changed of a plan; what is left out stays."""

    weight: Weight | None = None
    priority: Priority | None = None


class PlanShareOut(BaseModel):
    """The share of a plan in the workers."""

    weight: int
    priority: int


class PlanOut(BaseModel):
    """A plan in numbers. `tasks` counts the unfinished ones, `added` all that ever were. `ended` is
    when it was done, or ended with failed tasks (`failed`), and null before. `retried` counts how
    often it has run again after its end.

    `readable` is false if its record is of another format, or sealed with a key that the service
    has not got.
    """

    number: int
    path: str
    name: str
    state: PlanState
    tasks: int
    runnable: int
    dead: int
    outcomes: int
    added: int
    finished: int
    skipped: int
    created: float
    ended: float | None
    key: str
    not_before: float | None
    deadline: float | None
    reason: str
    retried: int
    weight: int
    priority: int
    on_failure: Literal["hold", "cascade"] = "hold"
    serializer: Literal["pickle", "json"] = "pickle"
    retention: float | None = None
    readable: bool = True


class ProgressOut(BaseModel):
    """The tasks of a plan, counted by state."""

    added: int
    finished: int
    running: int
    runnable: int
    delayed: int
    waiting: int
    dead: int
    gated: int
    skipped: int


class PlanDetails(PlanOut):
    """A plan, with its tasks counted by state."""

    progress: ProgressOut


class Changed(BaseModel):
    """What a change did: `changed` is false where there was nothing to do."""

    changed: bool
    count: int = 0


def plan_out(found: PlanStatus, record: PlanRecord | None) -> PlanOut:
    """The plan as it is shown."""
    facts = {name: getattr(found, name) for name in PlanStatus._fields}
    if record is not None:
        facts |= {"on_failure": record.on_failure, "serializer": record.serializer}
        if record.retention is not None and record.retention != float("inf"):
            facts["retention"] = record.retention
    number = int(found.path.rpartition("-")[2])
    return PlanOut(**facts, number=number, finished=found.finished, readable=record is not None)
