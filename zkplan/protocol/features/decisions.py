"""Operators decide: fix the outcome of a task, or change its priority.

One transaction takes the task from its place and creates `result`, as a wide delivery does. So its
function never starts again, and whoever claims the task only delivers.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...errors import TaskError, TransactionRejected
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
    Reason,
    SetData,
    Step,
)
from ..transactions import GROUP_OPS_MAX, REFUSALS_MAX, or_error, rejected
from .task_place import Place, find_place

#: The child of a task whose open edges an operator has cut: it has not all of its arguments.
CUT = "cut"
#: How many open edges one transaction cuts.
CUT_MAX = GROUP_OPS_MAX
RACES = (Reason.NO_NODE, Reason.NODE_EXISTS, Reason.BAD_VERSION, Reason.NOT_EMPTY)


def decide(
    paths: Paths, plan: str, task: str, sealed: bytes, *, skips: bool, hint: Place | None = None
) -> Step[str]:
    """Fix `sealed` as the outcome of a task that has not ended. Returns where the task stood.

    `sealed` must be unique to this call: it tells after a lost answer whether the decision was
    applied. `skips` counts the task as skipped; a dead task can be skipped only. Returns an empty
    text if the task has finished, if its outcome is fixed already, or if it is dead and not to be
    skipped, or its failure has cascaded. Raises as `find_place`, and TransactionRejected.
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
        if answer.reason not in RACES:
            raise rejected(f"deciding task {task} of {plan_path}", answer)
        if answer.path in place.permits:
            gone.add(answer.path)  # deleted by hand, or the claim has ended meanwhile
    raise TransactionRejected(
        f"deciding task {task} of {plan_path}: others move it all the time; try again"
    )


def decide_ops(plan_path: str, task: str, place: Place, sealed: bytes, *, skips: bool) -> list[Op]:
    """The operations that take a task from its place, with `sealed` as its outcome."""
    ops = [*leaving_ops(plan_path, task, place), Create(f"{plan_path}/task-{task}/result", sealed)]
    if skips:
        ops.append(SetData(f"{plan_path}/results"))  # its version counts the skipped tasks
    entry = Entry(place.rank, task, place.next_n, place.a)
    return [*ops, Create(entry_path(plan_path, place.queue, entry))]


def decide_facts(plan_path: str, task: str, *, skips: bool) -> dict[str, Fact]:
    """What the history tells of a decision besides its operations."""
    return {f"{plan_path}/task-{task}/result": Fact(skips=skips)}


def tell_failures(paths: Paths, plan: str, tasks: Iterable[str]) -> Step[list[str]]:
    """`tell_failure` for those of `tasks` that are dead; returns them."""
    found = list(dict.fromkeys(tasks))
    letters = yield from read_all([ReadData(f"{paths.plan(plan)}/dead/{task}") for task in found])
    told: list[str] = []
    for task, letter in zip(found, letters, strict=True):
        if letter is not None:
            done = yield from or_error(tell_failure(paths, plan, task))
            if done is True:  # an error concerns this one alone, which the next check meets again
                told.append(task)
    return told


def tell_failure(paths: Paths, plan: str, task: str) -> Step[bool]:
    """Let the failure of a dead task go along edges that were added when it was about to fail.

    Its outcome becomes that failure once more, and whoever claims it delivers. Returns whether the
    task was dead. Raises as `find_place`.
    """
    plan_path = paths.plan(plan)
    path = f"{plan_path}/task-{task}"
    letter, outcome = yield ReadMany(
        [ReadData(f"{plan_path}/dead/{task}"), ReadData(f"{plan_path}/results/{task}")]
    )
    if letter is None or outcome is None or Dead.from_bytes(letter.data).undelivered:
        return False
    place = yield from find_place(paths, plan, task)
    if place is None or place.state != "dead" or not place.has_outcome:
        return False
    ops = leaving_ops(plan_path, task, place)
    if place.cascaded:
        # S7: else the plan might end meanwhile, for all that is left of it was dead.
        ops.append(SetData(f"{plan_path}/add-count"))
    entry = Entry(place.rank, task, place.next_n, place.a)
    ops.append(Create(f"{path}/result", outcome.data))
    ops.append(Create(entry_path(plan_path, place.queue, entry)))
    # Refused: somebody else has told it, retried or decided it meanwhile.
    answer = yield Multi(ops)
    if not isinstance(answer, Applied) and answer.reason not in RACES:
        raise rejected(f"telling of the failure of task {task} of {plan_path}", answer)
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
    """The fence: the operations that take the task from its place, and from nowhere else."""
    path = f"{plan_path}/task-{task}"
    if place.state in ("runnable", "delayed"):
        return [Delete(place.path)]
    if place.state == "gated":
        # Its argument comes with its opening. So it lacks one from now on, as a task that was cut.
        return [Delete(place.path), Create(f"{path}/{CUT}")]
    if place.state == "running":
        claims_node, _, name = place.path.rpartition("/")
        ops: list[Op] = [Delete(place.path)]
        if place.has_owner:
            ops.append(Delete(f"{path}/owner"))
        # Its worker watches this data: the function learns at once that nobody wants its result.
        ops += map(Delete, place.permits)
        return [*ops, SetData(claims_node, taken_to_bytes(name))]
    if place.state == "dead":
        # As for a retry: a late copy must not end a later death of the same task.
        ops = [Create(f"{path}/retry-{place.n}"), Delete(place.path)]
        if place.has_outcome:
            ops.append(Delete(f"{plan_path}/results/{task}"))
        return ops
    if place.state == "lost":
        # S1: nobody has claimed it since it was found nowhere.
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
    # The version rises as if all had arrived and the task had been published. The last step demands
    # that nothing else has raised it.
    ops += [SetData(ready, count) for _ in range(place.version, place.k)]
    ops.append(SetData(ready, count, place.k))
    if place.version < place.k:
        ops.append(Create(f"{path}/{CUT}"))
    return ops


# ---- Give another priority to a task that has not started.


def set_priority(
    paths: Paths, plan: str, task: str, priority: int, hint: Place | None = None
) -> Step[str]:
    """Let the task be claimed by this priority. Returns where it stood.

    Returns an empty text if it is claimed, gated, dead, lost or finished: then nothing changes. The
    time of a gate counts from the creation of its entry, which stays. Raises as `find_place`, and
    TransactionRejected. After a lost answer nothing needs to be read: the task has the rank
    already, or gets it once more.
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
        if isinstance(answer, Applied):
            return place.state
        if answer.reason not in RACES:
            raise rejected(f"setting the priority of task {task} of {plan_path}", answer)
    raise TransactionRejected(
        f"setting the priority of task {task} of {plan_path}: others move it all the time; try "
        "again"
    )


def priority_ops(paths: Paths, plan: str, task: str, place: Place, rank: str) -> list[Op]:
    """The operations that give a task that has not started that rank. Raises TaskError if its
    open edges are too many."""
    plan_path = paths.plan(plan)
    # Another N, for a name that stood once must not come back (S8).
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
        # Published here, by the compare-and-set that only one can win.
        return [SetData(place.path, ready_to_bytes(place.k, place.queue), place.k), runnable]
    ops: list[Op] = []
    refuse_wide(plan_path, task, place)
    for _, prov, edge in place.edges:
        source = prov.rpartition("/")[0]
        record = edge._replace(rank=rank, k=place.k).to_bytes()
        # A new znode and not new data: whoever has read the old record must be refused, because it
        # would publish the task under its old rank.
        ops += [Delete(prov), Create(f"{source}/prov-", record, sequence=True)]
    return ops
