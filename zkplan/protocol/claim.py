"""Claim: take runnable tasks in one transaction, without those that another worker took first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..errors import ZkplanError
from . import failpoints
from .layout import DEFAULT_QUEUE, parse_entry, queue_path
from .load import FirstReads, first_reads
from .requests import (
    Applied,
    Await,
    Create,
    Delete,
    Multi,
    Op,
    ReadChildren,
    ReadData,
    ReadMany,
    Reason,
    Refused,
    Send,
    Step,
)
from .shared import GUARD, Claim, Draft, Registration, ask, or_error, rejected

#: The most claims whose tasks are read together with the transaction that makes them.
READ_BEHIND_MAX = 16


class Claimed(NamedTuple):
    """The result of a claim: the claims that were made, and what to do next.

    `plan_changed`: forget the plan's candidates. `worker_gone`: register again. `barred` are
    entries that cannot be claimed because of somebody else's znodes. `no_room`: ZooKeeper has no
    room for a claim.
    """

    claims: list[Claim]
    conflicts: int = 0
    plan_changed: bool = False
    worker_gone: bool = False
    read: FirstReads | None = None
    barred: tuple[str, ...] = ()
    no_room: ZkplanError | None = None


def new_claim(
    me: Registration, plan: str, rank: str, task: str, n: int, a: int, queue: str = DEFAULT_QUEUE
) -> Claim:
    paths = me.paths
    return Claim(
        plan=plan,
        task=task,
        rank=rank,
        n=n,
        a=a,
        path=paths.claim(me.worker, plan, task, n, next(me.uids)),
        plan_path=paths.plan(plan),
        task_path=paths.task(plan, task),
        queue=queue,
    )


def take_ops(me: Registration, claim: Claim, *, owner_stands: bool = False) -> list[Op]:
    """The operations that create the claim and its `owner` mark, and replace the mark of a dead
    session."""
    owner = claim.task_path + "/owner"
    ops: list[Op] = [Create(claim.path, claim.data)]
    if owner_stands:
        ops.append(Delete(owner))
    ops.append(Create(owner, f"{me.worker} {claim.n}".encode(), ephemeral=True))
    return ops


def stands_any(claims: Sequence[Claim], names: Sequence[str] | None) -> bool:
    """Whether a transaction was applied that made all of `claims`, by the names on the claims node.

    An operator may have taken some of them since. Where all were taken, nothing is left to do.
    """
    standing = set(names or ())
    return any(claim.name in standing for claim in claims)


def send_taking(
    me: Registration, ops: list[Op], claims: list[Claim]
) -> Step[tuple[Applied | Refused, FirstReads | None]]:
    """Send a transaction that makes `claims` and, right behind it, the first reads of their tasks.

    Requests of one session are executed in order, so the reads see what the transaction did. For a
    few claims only: many are about throughput, and refused more often.
    """
    if not 0 < len(claims) <= READ_BEHIND_MAX:
        return (yield Multi(ops)), None
    sent = yield Send(Multi(ops))
    reading = yield Send(ReadMany(first_reads(claims), strict=True))
    answer = yield Await(sent)
    answers = yield from or_error(ask(Await(reading)))
    # The claims stand, even if something cannot be read: loading them will meet the same error.
    return answer, None if isinstance(answers, ZkplanError) else answers


def claim(
    me: Registration,
    plan: str,
    ready_version: int,
    names: list[str],
    queue: str = DEFAULT_QUEUE,
) -> Step[Claimed]:
    """Claim the entries `names` of one queue of a plan at once. Entries that others took are
    dropped.

    S9: the version of the plan's `ready` is checked, so nothing is claimed after a pause. L1: the
    worker's own registration is checked, or a claim could be released and made again for ever.
    """
    plan_path = me.paths.plan(plan)
    runnable = queue_path(plan_path, queue)
    wanted = [
        (name, new_claim(me, plan, entry.rank, entry.task, entry.n, entry.a, queue))
        for name in names
        if (entry := parse_entry(name)) is not None
    ]
    conflicts = 0
    standing: set[str] = set()
    orphans: list[str] = []
    barred: list[str] = []
    claimed: list[Claim] = []
    read: FirstReads | None = None
    while wanted:
        draft = _draft(me, runnable, wanted, standing)
        draft.guard(me, {plan_path: ready_version})
        failpoints.reach("claim.before")
        answer, read = yield from send_taking(me, draft.ops, [made for _, made in wanted])
        if isinstance(answer, Applied):
            failpoints.reach("claim.made")
            claimed = [made for _, made in wanted]
            break
        if answer.repeated and stands_any(
            [made for _, made in wanted], (yield ReadChildren(me.claims_path))
        ):
            # The first copy was applied: our claims have unique names, and the session is the same.
            claimed = [made for _, made in wanted]
            break
        if answer.reason is Reason.FULL:
            full = rejected(f"claiming tasks of {plan_path}", answer)
            return Claimed([], conflicts, no_room=full)
        owner = draft.owners[answer.at]
        if answer.path == me.worker_path or answer.path.startswith(me.claims_path + "/"):
            return Claimed([], conflicts, worker_gone=True)
        if owner == GUARD:
            return Claimed([], conflicts, plan_changed=True)
        name = wanted[owner][0]
        at_owner = answer.path.endswith("/owner")
        if answer.reason is Reason.NODE_EXISTS and at_owner:
            standing.add(name)
        elif answer.reason is Reason.NO_NODE and at_owner and name in standing:
            standing.discard(name)
        elif answer.reason is Reason.NO_NODE:
            if at_owner:
                orphans.append(name)
            before = len(wanted)
            del wanted[owner]
            wanted = yield from _still_there(runnable, wanted)
            conflicts += before - len(wanted)
        elif answer.reason in (Reason.NOT_EMPTY, Reason.EPHEMERAL_PARENT):
            # Children below the entry or the mark, or an ephemeral task: only this entry.
            barred.append(name)
            del wanted[owner]
        else:
            raise rejected(f"claiming {name} of {plan_path}", answer)
    yield from _drop_orphans(runnable, orphans)
    return Claimed(claimed, conflicts, read=read if claimed else None, barred=tuple(barred))


def _drop_orphans(runnable: str, names: list[str]) -> Step[None]:
    """Delete entries without a task (somebody else broke S6), which could never be claimed.

    A task number never comes back.
    """
    for name in names:
        yield Multi([Delete(f"{runnable}/{name}")])


def _draft(
    me: Registration, runnable: str, wanted: list[tuple[str, Claim]], standing: set[str]
) -> Draft:
    draft = Draft()
    for index, (name, made) in enumerate(wanted):
        draft.ops.append(Delete(f"{runnable}/{name}"))
        draft.ops += take_ops(me, made, owner_stands=name in standing)
        draft.own(index)
    return draft


def _still_there(runnable: str, wanted: list[tuple[str, Claim]]) -> Step[list[tuple[str, Claim]]]:
    """Those of `wanted` that nobody has taken yet.

    If one was taken, others may be, too. To find them by one refused transaction after another
    would keep this worker from all other work.
    """
    if not wanted:
        return []
    nodes = yield ReadMany([ReadData(f"{runnable}/{name}") for name, _ in wanted])
    return [item for item, node in zip(wanted, nodes, strict=True) if node is not None]
