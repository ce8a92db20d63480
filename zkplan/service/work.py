"""Routes of work: claim, renew, log, complete, fail and release, for programs in any language.

Their answers are as the models say, and are sent without being made into these first: batches are
long, and it would be most of what an answer costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from ..leases import Failed, Leases, Outcome
from .asked import CallerOf, check_held, needs
from .problems import Problem, documented
from .work_models import (
    ClaimedOut,
    ClaimIn,
    CompleteIn,
    FailIn,
    IdsIn,
    LogIn,
    OutcomesOut,
    RenewedOut,
)

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
