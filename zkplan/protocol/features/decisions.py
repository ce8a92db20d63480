"""Decisions of operators: fix the outcome of a task, or change its priority.

One transaction takes the task from its place and creates `result`, as a wide delivery does. So the
function never starts again, and the next holder of the claim only delivers.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...errors import TaskError
from .. import failpoints
from ..core.load import read_all
from ..interference import untouched
from ..layout import Entry, Paths, delayed_name, entry_path, parse_delayed, rank_of
from ..records import Dead, ready_to_bytes, taken_to_bytes
from ..requests import (
    Applied,
    Create,
    Delete,
    Fact,
    Multi,
    Op,
    ReadData,
    ReadMany,
    SetData,
    Step,
)
from ..transactions import (
    GROUP_OPS_MAX,
    REFUSALS_MAX,
    is_applied,
    or_error,
    require_race,
    too_busy,
)
from .task_place import Place, find_place

#: The child of a task whose open edges an operator has cut: such a task lacks arguments.
CUT = "cut"
#: How many open edges one transaction can cut.
CUT_MAX = GROUP_OPS_MAX


def decide(
    paths: Paths, plan: str, task: str, sealed: bytes, *, skips: bool, hint: Place | None = None
) -> Step[str]:
    """Fix `sealed` as the outcome of a task that has not ended. Returns where the task stood; an
    empty text if it has finished, its outcome is fixed, or it is dead and cannot be decided.

    `sealed` must be unique to this call: after a lost answer it shows whether the decision was
    applied. `skips` counts the task as skipped; a dead task can only be skipped, and only if its
    failure has not cascaded. Raises as `find_place`, and TransactionRejected.
    """
    plan_path = paths.plan(plan)
    path, gone = f"{plan_path}/task-{task}", set[str]()
    for _ in range(REFUSALS_MAX):
        place = yield from find_place(paths, plan, task, hint)
        hint = None
        if place is None or (place.state == "dead" and (place.cascaded or not skips)):
            return ""
        place = place._replace(permits=tuple(each for each in place.permits if each not in gone))
        failpoints.reach("decide.between")
        ops = decide_ops(plan_path, task, place, sealed, skips=skips)
        answer = yield Multi(ops, decide_facts(plan_path, task, skips=skips))
        if isinstance(answer, Applied):
            return place.state
        if answer.repeated:
            stands, kept = yield ReadMany(
                [ReadData(f"{path}/result"), ReadData(f"{plan_path}/results/{task}")]
            )
            if any(node is not None and node.data == sealed for node in (stands, kept)):
                return place.state  # the first copy was applied
        require_race(answer, f"deciding task {task} of {plan_path}")
        if answer.path in place.permits:
            gone.add(answer.path)  # deleted by hand, or with a claim that ended
    raise too_busy(f"deciding task {task} of {plan_path}")


def decide_ops(plan_path: str, task: str, place: Place, sealed: bytes, *, skips: bool) -> list[Op]:
    """Take a task from its place, with `sealed` as its outcome."""
    ops = [*leaving_ops(plan_path, task, place), Create(f"{plan_path}/task-{task}/result", sealed)]
    if skips:
        ops.append(SetData(f"{plan_path}/results"))  # its version counts the skipped tasks
    entry = Entry(place.rank, task, place.next_n, place.a)
    return [*ops, Create(entry_path(plan_path, place.queue, entry))]


def decide_facts(plan_path: str, task: str, *, skips: bool) -> dict[str, Fact]:
    """What the history records of a decision besides its operations."""
    return {f"{plan_path}/task-{task}/result": Fact(skips=skips)}


def send_failures(paths: Paths, plan: str, tasks: Iterable[str]) -> Step[list[str]]:
    """Send the failures of the dead tasks among `tasks`. Returns the tasks whose failures went."""
    found = list(dict.fromkeys(tasks))
    letters = yield from read_all([ReadData(f"{paths.plan(plan)}/dead/{task}") for task in found])
    sent: list[str] = []
    for task, letter in zip(found, letters, strict=True):
        if letter is not None:
            done = yield from or_error(send_failure(paths, plan, task))
            if done is True:  # the next check meets an error again
                sent.append(task)
    return sent


def send_failure(paths: Paths, plan: str, task: str) -> Step[bool]:
    """Send the failure of a dead task along edges that were added when it was about to fail: the
    task gets its failure as its outcome once more, and the holder of its claim delivers it. Returns
    False if the task is not dead, or its failure cannot be sent. Raises as `find_place`."""
    plan_path = paths.plan(plan)
    path = f"{plan_path}/task-{task}"
    letter, outcome = yield ReadMany(
        [ReadData(f"{plan_path}/dead/{task}"), ReadData(f"{plan_path}/results/{task}")]
    )
    if letter is None or outcome is None:
        return False
    dead = Dead.from_bytes(letter.data)
    if dead.undelivered:
        return False
    place = yield from find_place(paths, plan, task)
    if place is None or place.state != "dead" or place.n != dead.n or not place.has_outcome:
        return False
    ops = leaving_ops(plan_path, task, place)
    if place.cascaded:
        # S7: so the plan cannot end meanwhile, though all of its tasks are dead.
        ops.append(SetData(f"{plan_path}/add-count"))
    # The claim that delivers counts as the last attempt, so no attempt is used up or given back.
    entry = Entry(place.rank, task, place.next_n, max(0, dead.a - 1))
    ops.append(Create(f"{path}/result", outcome.data))
    ops.append(Create(entry_path(plan_path, place.queue, entry)))
    # Refused: somebody else has sent it, or retried or decided the task.
    is_applied((yield Multi(ops)), f"sending the failure of task {task} of {plan_path}")
    return True


def refuse_wide(plan_path: str, task: str, place: Place) -> None:
    """Raise TaskError if one transaction cannot change all edges that the task waits for."""
    if max(len(place.edges), place.k - place.version) > CUT_MAX:
        raise TaskError(
            task,
            f"{plan_path}/task-{task} waits for {len(place.edges)} results, and one transaction "
            f"changes at most {CUT_MAX} edges: wait until more have arrived",
        )


def leaving_ops(plan_path: str, task: str, place: Place) -> list[Op]:
    """The fence: take the task from its place, and from no other."""
    path = f"{plan_path}/task-{task}"
    if place.state in ("runnable", "delayed"):
        return [Delete(place.path)]
    if place.state == "gated":
        # Only its opening brings its argument, so the gate lacks it like a task that was cut.
        return [Delete(place.path), Create(f"{path}/{CUT}")]
    if place.state == "running":
        claims_node, _, name = place.path.rpartition("/")
        ops: list[Op] = [Delete(place.path)]
        if place.has_owner:
            ops.append(Delete(f"{path}/owner"))
        ops += map(Delete, place.permits)
        # The worker watches the data of its claims node, and stops the function at once.
        return [*ops, SetData(claims_node, taken_to_bytes(name))]
    if place.state == "dead":
        # As for a retry: a late copy must not end a later death of the same task.
        ops = [Create(f"{path}/retry-{place.n}"), Delete(place.path)]
        if place.has_outcome:
            ops.append(Delete(f"{plan_path}/results/{task}"))
        return ops
    if place.state == "lost":
        # S1: prove that it was not claimed since it was found in no place.
        ops = untouched(path, place.node) if place.node is not None else []
        ops += map(Delete, place.permits)
        ops.append(Create(f"{path}/retry-{place.n}"))
        if place.has_owner:
            ops.append(Delete(f"{path}/owner"))
        if place.has_outcome:
            ops.append(Delete(f"{plan_path}/results/{task}"))
        return ops
    refuse_wide(plan_path, task, place)
    ops = []
    for dep, prov, _ in place.edges:
        ops += [Delete(dep), Delete(prov)]
    ops += map(Delete, place.torn)
    ready, count = f"{path}/ready", ready_to_bytes(place.k, place.queue)
    # The version rises as if all edges had arrived and the task had been published. The last
    # operation checks that nothing else has raised the version.
    ops += [SetData(ready, count) for _ in range(place.version, place.k)]
    ops.append(SetData(ready, count, place.k))
    if place.version < place.k:
        ops.append(Create(f"{path}/{CUT}"))
    return ops


# ---- Give another priority to a task that has not started.


def set_priority(
    paths: Paths, plan: str, task: str, priority: int, hint: Place | None = None
) -> Step[str]:
    """Give the task this priority. Returns where it stood; an empty text if nothing changes because
    it is claimed, gated, dead, lost or finished.

    The time-out of a gate runs from the creation of its entry, so the entry stays. After a lost
    answer nothing needs to be read: the task has the rank, or gets it once more. Raises as
    `find_place`, and TransactionRejected.
    """
    plan_path, rank = paths.plan(plan), rank_of(priority)
    for _ in range(REFUSALS_MAX):
        place = yield from find_place(paths, plan, task, hint)
        hint = None
        if place is None or place.state in ("running", "dead", "gated", "lost"):
            return ""
        if place.rank == rank and place.state != "complete":
            return place.state
        answer = yield Multi(priority_ops(paths, plan, task, place, rank))
        if is_applied(answer, f"setting the priority of task {task} of {plan_path}"):
            return place.state
    raise too_busy(f"setting the priority of task {task} of {plan_path}")


def priority_ops(paths: Paths, plan: str, task: str, place: Place, rank: str) -> list[Op]:
    """Give `rank` to a task that has not started. Raises TaskError if it has too many open
    edges."""
    plan_path = paths.plan(plan)
    # Another N: no name of an entry comes back (S8).
    entry = Entry(rank, task, place.next_n, place.a)
    runnable = Create(entry_path(plan_path, place.queue, entry))
    if place.state == "runnable":
        return [Delete(place.path), runnable]
    if place.state == "delayed":
        later = parse_delayed(place.path.rpartition("/")[2])
        due_ms = later.due_ms if later is not None else 0
        name = delayed_name(due_ms, plan, entry, place.queue)
        return [Delete(place.path), Create(f"{paths.delayed}/{name}", place.data)]
    if place.state == "complete":
        # Publish it by the usual compare-and-set.
        return [SetData(place.path, ready_to_bytes(place.k, place.queue), place.k), runnable]
    ops: list[Op] = []
    refuse_wide(plan_path, task, place)
    for _, prov, edge in place.edges:
        source = prov.rpartition("/")[0]
        record = edge._replace(rank=rank, k=place.k).to_bytes()
        # A new znode, not new data: a worker that has read the old record would publish the task
        # with the old rank, so it must be refused.
        ops += [Delete(prov), Create(f"{source}/prov-", record, sequence=True)]
    return ops
