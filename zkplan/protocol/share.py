"""The share of a plan in the workers: its weight and its priority, changeable while it runs."""

from __future__ import annotations

from ..errors import PlanCancelled, PlanDrained, PlanError, PlanNotFound
from .look import require_known_format
from .records import (
    PlanRecord,
    Share,
    control_from_bytes,
    control_reason,
    control_to_bytes,
    share_from_bytes,
)
from .requests import Applied, Check, Multi, Node, Op, ReadData, ReadMany, Reason, SetData, Step
from .shared import REFUSALS_MAX, rejected, too_busy
from .unproven import require_opened


def share_of(record: PlanRecord, ready: Node | None) -> tuple[int, int]:
    """The weight and the priority of a plan as they count now, by its record and its `ready`."""
    share = share_from_bytes(ready.data if ready is not None else b"")
    return (
        record.weight if share.weight is None else share.weight,
        record.defaults.priority if share.priority is None else share.priority,
    )


def change_share(plan_path: str, wanted: Share) -> Step[None]:
    """Give a plan another weight or another priority; None leaves that as it is.

    One conditional write of `ready`, which workers watch anyway: the state in it stays as it is
    (S9). Raises PlanNotFound, PlanDrained, PlanCancelled, PlanError for a plan that is not
    marked ready, and PayloadUndecodable where the state cannot be read here.
    """
    control = f"{plan_path}/ready"
    reads = [ReadData(path) for path in (plan_path, control, f"{plan_path}/done")]
    for _ in range(REFUSALS_MAX):
        plan, ready, done = yield ReadMany(reads)
        if plan is None:
            raise PlanNotFound(plan_path, f"there is no plan {plan_path}")
        require_known_format(plan_path, plan.data)
        if done is not None:
            raise PlanDrained(plan_path, f"{plan_path} is done: there is nothing to share")
        if ready is None:
            raise PlanError(
                plan_path,
                f"{plan_path} is not marked ready yet, so it has no share: give weight and "
                "priority to create_plan, or change them once it is marked ready",
            )
        require_opened(control, ready.data)  # it may have been cancelled
        state = control_from_bytes(ready.data)
        if state == "cancelled":
            raise PlanCancelled(plan_path, f"{plan_path} was cancelled: it does not run any more")
        now = share_from_bytes(ready.data)
        share = Share(*(old if new is None else new for old, new in zip(now, wanted, strict=True)))
        data = control_to_bytes(state, control_reason(ready.data), share)
        op: Op = SetData(control, data, ready.version)
        if share == now:
            # One member says so, but it may be behind: the share may have changed since.
            op = Check(control, ready.version)
        answer = yield Multi([op])
        if isinstance(answer, Applied):
            return
        if answer.reason not in (Reason.NO_NODE, Reason.BAD_VERSION):
            raise rejected(f"changing the share of {plan_path}", answer)
    raise too_busy(f"changing the share of {plan_path}")
