"""Give another priority to a task that has not started."""

from __future__ import annotations

from ..errors import TransactionRejected
from .decide import RACES, refuse_wide
from .layout import Entry, Paths, delayed_name, entry_path, parse_delayed, rank_of
from .places import Place, find_place
from .records import ready_to_bytes
from .requests import Applied, Create, Delete, Multi, Op, SetData, Step
from .shared import REFUSALS_MAX, rejected


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
