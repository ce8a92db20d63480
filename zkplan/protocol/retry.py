"""Retry: make a dead task runnable again."""

from __future__ import annotations

from ..errors import PayloadUndecodable, TaskError
from . import failpoints
from .control import cascades
from .decide import CUT
from .gates import wait_again_ops
from .layout import Entry, entry_path, parse_delayed
from .look import require_known_format
from .places import Place
from .records import Dead
from .requests import Applied, Create, Delete, Multi, Op, ReadData, ReadMany, Reason, Step
from .shared import rejected


def retry(plan_path: str, task: str) -> Step[bool]:
    """Make a dead task runnable again, with all its attempts. Returns False if it is not dead.

    Raises PayloadUndecodable if its dead letter is damaged, TaskError if it was cancelled before
    all its arguments had come, or if its failure has cascaded (see `reopen`), and
    TransactionRejected.
    """
    path = f"task-{task}"
    names = (f"dead/{task}", f"results/{task}", path, f"{path}/gate", f"{path}/{CUT}")
    reads = [ReadData(f"{plan_path}/{name}") for name in names]
    dead, outcome, node, gate, cut, plan = yield ReadMany([*reads, ReadData(plan_path)])
    if dead is None or node is None or plan is None:
        return False
    require_known_format(plan_path, plan.data)
    if cascades(plan):
        raise TaskError(
            task,
            f"the failure of task {task} of {plan_path} has gone to its dependents "
            f'(on_failure="cascade"), so it cannot be retried alone: retry the plan once it has '
            f"ended (`zkplan plan retry {int(plan_path[-10:])}`)",
        )
    letter = Dead.from_bytes(dead.data)
    if letter.n < 0:
        # Without the number of its last claim, a runnable name might come back.
        raise PayloadUndecodable(
            f"task {task} of {plan_path} cannot be retried: {letter.error}; it must be added anew"
        )
    if cut is not None:
        raise TaskError(
            task,
            f"task {task} of {plan_path} was cancelled while it waited for others, so it lacks "
            "their results and cannot be retried: skip it, or add it anew",
        )
    place = Place("dead", "", letter.rank, letter.n, queue=letter.queue)
    place = place._replace(has_outcome=outcome is not None)
    ops = retry_ops(plan_path, task, place, is_gate=gate is not None)
    failpoints.reach("retry.between")
    answer = yield Multi(ops)
    if isinstance(answer, Applied) or answer.repeated:
        return True
    if answer.reason not in (Reason.NO_NODE, Reason.NODE_EXISTS):
        raise rejected(f"retrying task {task} of {plan_path}", answer)
    return False  # somebody else has retried it meanwhile


def retry_ops(plan_path: str, task: str, place: Place, *, is_gate: bool) -> list[Op]:
    """The operations that make a dead task runnable again; a gate waits again."""
    entry = Entry(place.rank, task, place.next_n, 0)
    # Only one retry for each death. Otherwise a late copy, or a second operator, could retry a
    # later death with the same name and version, and a runnable name would come back.
    ops: list[Op] = [Create(f"{plan_path}/task-{task}/retry-{place.n}")]
    if place.has_outcome:
        ops.append(Delete(f"{plan_path}/results/{task}"))
    ops.append(Delete(f"{plan_path}/dead/{task}"))
    if is_gate:
        return ops + wait_again_ops(plan_path, entry, place.queue)
    return [*ops, Create(entry_path(plan_path, place.queue, entry))]


def run_now_ops(plan_path: str, place: Place) -> list[Op]:
    """The operations that make a delayed task runnable at once."""
    later = parse_delayed(place.path.rpartition("/")[2])
    if later is None:
        return []
    return [Delete(place.path), Create(entry_path(plan_path, later.queue, later.entry))]


def run_now(plan_path: str, place: Place) -> Step[bool]:
    """Make a delayed task runnable at once. Returns False if it is not delayed any more.

    Raises TransactionRejected.
    """
    name, ops = place.path.rpartition("/")[2], run_now_ops(plan_path, place)
    if not ops:
        return False
    answer = yield Multi(ops)
    if isinstance(answer, Applied) or answer.repeated:
        return True
    if answer.reason not in (Reason.NO_NODE, Reason.NODE_EXISTS):
        raise rejected(f"retrying {name} of {plan_path}", answer)
    return False  # it became due, or somebody else has made it runnable
