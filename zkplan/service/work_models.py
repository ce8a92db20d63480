"""What programs in any language send and get: see `work`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field

from ..leases.giver import BATCH_MAX, WAIT_S_MAX
from ..leases.leased import Refusal
from ..protocol.leases import LEASE_MS_MAX, LEASE_MS_MIN
from ..runtime.context import LOGS_PER_ATTEMPT
from .fields import QueueName, Strict

ClaimIdIn = Annotated[str, Field(max_length=200, description="The id that a claim has answered.")]
_SECONDS_MIN, _SECONDS_MAX = LEASE_MS_MIN / 1000, LEASE_MS_MAX / 1000


class ClaimIn(Strict):
    """Which tasks: of the first of `queues` that has any, of one of `kinds` (null: of any kind).

    It waits up to `wait` seconds for the first one. All that it gets stands under one lease, which
    counts for `lease` seconds from now on, and from each renewal.
    """

    queues: Annotated[list[QueueName], Field(min_length=1, max_length=20)] = Field(["default"])
    kinds: Annotated[list[QueueName], Field(min_length=1, max_length=100)] | None = None
    count: Annotated[int, Field(ge=1, le=BATCH_MAX)] = 1
    wait: Annotated[float, Field(ge=0, le=WAIT_S_MAX)] = 0.0
    lease: Annotated[float, Field(ge=_SECONDS_MIN, le=_SECONDS_MAX)] = 30.0


class LeasedOut(BaseModel):
    """A task under a lease. `due`: when that lapses, in seconds since 1970, by the clock of
    ZooKeeper. `attempt` grows with every claim of the task. A task that failed is
    `{"failed": {"kind", "message"}}` among the arguments."""

    id: str
    plan: int
    task: int
    name: str
    kind: str
    queue: str
    attempt: int
    due: float
    lease: float
    args: list[Any]
    kwargs: dict[str, Any]
    logs: list[Any]


class ClaimedOut(BaseModel):
    """Empty where there was nothing to claim."""

    tasks: list[LeasedOut]


class IdsIn(Strict):
    """Claims."""

    ids: Annotated[list[ClaimIdIn], Field(min_length=1, max_length=BATCH_MAX)]


class RenewalOut(BaseModel):
    """`ok`: the claim stands, until `due`. Else `refused` and `why` say what ended it."""

    id: str
    ok: bool
    due: float
    refused: Refusal
    why: str


class RenewedOut(BaseModel):
    """In the order of the request."""

    claims: list[RenewalOut]


class LogIn(Strict):
    """The entry `number` of this attempt: 1, 2, 3 and so on. One that is sent again is the same."""

    id: ClaimIdIn
    number: Annotated[int, Field(ge=1, le=LOGS_PER_ATTEMPT)]
    value: Any


class ResultIn(Strict):
    """The result of a task."""

    id: ClaimIdIn
    value: Any = None


class CompleteIn(Strict):
    """Results, which are committed together where they fit in one transaction."""

    results: Annotated[list[ResultIn], Field(min_length=1, max_length=BATCH_MAX)]


class FailureIn(Strict):
    """Why an attempt failed. `kind` names the sort, as the type of an exception does; without
    `retry` no further attempt is made."""

    id: ClaimIdIn
    message: Annotated[str, Field(max_length=20_000)]
    kind: Annotated[str, Field(min_length=1, max_length=200)] = "Error"
    retry: bool = True
    traceback: Annotated[str, Field(max_length=200_000)] = ""


class FailIn(Strict):
    """Failures."""

    failures: Annotated[list[FailureIn], Field(min_length=1, max_length=BATCH_MAX)]


class OutcomeOut(BaseModel):
    """`ok`: it counts. Else `refused` and `why` say what kept it; the claim stands only where it is
    `invalid` or `full`."""

    id: str
    ok: bool
    refused: Refusal
    why: str


class OutcomesOut(BaseModel):
    """In the order of the request."""

    outcomes: list[OutcomeOut]
