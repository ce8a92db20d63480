"""Publish tasks whose last argument has arrived: make them runnable, or claim them at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...errors import ZkplanError
from .. import failpoints
from ..interference import LateCopies, folder_restored
from ..requests import Applied, Check, Delete, Op, ReadData, ReadMany, Reason, Step
from ..transactions import (
    GUARD,
    NO_ALLOWANCE,
    Allowance,
    Claim,
    Dependent,
    Draft,
    Registration,
    rejected,
)
from .claim import claim_ops, new_claim, send_taking
from .edges import publish_ops
from .load import FirstReads

_PENDING = -2


class Published(NamedTuple):
    """The claims that this worker made while it published, and the number of refusals. `stopped`:
    the guard was refused, and the rest was not published."""

    claims: list[Claim]
    refusals: int = 0
    read: FirstReads | None = None
    stopped: bool = False


def publish(
    me: Registration,
    dependents: Sequence[Dependent],
    pending: str,
    allowance: Allowance,
    guard: Sequence[Op] = (),
) -> Step[Published]:
    """Publish `dependents` and delete `pending` in one transaction that starts with `guard`.

    Publishing is a compare-and-set of `ready` from K to K+1: only one of several workers succeeds.
    """
    rest, refusals = list(dependents), 0
    #: Why a dependent cannot be published: then the pending record stays.
    shut: ZkplanError | None = None
    standing: set[str] = set()
    late = LateCopies[list[Claim]](me.claims_path)
    while rest or (pending and shut is None):
        failpoints.reach("publish.before")
        draft, claims = _draft(me, rest, allowance, standing, guard)
        if pending and shut is None:
            draft.ops.append(Delete(pending))
            draft.own(_PENDING)
        answer, read = yield from send_taking(me, draft.ops, claims)
        if isinstance(answer, Applied):
            if shut is not None:
                break
            return Published(claims, refusals, read)
        refusals += 1
        before = yield from late.applied(answer, [claim.name for claim in claims], claims)
        if before is not None:
            # That copy deleted the pending record, too. `read` was answered before it.
            return Published(before, refusals)
        if answer.reason is Reason.FULL and claims:
            allowance = NO_ALLOWANCE  # an entry takes less room than a claim and its mark
            continue
        owner = draft.owners[answer.at]
        if owner == GUARD and guard:
            return Published([], refusals, stopped=True)
        if owner == GUARD:
            allowance = NO_ALLOWANCE
        elif owner == _PENDING and answer.reason is Reason.NOT_EMPTY:
            # Foreign znodes that cannot be deleted. The error would hide claims, so make none.
            shut, allowance = rejected(f"settling {pending}", answer), NO_ALLOWANCE
        elif owner == _PENDING:
            pending = ""
            rest = yield from still_complete(me, rest)
        elif answer.path.startswith(me.claims_path) or answer.path.endswith("/owner"):
            allowance = NO_ALLOWANCE  # the claims node is gone, or another worker's mark exists
        elif answer.path in standing:
            standing.discard(answer.path)  # claimed meanwhile
        elif answer.reason in (Reason.BAD_VERSION, Reason.NO_NODE):
            # Somebody else published it, its plan was removed, or the folder was deleted by hand.
            if not (yield from folder_restored(answer)):
                del rest[owner]
        elif answer.reason is Reason.NODE_EXISTS:
            standing.add(answer.path)  # somebody else made the entry, so it is used
        else:
            target = rest.pop(owner)
            what = f"publishing task-{target.task} of {me.paths.plan(target.plan)}"
            shut, allowance = rejected(what, answer), NO_ALLOWANCE
    if shut is not None:
        raise shut
    return Published([], refusals)


def _draft(
    me: Registration,
    rest: list[Dependent],
    allowance: Allowance,
    standing: set[str],
    guard: Sequence[Op],
) -> tuple[Draft, list[Claim]]:
    """The transaction without the pending record, and the claims that it makes."""
    draft, claims = Draft(), list[Claim]()
    draft.ops += guard
    draft.own(GUARD)
    guarded: dict[str, int] = {}
    for index, target in enumerate(rest):
        plan_path = me.paths.plan(target.plan)
        inherits = allowance.takes(plan_path, target.queue, len(claims))
        ops = publish_ops(plan_path, target, entry=not inherits)
        if inherits:
            of_task = target.rank, target.task, target.n, 0, target.queue
            claim = new_claim(me, target.plan, *of_task)
            claims.append(claim)
            guarded[plan_path] = allowance.versions[plan_path]
            ops += claim_ops(me, claim)
        elif ops[1].path in standing:
            ops[1] = Check(ops[1].path)
        draft.ops += ops
        draft.own(index)
    draft.guard(me, guarded)
    return draft, claims


def still_complete(me: Registration, dependents: Sequence[Dependent]) -> Step[list[Dependent]]:
    """The `dependents` whose `ready` is at K: complete and not published yet."""
    if not dependents:
        return []
    nodes = yield ReadMany([ReadData(f"{me.paths.task(d.plan, d.task)}/ready") for d in dependents])
    return [
        d
        for d, node in zip(dependents, nodes, strict=True)
        if node is not None and node.version == d.k
    ]
