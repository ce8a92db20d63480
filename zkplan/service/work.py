"""Routes of work: programs in any language claim, renew, log, complete, fail and release tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from ..protocol.features.leases import LEASE_MS_MAX, LEASE_MS_MIN
from ..runtime.context import LOGS_PER_ATTEMPT
from .answers import Problem, documented
from .lease_records import Refusal
from .leases import BATCH_MAX, WAIT_S_MAX, Failed, Leases, Outcome
from .parameters import CallerOf, QueueName, Strict, check_held, needs

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


class ClaimOutcomeOut(BaseModel):
    """`ok`: it counts. Else `refused` and `why` say what kept it; the claim stands only where it is
    `invalid` or `full`."""

    id: str
    ok: bool
    refused: Refusal
    why: str


class OutcomesOut(BaseModel):
    """In the order of the request."""

    outcomes: list[ClaimOutcomeOut]


# ---- Routes of work: claim, renew, log, complete, fail and release, for programs in any language.
#
# Their answers are as the models say, and are sent without being made into these first: batches are
# long, and it would be most of what an answer costs.


router = APIRouter(
    prefix="/leases", tags=["leases"], dependencies=[needs("work")], responses=documented(409, 422)
)
#: What to do about each refusal, and with which status it is told.
_TODO = {
    "lapsed": (409, "Drop the result: the task runs again, or has run. Renew more often."),
    "ended": (409, "Drop the result: the outcome of the task is fixed."),
    "removed": (409, "Drop the result: its plan is gone."),
    "invalid": (422, "Change what the detail names, or let the task fail."),
    "full": (503, "Send it again in a moment: the claim stands."),
}


@router.post("/claim", response_model=ClaimedOut)
async def claim(request: Request, caller: CallerOf, wanted: ClaimIn) -> JSONResponse:
    """Claim tasks of a kind under a lease. Nothing else can be claimed here."""
    found = await request.app.state.work.claim(
        *(wanted.queues, wanted.kinds, wanted.count, wanted.wait, wanted.lease),
        "" if caller is None else caller.holder,
        request.is_disconnected,
    )
    return JSONResponse({"tasks": [vars(each) for each in found]})


@router.post("/renew", response_model=RenewedOut)
async def renew(request: Request, caller: CallerOf, wanted: IdsIn) -> JSONResponse:
    """Let the leases of these claims count from now on. Tells which claims still stand."""
    check_held(caller, wanted.ids)
    renewed = await request.app.state.work.renewing.renew(wanted.ids)
    return JSONResponse({"claims": [each._asdict() for each in renewed]})


@router.post("/log", response_model=OutcomesOut)
def log(request: Request, caller: CallerOf, wanted: LogIn) -> JSONResponse:
    """Write a log entry of a task, which later attempts find in `logs`."""
    check_held(caller, [wanted.id])
    return _told([_leases(request).log(wanted.id, wanted.number, wanted.value)])


@router.post("/complete", response_model=OutcomesOut)
def complete(request: Request, caller: CallerOf, wanted: CompleteIn) -> JSONResponse:
    """Commit results. 409 if one of them comes too late; `outcomes` says what became of each."""
    check_held(caller, [each.id for each in wanted.results])
    return _told(_leases(request).complete([(each.id, each.value) for each in wanted.results]))


@router.post("/fail", response_model=OutcomesOut)
def fail(request: Request, caller: CallerOf, wanted: FailIn) -> JSONResponse:
    """Let attempts fail: the tasks run again, or are dead, as their attempts say."""
    check_held(caller, [each.id for each in wanted.failures])
    failed = [Failed(**each.model_dump()) for each in wanted.failures]
    return _told(_leases(request).fail(failed))


@router.post("/release", response_model=OutcomesOut)
def release(request: Request, caller: CallerOf, wanted: IdsIn) -> JSONResponse:
    """Give tasks back that were not run. It costs them no attempt."""
    check_held(caller, wanted.ids)
    return _told(_leases(request).hand_back(wanted.ids))


def _leases(request: Request) -> Leases:
    leases: Leases = request.app.state.work.leases()
    return leases


def _told(outcomes: Sequence[Outcome]) -> JSONResponse:
    """Raises Problem if one of them does not count: with the status of the gravest."""
    shown: list[dict[str, Any]] = [each._asdict() for each in outcomes]
    refused = [each for each in outcomes if not each.ok]
    if not refused:
        return JSONResponse({"outcomes": shown})
    first = min(refused, key=lambda each: list(_TODO).index(each.refused))
    status, todo = _TODO[first.refused]
    others = f" ({len(refused)} of {len(outcomes)} were refused)" if len(outcomes) > 1 else ""
    raise Problem(status, first.refused, f"{first.why}{others}", todo, outcomes=shown)
