"""Deliver one result along more edges than one transaction holds.

Once `result` exists, the function never runs again: the next holder of the claim goes on with the
edges that are left. A deleted `prov-` is the record of progress.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...errors import PayloadUndecodable, ServerFull, TransactionRejected, ZkplanError
from .. import failpoints
from ..layout import ADDED, ADDS, DELIVERED, PENDING, STAGED
from ..requests import (
    Applied,
    Check,
    Create,
    Delete,
    Multi,
    Op,
    ReadChildren,
    ReadData,
    ReadMany,
    Reason,
    Refused,
    Step,
)
from ..transactions import (
    GROUP_BYTES_MAX,
    GROUP_OPS_MAX,
    OP_OVERHEAD,
    REFUSALS_MAX,
    Allowance,
    Claim,
    Dependent,
    Registration,
    pending_bytes,
    rejected,
)
from .commit_part import Part
from .edges import Edge
from .load import Loaded, Reading, drop_removed, read_names
from .publish import publish, still_complete
from .wide_adds import Lost, add_staged, stage

#: Prefixes of children that are not needed once the outcome is fixed and all tasks are added.
_SPENT = ("arg-", "log-", STAGED, ADDED)


class WorkerGone(ZkplanError):
    """The claims node of the registration is gone: register again, and go on."""


def deliver_wide(
    me: Registration,
    part: Part,
    allowance: Callable[[], Allowance],
    taken: Callable[[list[Claim]], None],
    owed: Callable[[list[Dependent], str], None],
    lost: Lost,
) -> Step[bool]:
    """Commit `part` in as many transactions as it takes. Returns False if its claim is gone, or
    another outcome was reported for it before.

    Raises ResultNotKept, PlanError or PayloadTooLarge if a task that its function added cannot be
    added; then nothing was written. Raises PayloadUndecodable or ZooKeeperError if an edge is
    damaged, leads nowhere or may not be read, or if staged tasks cannot be added; then what was
    added and delivered stays. In all cases the claim still stands. Raises WorkerGone if `me` is
    gone, but not the claim, which is under a lease: the delivery goes on with another registration.

    With `allowance` and `taken` the worker can run dependents while later edges are delivered.
    `owed` gets dependents that a full server cannot publish, with their pending record.
    `lost`: see `wide_adds`.
    """
    loaded = part.loaded
    if loaded.result is None:
        if not (yield from _fix_result(part)):
            return False
        # What was staged counts from now on, and must not be added twice.
        added, part.adds = part.adds, []
        if added and not (yield from _reload_edges(loaded)):
            return False
    if ADDS in loaded.others:
        yield from add_staged(loaded.claim, lost)
        # The added tasks may have edges to this one.
        if not (yield from _reload_edges(loaded)):
            return False
    assert loaded.result is not None
    part.outcome = loaded.result
    # `result` has recorded how long the task ran and what it printed: record that only once.
    loaded.claim.fact = loaded.claim.fact._replace(ran_ms=-1, ended=0.0, printed=None)
    refusals = 0
    while refusals <= REFUSALS_MAX:
        if edges := part.edges:
            failpoints.reach("wide.between")
            chunk = edges[: _chunk_size(part)]
            if (yield from _deliver(me, part, chunk, allowance, taken, owed)):
                delivered = {prov for prov, _ in chunk}
                loaded.edges = [item for item in loaded.edges if item[0] not in delivered]
                refusals = 0
                continue
        else:
            failpoints.reach("wide.delivered")
            if not part.holds:  # else a retry needs them
                yield from _drop_spent(loaded)
            finished = yield from _finish(part)
            if finished is not None:
                return finished
        refusals += 1
        if not (yield from _reload_edges(loaded)):
            return False
    what = "its edges cannot be delivered" if part.edges else "it cannot be finished"
    raise TransactionRejected(f"{loaded.claim.task_path}: {what}")


def _fix_result(part: Part) -> Step[bool]:
    """Create `result`: the function never runs again, and the tasks that it added count."""
    loaded, claim = part.loaded, part.loaded.claim
    ops: list[Op] = [Check(claim.path), Create(f"{claim.task_path}/result", part.outcome)]
    if part.adds:
        counts = yield from stage(part)
        if counts is None:
            return False
        ops.append(counts)
    failpoints.reach("wide.fixing")
    answer = yield Multi(ops, {f"{claim.task_path}/result": part.fact})
    if isinstance(answer, Applied):
        loaded.result = part.outcome
        return True
    if answer.at == 1 and answer.reason is Reason.NODE_EXISTS:
        node = yield ReadData(f"{claim.task_path}/result")
        if node is not None and _is_ours(part, node.data):
            loaded.result = node.data
            return True
    elif answer.reason is not Reason.NO_NODE:
        raise rejected(f"storing the result of {claim.task_path}", answer)
    yield from drop_removed([claim])  # the claim was lost, or its plan is being removed
    return False


def _is_ours(part: Part, result: bytes) -> bool:
    """Whether an earlier copy of the transaction has stored `result`. If not, the holder of a lease
    has reported two outcomes through two services, and the first one counts."""
    return result == part.outcome


def _chunk_size(part: Part) -> int:
    per_edge = len(part.outcome) + 6 * (len(part.loaded.claim.task_path) + 110)
    return max(1, min(GROUP_OPS_MAX // 6, GROUP_BYTES_MAX // per_edge))


def _deliver(
    me: Registration,
    part: Part,
    edges: Sequence[tuple[str, Edge]],
    allowance: Callable[[], Allowance],
    taken: Callable[[list[Claim]], None],
    owed: Callable[[list[Dependent], str], None],
) -> Step[bool]:
    loaded, claim = part.loaded, part.loaded.claim
    ops: list[Op] = [Check(f"{claim.task_path}/result")]
    marks = DELIVERED not in loaded.others
    if marks:
        ops.append(Create(f"{claim.task_path}/{DELIVERED}"))
    places: list[tuple[Dependent, int]] = []
    argument = part.argument()
    for prov, edge in edges:
        ops += loaded.delivery_ops(prov, edge, argument)
        if loaded.counts(edge):
            places.append((edge.dependent(claim.plan), len(ops) - 2))
    pending = f"{me.claims_path}/{PENDING}{next(me.uids)}"
    named = [dependent for dependent, _ in places]
    ops.append(Create(pending, pending_bytes(named)))
    answer = yield Multi(ops)
    if isinstance(answer, Refused) and answer.reason is Reason.FULL:
        raise rejected(f"delivering the result of {claim.task_path}", answer)
    # If the claim is on that claims node, it is gone, too, which the next read of the task shows.
    is_own = claim.path.startswith(f"{me.claims_path}/")
    is_refused = isinstance(answer, Refused) and answer.reason is Reason.NO_NODE
    if not is_own and is_refused and answer.path == pending:
        raise WorkerGone(f"{me.claims_path} is gone: register again")
    if is_refused and isinstance(answer, Refused):
        loaded.tear(answer.path)
    if isinstance(answer, Applied):
        complete = [dependent for dependent, at in places if answer.results[at] == dependent.k]
    else:
        names = (yield ReadChildren(me.claims_path)) if answer.repeated else None
        if pending.rpartition("/")[2] not in (names or ()):
            return False
        complete = yield from still_complete(me, named)
    if marks:
        loaded.others.append(DELIVERED)
    try:
        published = yield from publish(me, complete, pending, allowance())
    except ServerFull:
        owed(complete, pending)
    else:
        taken(published.claims)
    return True


def _reload_edges(loaded: Loaded) -> Step[bool]:
    """Read which edges are left. Returns False if the task is finished or claimed by another."""
    task_path = loaded.claim.task_path
    both = (ReadChildren(task_path), ReadData(loaded.claim.path))
    children, claim = yield ReadMany(both, strict=True)
    if children is None or claim is None:
        yield from drop_removed([loaded.claim])
        return False
    reading = Reading(task_path, loaded.record, children)
    # Arguments and logs are not needed any more.
    reading.names = [name for name in reading.names if name.startswith("prov-")]
    yield from read_names([reading], [])
    if reading.damage:
        raise PayloadUndecodable(f"{task_path}: {reading.damage}")
    loaded.edges, loaded.owner, loaded.others = reading.edges, reading.owner, reading.others
    return True


def _drop_spent(loaded: Loaded) -> Step[None]:
    """Delete arguments, logs and staged definitions if they are too many for the last transaction.
    They are not needed, because the function never runs again."""
    claim = loaded.claim
    spent = [name for name in loaded.others if name.startswith(_SPENT)]
    size = len(loaded.result or b"") + len(spent) * (OP_OVERHEAD + len(claim.task_path) + 20)
    if len(spent) <= GROUP_OPS_MAX // 2 and size <= GROUP_BYTES_MAX:
        return
    for start in range(0, len(spent), GROUP_OPS_MAX):
        names = set(spent[start : start + GROUP_OPS_MAX])
        ops: list[Op] = [Check(claim.path), *(Delete(f"{claim.task_path}/{n}") for n in names)]
        if isinstance((yield Multi(ops)), Applied):
            loaded.others = [name for name in loaded.others if name not in names]


def _finish(part: Part) -> Step[bool | None]:
    """Delete the task. True: done. False: the claim is gone. None: it must be read again."""
    loaded, claim = part.loaded, part.loaded.claim
    answer = yield Multi([*loaded.release_ops(), *part.end_ops()], {part.ended_by: part.fact})
    if isinstance(answer, Applied):
        return True
    if answer.reason is Reason.FULL:
        raise rejected(f"ending {claim.task_path}", answer)
    if answer.path == claim.path and answer.reason is Reason.NO_NODE:
        return bool(answer.repeated)
    if claim.lacks(answer):
        return (yield from _finish(part))
    return None
