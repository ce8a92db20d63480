"""What the routes share: who asks, the client, the plan of the path, and fields of the contract."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, TypeAlias

from fastapi import Depends, Header, Path, Request, Security
from fastapi.security import HTTPBearer
from starlette.concurrency import run_in_threadpool

from ..client import Client
from ..errors import InvalidTask, PayloadUndecodable
from ..inspection.task_info import require_task
from ..leases import is_held_by
from ..plan import Plan
from ..protocol.records import PlanRecord
from .problems import Problem
from .tokens import Caller, Role

_BEARER = HTTPBearer(auto_error=False, description="A token; `zkplan serve new-token` makes it.")
NUMBER_MAX = 2**31 - 1
PlanNumber = Annotated[int, Path(ge=0, le=NUMBER_MAX, description="The number of the plan.")]
TaskNumber = Annotated[int, Path(ge=0, le=NUMBER_MAX, description="The number of the task.")]


def idempotency_key_header(description: str, max_length: int = 100) -> Any:
    """The header `Idempotency-Key` of the contract: visible ASCII characters."""
    return Header(min_length=1, max_length=max_length, pattern=r"^[!-~]+$", description=description)


def needs(role: Role) -> Any:
    """A dependency of routes that only a caller with that role may use. It knows the query, too."""

    async def check(request: Request, _: Annotated[Any, Security(_BEARER)]) -> None:
        caller: Caller | None = request.state.caller
        if not may(caller, role):
            raise Problem(
                403,
                "role-missing",
                f"this needs the role {role!r}, and the token has not got it",
                f"Ask with a token of that role: `zkplan serve new-token --role {role}`.",
            )
        request.app.state.contract.check_query(request)

    return Depends(check)


def may(caller: Caller | None, role: Role) -> bool:
    """Whether who asks has the role."""
    return caller is not None and caller.may(role)


async def known(request: Request, _: Annotated[Any, Security(_BEARER)]) -> Caller | None:
    """Who asks, for routes that look at roles themselves. It knows the query, too."""
    request.app.state.contract.check_query(request)
    caller: Caller | None = request.state.caller
    return caller


CallerOf: TypeAlias = Annotated[Caller | None, Depends(known)]


def check_held(caller: Caller | None, ids: Iterable[str]) -> None:
    """Raises Problem for claims that were given to the token of another name: a program settles
    its own claims alone. In an open service everybody is the same."""
    if caller is None or not caller.holder:
        return
    foreign = [text for text in ids if not is_held_by(text, caller.holder)]
    if foreign:
        raise Problem(
            403,
            "foreign-claim",
            f"{len(foreign)} of these claims were given to the token of another name, the first "
            f"is {foreign[0][:200]}: nothing was done",
            "Send the claims that this token has claimed, or one of the same name.",
        )


async def client_of(request: Request) -> Client:
    """The client of the service."""
    link = request.app.state.link
    client: Client = await run_in_threadpool(link.renewed) if link.is_lost else link.client
    return client


ClientOf: TypeAlias = Annotated[Client, Depends(client_of)]


def plan_of(client: ClientOf, plan: PlanNumber) -> Plan:
    """The plan of the path. Raises PlanNotFound."""
    return client.plan(plan)


PlanOf: TypeAlias = Annotated[Plan, Depends(plan_of)]


def record_of(plan: Plan) -> PlanRecord | None:
    """Its record; None if it is damaged, of another format, or sealed with another key."""
    try:
        return plan.record
    except PayloadUndecodable:
        return None


def number_text(number: int) -> str:
    """A number as znodes have it.

    >>> number_text(12)
    '0000000012'
    """
    return f"{number:010d}"


class TaskPlace:
    """A task of the path, of which it is only known that its plan exists."""

    def __init__(self, plan: PlanOf, task: TaskNumber) -> None:
        self.plan, self.number = plan, number_text(task)

    @property
    def path(self) -> str:
        return f"{self.plan.path}/task-{self.number}"

    @property
    def client(self) -> Client:
        client: Client = self.plan.client
        return client

    def problem(self, status: int, kind: str, detail: str, todo: str) -> Problem:
        """A problem with this task."""
        plan, task = int(self.plan.number), int(self.number)
        return Problem(status, kind, detail, todo, plan=plan, task=task)


TaskOf: TypeAlias = Annotated[TaskPlace, Depends(TaskPlace)]


def existing(task: TaskPlace) -> TaskPlace:
    """The same for what is changed. Raises Problem for a number that never was a task."""
    try:
        require_task(task.client, task.plan.path, task.number)
    except InvalidTask as error:
        raise no_task(task, error) from None
    return task


def no_task(task: TaskPlace, error: InvalidTask) -> Problem:
    where = f"/v1/plans/{int(task.plan.number)}/tasks"
    return task.problem(404, "task-not-found", str(error), f"List the tasks: GET {where}.")
