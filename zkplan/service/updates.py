"""The route of updates: change several tasks of a plan together, or none of them."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from ..author.task_specs import TaskSpec
from ..errors import UpdateRefused
from .answers import MEDIA_TYPE, Problem, ProblemBody, documented
from .lease_updates import OPERATIONS_MAX, Add, Complete, Decide, Operation, RefusalOut
from .parameters import (
    NUMBER_MAX,
    CallerOf,
    PlanOf,
    Priority,
    Strict,
    check_held,
    given_in,
    idempotency_key_header,
    may,
)
from .task_adds import AddedTask, AnyTaskIn, specs_of
from .tokens import Caller, Role
from .work import ClaimIdIn

Number = Annotated[int, Field(ge=0, le=NUMBER_MAX, description="The number of a task.")]
Expect = Annotated[
    str,
    Field(
        pattern=r"^[a-z]{1,20}(\.[0-9]{1,10}){0,3}$",
        description="A `version` of the task, or the beginning of one: `dead`, `running.3`.",
    ),
]


class AddIn(Strict):
    """Add a task. Later operations may refer to it by its `id`."""

    do: Literal["add"]
    new: AnyTaskIn


class UpdateCompleteIn(Strict):
    """Commit a result under a claim, as `/v1/leases/complete` does."""

    do: Literal["complete"]
    id: ClaimIdIn
    value: Any = None


class _OfTask(Strict):
    task: Number
    expect: Expect | None = None


class UpdateSkipIn(_OfTask):
    """Skip the task: it does not run, and the tasks that take its result get `value`."""

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
    """Change nothing, but demand that the task has the version `expect`."""

    do: Literal["check"]
    task: Number
    expect: Expect


OperationIn = Annotated[
    AddIn | UpdateCompleteIn | UpdateSkipIn | CancelIn | RetryIn | MoveIn | CheckIn,
    Field(discriminator="do"),
]


class UpdateIn(Strict):
    """Operations on tasks of one plan: all of them, or none."""

    operations: Annotated[list[OperationIn], Field(min_length=1, max_length=OPERATIONS_MAX)]


class UpdatedOut(BaseModel):
    """The tasks that were added, in order. `repeated`: an earlier request with the same key has
    applied the update."""

    tasks: list[AddedTask]
    repeated: bool


class UpdateProblem(ProblemBody):
    """Nothing was written. `refusals` has every operation that does not fit."""

    refusals: list[RefusalOut] = Field(default_factory=list)


_REFUSED: dict[int | str, dict[str, Any]] = {
    409: {
        "model": UpdateProblem,
        "description": "Nothing was written: some operations do not fit.",
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/UpdateProblem"}}},
    }
}
router = APIRouter(tags=["tasks"], responses=documented(404, 422) | _REFUSED)
_ROLES: dict[str, Role] = {"add": "author", "complete": "work", "check": "read"}


@router.post("/plans/{plan}/update")
def update_tasks(
    request: Request,
    plan: PlanOf,
    caller: CallerOf,
    wanted: UpdateIn,
    idempotency_key: Annotated[
        str | None,
        idempotency_key_header("The update is applied once: a repeat gets the first answer."),
    ] = None,
) -> UpdatedOut:
    """Add, complete, skip, cancel, retry, move and check tasks in one transaction, or do nothing.

    Each operation needs its role: `add` author, `complete` work, `check` read, the others operate.
    409: `refusals` names every operation that does not fit, and nothing was written.
    """
    _refuse_lacking(caller, wanted.operations)
    check_held(
        caller, [each.id for each in wanted.operations if isinstance(each, UpdateCompleteIn)]
    )
    adds = [(i, each) for i, each in enumerate(wanted.operations) if isinstance(each, AddIn)]
    places = [f"operations[{index}].new" for index, _ in adds]
    specs = iter(specs_of(plan, [each.new for _, each in adds], None, places))
    operations = [_operation(each, specs) for each in wanted.operations]
    body = blake2b(wanted.model_dump_json().encode(), digest_size=16).hexdigest()
    try:
        leases = request.app.state.lease_calls.leases()
        done = leases.update(plan, operations, idempotency_key, body)
    except UpdateRefused as error:
        raise Problem(
            409,
            "update-refused",
            str(error),
            "Do what the refusals say, and send the update again.",
            plan=int(plan.number),
            refusals=[vars(each) for each in error.refusals],
        ) from None
    names = [each.spec.called for each in operations if isinstance(each, Add)]
    added = [
        AddedTask(number=number, name=name, id=sent.new.id, existed=existed)
        for number, existed, name, (_, sent) in zip(
            done.tasks, done.existed, names, adds, strict=True
        )
    ]
    return UpdatedOut(tasks=added, repeated=done.repeated)


def _refuse_lacking(caller: Caller | None, operations: list[OperationIn]) -> None:
    """Raises Problem for operations whose roles the caller lacks."""
    lacking: dict[Role, list[str]] = {}
    for index, each in enumerate(operations):
        role = _ROLES.get(each.do, "operate")
        if not may(caller, role):
            lacking.setdefault(role, []).append(f"{index} ({each.do})")
    if lacking:
        needed = "; ".join(
            f"the role {role!r} for operations {', '.join(places[:20])}"
            for role, places in lacking.items()
        )
        roles = " ".join(f"--role {role}" for role in lacking)
        todo = f"Use a token that also has these roles: `zkplan serve new-token {roles}`."
        raise Problem(403, "role-missing", f"the token lacks {needed}", todo)


def _operation(sent: OperationIn, specs: Iterator[TaskSpec]) -> Operation:
    """Convert an operation. `specs` yields the specs of the tasks to add, in order."""
    if isinstance(sent, AddIn):
        return Add(next(specs))
    given = given_in(sent)
    verb = given.pop("do")
    return Complete(**given) if verb == "complete" else Decide(verb=verb, **given)
