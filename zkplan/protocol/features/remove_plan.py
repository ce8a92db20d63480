"""Remove a plan: cancel it, then delete its znodes."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import PlanDrained, PlanNotFound, ServerFull
from ..core.plan_life import change_state
from ..interference import delete_below
from ..layout import HISTORY, QUEUES, active_entry, failed_entry
from ..records import control_from_bytes, control_to_bytes, share_from_bytes
from ..requests import (
    Applied,
    Check,
    Delete,
    Multi,
    Op,
    ReadChildren,
    ReadData,
    ReadMany,
    Reason,
    SetData,
    Step,
)
from ..transactions import GROUP_OPS_MAX, is_applied, rejected, too_busy
from .gates import remove_waiting
from .keys import freeing
from .limits import remove_own_limit

#: How many tasks one round of `remove` deletes.
REMOVED_PER_ROUND = 100
#: How many rounds of `remove` may fail. A worker that is still busy with the plan can cause a few.
REMOVALS_MAX = 100


def remove(plan_path: str, end: int | None = None) -> Step[int | None]:
    """Cancel the plan, then delete it task by task. Returns the number of tasks deleted.

    `end` identifies the end of a plan: the CZXID of `done`, or 0 if it is cancelled. If the
    plan runs again, or has ended again since, it stays, and this returns None.

    If this is interrupted, the plan is cancelled and can be removed again. `add-count` is deleted
    first, so that no task is added, and `ready` last, so that no task is claimed.
    """
    if not (yield from _end_for_good(plan_path, end)):
        return None
    removed = 0
    yield Multi([Delete(f"{plan_path}/add-count")])
    yield from _remove_history(f"{plan_path}/{HISTORY}")
    for _ in range(REMOVALS_MAX):
        plan, names = yield ReadMany([ReadData(plan_path), ReadChildren(plan_path)])
        if plan is None or names is None:
            return removed
        tasks = [f"{plan_path}/{name}" for name in names if name.startswith("task-")]
        if not tasks:
            break
        for start in range(0, len(tasks), REMOVED_PER_ROUND):
            removed += yield from delete_all(tasks[start : start + REMOVED_PER_ROUND])
    else:
        raise too_busy(f"removing {plan_path}")
    yield from remove_waiting(plan_path)
    yield from remove_own_limit(plan_path)
    # The first exists only if somebody made it after the plan had ended.
    yield from delete_all([active_entry(plan_path), failed_entry(plan_path)])
    for _ in range(REMOVALS_MAX):
        # `done` is deleted with `ready`: a scan would put a plan that is ready and not done into
        # the index.
        ends = [name for name in ("done", "ready") if name in names]
        if QUEUES in names:
            made = (yield ReadChildren(f"{plan_path}/{QUEUES}")) or ()
            yield from delete_all([f"{plan_path}/{QUEUES}/{queue}" for queue in made])
        doomed = [f"{plan_path}/{name}" for name in names if name not in ends]
        # `results` stays until the end, empty: it refuses the creation of a plan that predicts this
        # number.
        held = f"{plan_path}/results"
        yield from delete_all(doomed, held)
        last: list[Op] = [Delete(held)] if held in doomed else []
        last += [Delete(f"{plan_path}/{name}") for name in ends]
        last += yield from freeing(plan_path, plan)
        answer = yield Multi(last)
        if isinstance(answer, Applied):
            return removed
        # A commit or a release wrote meanwhile. The plan is cancelled, so such writes end.
        plan, names = yield ReadMany([ReadData(plan_path), ReadChildren(plan_path)])
        if plan is None or names is None:
            return removed
    raise too_busy(f"removing {plan_path}")


def _end_for_good(plan_path: str, end: int | None) -> Step[bool]:
    """Cancel the plan, even if it is done with failures, so that no retry runs it again. Returns
    False for a plan that stays, see `remove`.
    """
    paths = [plan_path, *(f"{plan_path}/{name}" for name in ("ready", "done", "dead"))]
    for _ in range(REMOVALS_MAX):
        plan, ready, done, dead = yield ReadMany([ReadData(path) for path in paths])
        if plan is None:
            raise PlanNotFound(plan_path, f"there is no plan {plan_path}")
        is_cancelled = ready is not None and control_from_bytes(ready.data) == "cancelled"
        if done is None:
            if end is not None:
                return is_cancelled
            try:
                yield from change_state(plan_path, "cancelled", of_any_key=True)
            except PlanDrained:
                continue  # it has ended meanwhile
            except ServerFull:
                # A plan that is not ready has no claims, and without `add-count` it gets no tasks.
                if ready is not None:
                    raise
            return True
        if end is not None and done.czxid != end:
            return False
        if ready is None or is_cancelled or dead is None or not dead.child_count:
            return True  # nothing in it can be retried
        control = control_to_bytes("cancelled", share=share_from_bytes(ready.data))
        cancelled = SetData(f"{plan_path}/ready", control, ready.version)
        answer = yield Multi([Check(f"{plan_path}/done"), cancelled])
        if is_applied(answer, f"removing {plan_path}"):
            return True
    raise too_busy(f"removing {plan_path}")


def _remove_history(path: str) -> Step[None]:
    # The history goes first, so that it does not record tasks as gone whose results still exist. A
    # worker that ends a claim meanwhile adds to the history, which refuses the deletion.
    for _ in range(REMOVALS_MAX):
        if (yield from delete_all([path])) or (yield ReadChildren(path)) is None:
            return
    raise too_busy(f"removing {path}")


def delete_all(paths: Sequence[str], held: str = "") -> Step[int]:
    """Delete `paths` with their children, but of `held` only the children. Returns how many paths
    it deleted. The next round deletes what others change meanwhile. Raises TransactionRejected.
    """
    children = yield ReadMany([ReadChildren(path) for path in paths])
    doomed: list[str] = []
    for path, names in zip(paths, children, strict=True):
        if names is not None:
            doomed += [f"{path}/{name}" for name in names]
            doomed += [path] if path != held else []
    wanted, removed = set(paths), 0
    for start in range(0, len(doomed), GROUP_OPS_MAX):
        batch = doomed[start : start + GROUP_OPS_MAX]
        answer = yield Multi([Delete(path) for path in batch])
        if isinstance(answer, Applied):
            removed += len(wanted.intersection(batch))
        elif answer.reason is Reason.NOT_EMPTY and answer.path not in wanted:
            yield from delete_below(answer.path)
        elif answer.reason not in (Reason.NOT_EMPTY, Reason.NO_NODE):
            raise rejected(f"removing {answer.path}", answer)
    return removed
