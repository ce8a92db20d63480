"""Publish: make dependents runnable whose last edge was delivered, or claim them at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..errors import TransactionRejected
from . import failpoints
from .claim import new_claim, send_taking, take_ops
from .load import FirstReads
from .requests import (
    Applied,
    Check,
    Create,
    Delete,
    Op,
    ReadChildren,
    ReadData,
    ReadMany,
    Reason,
    SetData,
    Step,
)
from .shared import NO_DRIVE, Claim, Dependent, Drive, Registration, rejected

_GUARD, _PENDING = -1, -2


class Published(NamedTuple):
    """The claims that this worker made while publishing; `refusals` counts refused transactions."""

    claims: list[Claim]
    refusals: int = 0
    read: FirstReads | None = None


def publish(
    me: Registration, dependents: Sequence[Dependent], pending: str, drive: Drive
) -> Step[Published]:
    """Publish `dependents` and settle `pending`, in one transaction.

    Publishing is a compare-and-set of `ready` from K to K+1. Only one who tries it wins, so another
    worker that believes this one to be dead does no harm.
    """
    rest = list(dependents)
    refusals = 0
    #: Why one of them cannot be published; the others are, and the record stays for it.
    shut: TransactionRejected | None = None
    standing: set[str] = set()
    while rest or (pending and shut is None):
        failpoints.reach("publish.before")
        record = pending if shut is None else ""
        ops, owners, claims = _draft(me, rest, drive, standing, record)
        answer, read = yield from send_taking(me, ops, claims)
        if isinstance(answer, Applied):
            if shut is not None:
                break
            return Published(claims, refusals, read)
        refusals += 1
        if answer.repeated and claims:
            names = (yield ReadChildren(me.claims_path)) or ()
            if claims[0].name in names:
                return Published(claims, refusals, read)
        if answer.reason is Reason.FULL and claims:
            drive = NO_DRIVE  # an entry takes less room than a claim and its mark
            continue
        owner = owners[answer.at]
        if owner == _GUARD:
            drive = NO_DRIVE
        elif owner == _PENDING:
            pending = ""
            rest = yield from still_full(me, rest)
        elif answer.path.startswith(me.claims_path):
            drive = NO_DRIVE  # the claims node is gone: nothing can be claimed on it
        elif answer.path in standing:
            standing.discard(answer.path)  # taken meanwhile
        elif answer.reason in (Reason.BAD_VERSION, Reason.NO_NODE):
            # Somebody else published it, or its plan was removed.
            del rest[owner]
        elif answer.reason is Reason.NODE_EXISTS and answer.path.endswith("/owner"):
            drive = NO_DRIVE
        elif answer.reason is Reason.NODE_EXISTS:
            standing.add(answer.path)  # made by somebody else: the entry that was wanted
        else:
            target = rest.pop(owner)
            what = f"publishing task-{target.task} of {me.paths.plan(target.plan)}"
            shut, drive = rejected(what, answer), NO_DRIVE
    if shut is not None:
        raise shut
    return Published([], refusals)


def _draft(
    me: Registration, rest: list[Dependent], drive: Drive, standing: set[str], pending: str
) -> tuple[list[Op], list[int], list[Claim]]:
    """(operations, the dependent that each belongs to, claims) of one transaction."""
    ops: list[Op] = []
    owners: list[int] = []
    claims: list[Claim] = []
    guarded: set[str] = set()
    for index, target in enumerate(rest):
        plan_path = me.paths.plan(target.plan)
        ready = f"{plan_path}/task-{target.task}/ready"
        part: list[Op] = [SetData(ready, b"%d" % target.k, target.k)]
        if len(claims) < drive.capacity and plan_path in drive.versions:
            claim = new_claim(me, target.plan, target.rank, target.task, 0, 0)
            claims.append(claim)
            guarded.add(plan_path)
            part += take_ops(me, claim)
        else:
            entry = f"{plan_path}/runnable/{target.entry.name}"
            part.append(Check(entry) if entry in standing else Create(entry))
        ops += part
        owners += [index] * len(part)
    if guarded:
        checks: list[Op] = [Check(me.worker_path)]
        checks += [Check(f"{path}/ready", drive.versions[path]) for path in sorted(guarded)]
        ops[:0] = checks
        owners[:0] = [_GUARD] * len(checks)
    if pending:
        ops.append(Delete(pending))
        owners.append(_PENDING)
    return ops, owners, claims


def still_full(me: Registration, dependents: Sequence[Dependent]) -> Step[list[Dependent]]:
    """Those of `dependents` that are at K: complete and not published yet."""
    if not dependents:
        return []
    nodes = yield ReadMany([ReadData(f"{me.paths.task(d.plan, d.task)}/ready") for d in dependents])
    return [
        d
        for d, node in zip(dependents, nodes, strict=True)
        if node is not None and node.version == d.k
    ]
