"""Parameters of routes: the caller, the client, the plan and task in the path, common fields."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Annotated, Any, TypeAlias

from fastapi import Depends, Header, Path, Request, Security
from fastapi.security import HTTPBearer
from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from ..client import Client
from ..errors import ClientClosed, InvalidTask, PayloadUndecodable, ServerRolledBack
from ..plan import Plan
from ..protocol.features.keys import LEASE_MS
from ..protocol.layout import PRIORITY_MAX, PRIORITY_MIN
from ..protocol.records import PlanRecord
from ..protocol.task_options import DELAY_MAX_S, LIMITS_MAX, NAME_CHARS_MAX
from ..views.task_info import require_task
from .answers import NumberOrNull, Out, Problem
from .lease_records import is_held_by
from .tokens import Caller, Role

_BEARER = HTTPBearer(auto_error=False, description="A token; `zkplan serve new-token` makes it.")
NUMBER_MAX = 2**31 - 1
PlanNumber = Annotated[int, Path(ge=0, le=NUMBER_MAX, description="The number of the plan.")]
TaskNumber = Annotated[int, Path(ge=0, le=NUMBER_MAX, description="The number of the task.")]


def idempotency_key_header(description: str, max_length: int = 100) -> Any:
    """The header `Idempotency-Key`: visible ASCII characters."""
    return Header(min_length=1, max_length=max_length, pattern=r"^[!-~]+$", description=description)


def needs(role: Role) -> Any:
    """A dependency of routes that need this role. It also checks the names in the query."""

    async def check(request: Request, _: Annotated[Any, Security(_BEARER)]) -> None:
        caller: Caller | None = request.state.caller
        if not may(caller, role):
            raise Problem(
                403,
                "role-missing",
                f"this needs the role {role!r}, which the token does not have",
                f"Use a token with that role: `zkplan serve new-token --role {role}`.",
            )
        request.app.state.contract.check_query(request)

    return Depends(check)


def may(caller: Caller | None, role: Role) -> bool:
    """Whether the caller has the role."""
    return caller is not None and caller.may(role)


async def known(request: Request, _: Annotated[Any, Security(_BEARER)]) -> Caller | None:
    """The caller, for routes that check roles themselves. It also checks the names in the query."""
    request.app.state.contract.check_query(request)
    caller: Caller | None = request.state.caller
    return caller


CallerOf: TypeAlias = Annotated[Caller | None, Depends(known)]


def check_held(caller: Caller | None, ids: Iterable[str]) -> None:
    """Raises Problem for claims that a token of another name has made: a program settles only its
    own claims. In an open service there are no names."""
    if caller is None or not caller.holder:
        return
    foreign = [text for text in ids if not is_held_by(text, caller.holder)]
    if foreign:
        raise Problem(
            403,
            "foreign-claim",
            f"{len(foreign)} of these claims belong to a token of another name, the first is "
            f"{foreign[0][:200]}: nothing was done",
            "Send only claims that this token, or one of the same name, has made.",
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
    """The record of a plan; None if damaged, of another format, or sealed with another key."""
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
    """A task of the path. Its plan exists; whether the task does is not checked."""

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
    """The same task, for a change. Raises Problem for a number that never was a task."""
    try:
        require_task(task.client, task.plan.path, task.number)
    except InvalidTask as error:
        raise no_task(task, error) from None
    return task


def no_task(task: TaskPlace, error: InvalidTask) -> Problem:
    where = f"/v1/plans/{int(task.plan.number)}/tasks"
    return task.problem(404, "task-not-found", str(error), f"List the tasks: GET {where}.")


# ---- Fields of requests that several models have: names, options of tasks, moments.


#: No control character, and nothing that ends a line.
_PRINTABLE = r"^[^\u0000-\u001f\u007f-\u00a0\u00ad\u2028\u2029]+$"
Label = Annotated[str, Field(min_length=1, max_length=NAME_CHARS_MAX, pattern=_PRINTABLE)]
QueueName = Annotated[str, Field(pattern=r"^[a-z0-9._-]{1,40}$")]
Priority = Annotated[int, Field(ge=PRIORITY_MIN, le=PRIORITY_MAX)]


def _as_date(value: Any) -> Any:
    """Read a text as a date: pydantic alone would also take the text of a number."""
    if not isinstance(value, str):
        raise ValueError("must be a number of seconds, or a date and time with its zone")
    return datetime.fromisoformat(value.upper().replace("Z", "+00:00"))


#: A date with its zone, or in how many seconds.
MomentIn = (
    Annotated[float, Field(ge=0, le=10 * 365 * 24 * 3600)]
    | Annotated[AwareDatetime, BeforeValidator(_as_date, json_schema_input_type=AwareDatetime)]
)
Errors = Annotated[
    list[Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$", max_length=200)]],
    Field(max_length=50, description="Classes of exceptions, as MODULE:CLASS."),
]


class Strict(BaseModel):
    """The body of a request. Unknown fields are refused, and so is a text for a number."""

    model_config = ConfigDict(extra="forbid", strict=True)


class TaskOptionsIn(Strict):
    """Options of a task, by default those of the plan. `Plan.add_task` explains them."""

    attempts: Annotated[int, Field(ge=1, le=1000)] | None = None
    retry_delay: Annotated[float, Field(ge=0, le=DELAY_MAX_S)] | None = None
    timeout: Annotated[float, Field(gt=0, le=DELAY_MAX_S)] | None = None
    priority: Priority | None = None
    keep: bool | None = None
    pure: bool | None = None
    queue: QueueName | None = None
    limits: Annotated[list[QueueName], Field(max_length=LIMITS_MAX)] | None = None
    fatal: Errors | None = None
    retry_if: Errors | None = None


def given_in(model: BaseModel) -> dict[str, Any]:
    """The fields of a request that are not null."""
    return {name: value for name, value in model if value is not None}


class CauseOut(Out):
    """One cause: `code` for programs, `text` for people, `advice` says what to do."""

    code: str
    text: str
    advice: str
    task: NumberOrNull
    worker: str
    when: float | None


class WhyOut(Out):
    """Why a plan or a task does not run now. The first cause comes first."""

    path: str
    state: str
    causes: list[CauseOut]


class Link:
    """The client for all requests. It is replaced after its server was restored."""

    def __init__(self, connect: Callable[[], Client]) -> None:
        """`connect` must make a client that decodes only JSON. Raises the errors of `connect`, and
        ValueError for a client that would unpickle."""
        self._connect = connect
        self._lock = threading.Lock()
        self._is_lost = self._is_closed = False
        self.client = self._connected()

    def _connected(self) -> Client:
        client = self._connect()
        if not client.codec.is_json_only:
            client.close()
            raise ValueError("the client of a service must have serializer json: no unpickling")
        client.authors.lease_ms = LEASE_MS  # its authors have no session
        return client

    @property
    def is_lost(self) -> bool:
        """Whether the client cannot be used any more: `renewed` makes another one."""
        return self._is_lost

    def note(self, error: Exception) -> None:
        """Note whether the client can be used after this error."""
        if isinstance(error, ServerRolledBack):
            self._is_lost = True

    def renewed(self) -> Client:
        """A client that can be used. Raises the errors of `connect`, and ClientClosed."""
        with self._lock:
            if self._is_closed:
                raise ClientClosed("the service stops")
            if self._is_lost:
                self.client.close()
                self.client = self._connected()
                self._is_lost = False
            return self.client

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self.client.close()
