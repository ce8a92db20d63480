"""Leases: claims that last for a time, for programs without a session.

A lease is a claims node without a registration. It lasts from its last change, by the clock of the
server, for the time in its name. After that any worker may release its claims.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from .. import failpoints
from ..core.end_claims import Cleared, clear_claims
from ..core.load import read_all
from ..interference import skip_number
from ..layout import Paths, lease_name, parse_claim, parse_lease
from ..requests import (
    Applied,
    Check,
    Create,
    Multi,
    Node,
    Op,
    ReadChildren,
    ReadData,
    ReadMany,
    Reason,
    SetData,
    Step,
)
from ..transactions import Claim, Registration, claim_facts, rejected

#: How long a lease may last, in milliseconds.
LEASE_MS_MIN, LEASE_MS_MAX = 1_000, 3_600_000


class Lease(Registration):
    """Takes the place of a registration for claims under a lease.

    The transaction that makes the claims also makes the lease, so a lease is made once and gets no
    other claims. Its `owner` marks exist as long as the claims.
    """

    __slots__ = ()

    @property
    def worker_path(self) -> str:
        return self.claims_path

    @property
    def has_session(self) -> bool:
        return False

    @property
    def proof(self) -> Op:
        return Create(self.claims_path)


def new_lease(paths: Paths, lease_ms: int, random: str) -> Lease:
    """A lease of `lease_ms`; `random` are hexadecimal digits that no other lease has."""
    return Lease(
        paths, lease_name(lease_ms, random), iter(f"{number:x}" for number in range(1 << 30))
    )


class Renewed(NamedTuple):
    """A lease and the names of its claims; None if it has lapsed."""

    lease: str
    names: frozenset[str] | None


def renew(paths: Paths, leases: Iterable[str]) -> Step[list[Renewed]]:
    """Renew these leases, and read their claims.

    A lease that is gone stays gone. A lease whose time is over is renewed, too: a worker that has
    begun to release its claims is refused from now on, and claims already released are not named.
    """
    todo = list(dict.fromkeys(leases))
    standing = list(todo)
    while standing:
        failpoints.reach("lease.renew")
        answer = yield Multi([SetData(paths.claims_of(lease)) for lease in standing])
        if isinstance(answer, Applied):
            break
        if answer.reason is not Reason.NO_NODE:
            raise rejected("renewing leases", answer)
        del standing[answer.at]
    # Read after the write: these claims stood when the lease was renewed.
    held = yield ReadMany([ReadChildren(paths.claims_of(lease)) for lease in standing])
    names = dict(zip(standing, held, strict=True))
    return [Renewed(lease, _claims(names.get(lease))) for lease in todo]


def _claims(names: Sequence[str] | None) -> frozenset[str] | None:
    if names is None:
        return None
    return frozenset(name for name in names if parse_claim(name) is not None)


def claims_under(paths: Paths, wanted: Sequence[tuple[str, str]]) -> Step[list[Claim | None]]:
    """The claim for each lease and name in `wanted`; None if it is gone or under no lease."""
    known = [parse_claim(name) if parse_lease(lease) else None for lease, name in wanted]
    reads = [
        ReadData(f"{paths.claims_of(lease)}/{name}")
        for (lease, name), parsed in zip(wanted, known, strict=True)
        if parsed is not None
    ]
    nodes = iter((yield from read_all(reads)))
    found: list[Claim | None] = []
    for (lease, name), parsed in zip(wanted, known, strict=True):
        node: Node | None = next(nodes) if parsed is not None else None
        if parsed is None or node is None:
            found.append(None)
            continue
        facts = claim_facts(node.data)
        found.append(
            Claim(
                plan=parsed.plan,
                task=parsed.task,
                rank=facts.rank,
                n=parsed.n,
                a=facts.a,
                path=f"{paths.claims_of(lease)}/{name}",
                plan_path=paths.plan(parsed.plan),
                task_path=paths.task(parsed.plan, parsed.task),
                queue=facts.queue,
                permits=tuple(facts.all_permits(paths, parsed.plan)),
            )
        )
    return found


def log(claim: Claim, number: int, sealed: bytes) -> Step[str | int | None]:
    """Write the log entry `number` of this attempt, counted from 1. The version of the claim counts
    the entries, so each is written once and none is left out.

    Returns the name of its znode; the number of entries if `number` is not the next one; None if
    the claim is gone. Raises TransactionRejected, ServerFull.
    """
    ops: list[Op] = [
        SetData(claim.path, claim.data, number - 1),
        Create(f"{claim.task_path}/log-", sealed, sequence=True),
    ]
    while not isinstance(answer := (yield Multi(ops)), Applied):
        if answer.at == 0 and answer.reason is Reason.BAD_VERSION:
            node = yield ReadData(claim.path)
            return None if node is None else int(node.version)
        if answer.reason is Reason.NO_NODE:
            return None
        if answer.reason is not Reason.NODE_EXISTS:
            raise rejected(f"a log entry of {claim.task_path}", answer)
        yield from skip_number(claim.task_path)
    return str(answer.results[1].rpartition("/")[2])


def lease_s(lease: str) -> float:
    """How many seconds a renewal of that lease lasts."""
    return (parse_lease(lease) or 0) / 1000


def due_ms(lease: str, node: Node) -> int:
    """When a lease lapses, in wall-clock milliseconds of the server."""
    return node.modified_ms + (parse_lease(lease) or 0)


def expire(paths: Paths, lease: str, now_ms: Callable[[], float]) -> Step[Cleared | int]:
    """Release the claims of a lease whose time is over, like the claims of a worker that is gone.
    Before that time it does nothing, and returns when the lease lapses.

    `now_ms` must never be ahead of the server's clock. Each transaction checks the version at which
    the time was read, so a renewal in between refuses it.
    """
    path = paths.claims_of(lease)
    node = yield ReadData(path)
    if node is None:
        return Cleared([], gone=True)
    due = due_ms(lease, node)
    if due > now_ms():
        return due
    failpoints.reach("lease.expire")
    return (yield from clear_claims(paths, lease, [Check(path, node.version)]))
