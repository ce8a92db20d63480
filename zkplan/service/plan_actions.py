"""Routes that change a plan: ready, pause, resume, cancel, retry, set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter

from ..plan import Plan
from .asked import PlanOf, needs, record_of
from .etags import IfMatch, NotModified, Tagged, demand
from .fields import given_in
from .plan_models import Changed, PlanOut, PlanShareIn, PlanShareOut, plan_out
from .problems import documented

router = APIRouter(tags=["plans"], responses=documented(404, 409, 422))


def _now(plan: Plan) -> PlanOut:
    return plan_out(plan.status(), record_of(plan))


def _action(role: Any, name: str, text: str, act: Callable[[Plan], object]) -> None:
    def route(plan: PlanOf) -> PlanOut:
        act(plan)
        return _now(plan)

    router.add_api_route(
        f"/plans/{{plan}}/{name}",
        route,
        methods=["POST"],
        dependencies=[needs(role)],
        name=f"{name}_plan",
        operation_id=f"{name}_plan",
        summary=f"{name.capitalize()} a plan",
        description=text,
    )


_action("author", "ready", "Let it run. Tasks may be added before and after.", Plan.mark_ready)
_action("operate", "pause", "Claim no more of its tasks. Running ones go on.", Plan.pause)
_action("operate", "resume", "Let a paused plan run again.", Plan.resume)
_action("operate", "cancel", "Stop it for good.", Plan.cancel)


@router.post("/plans/{plan}/retry", dependencies=[needs("operate")])
def retry_plan(plan: PlanOf) -> Changed:
    """Make all dead tasks runnable again, with all their attempts. `count` says how many."""
    many = plan.retry()
    return Changed(changed=many > 0, count=many)


@router.get("/plans/{plan}/share", dependencies=[needs("read")], responses=NotModified)
def show_share(plan: PlanOf, tagged: Tagged) -> PlanShareOut:
    """Its weight and its priority."""
    return tagged(_share(plan))


@router.post("/plans/{plan}/set", dependencies=[needs("operate")], responses=documented(412))
def set_plan(plan: PlanOf, wanted: PlanShareIn, if_match: IfMatch = None) -> PlanOut:
    """Change its weight or its priority. The tag for If-Match is that of its share."""
    demand(if_match, _share(plan))
    plan.set(**given_in(wanted))
    return _now(plan)


def _share(plan: Plan) -> PlanShareOut:
    seen = plan.status()
    return PlanShareOut(weight=seen.weight, priority=seen.priority)
