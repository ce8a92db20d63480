"""Four plain functions over Client and Plan, as zk-plan had them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .client import Client
from .plan import Plan
from .tasks import Task


def create_plan(client: Client, name: str | None = None, **defaults: Any) -> Plan:
    """Create an empty plan. See `Client.create_plan`."""
    return client.create_plan(name, **defaults)


def add_task(plan: Plan, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Task:
    """Add a task that calls `fn(*args, **kwargs)`. An argument that is a task becomes an edge."""
    return plan.add_task(fn, args, kwargs)


def mark_ready(plan: Plan) -> None:
    """Let the plan run. See `Plan.mark_ready`."""
    plan.mark_ready()


def plan_completed(plan: Plan) -> bool:
    """Whether every task of the plan has finished. See `Plan.is_drained`."""
    return plan.is_drained()
