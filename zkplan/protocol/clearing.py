"""Clear the claims node of a worker that is gone: release its claims, publish what it owes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..errors import ZkplanError
from . import failpoints
from .ending import ENDINGS_PER_MULTI, Ending, end_claims
from .layout import PENDING, SERVICE, ClaimName, Entry, Paths, entry_path, parse_claim, parse_lease
from .publish import Published, publish, still_full
from .requests import (
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
    Step,
)
from .shared import (
    NO_ALLOWANCE,
    Registration,
    ask,
    claim_facts,
    or_error,
    pending_dependents,
)


class Cleared(NamedTuple):
    """The result of clearing a claims node.

    `released` has the path of each released task, and the number that its next claim gets.
    `strange`: the claims node stays, because it holds something that zkplan did not make. `shut`:
    it stays with claims or records that an access list forbids to read, release or settle; for
    each, why.
    """

    released: list[tuple[str, int]]
    gone: bool = False
    strange: bool = False
    shut: Sequence[str] = ()


class ClaimsNodes(NamedTuple):
    """The living workers, the claims nodes whose worker is gone, and all leases."""

    living: list[str]
    vacant: list[str]
    leases: list[str]


def orphaned_claims(paths: Paths, watch: bool = False) -> Step[ClaimsNodes]:
    """Return the living workers, the claims nodes whose worker is gone, and the leases.

    Claims nodes are listed first. A registration and its claims node are created together, so a
    claims node without a worker belongs to one that is gone. If a lagging server shows fewer
    workers, the check in each clearing transaction refuses it. Only a registration with a claims
    node counts as a worker: a znode of somebody else would be left duties that it never does.
    Leases have no worker, and end by time alone (`leases`).
    """
    if watch:
        claims_nodes = yield ReadChildren(paths.claims, watch=True)
        workers = yield ReadChildren(paths.workers, watch=True)
    else:
        claims_nodes, workers = yield ReadMany(
            [ReadChildren(paths.claims), ReadChildren(paths.workers)]
        )
    living = set(workers or ())
    leases = {name for name in claims_nodes or () if parse_lease(name) is not None}
    found = set(claims_nodes or ()) - leases
    # A service is registered, and runs nothing: no share of the work is left to it.
    workers_here = {name for name in living & found if not name.startswith(SERVICE)}
    return ClaimsNodes(sorted(workers_here), sorted(found - living), sorted(leases))


def clear_claims(paths: Paths, worker: str, guard: Sequence[Op] = ()) -> Step[Cleared]:
    """Release all claims and settle all pending records of a worker that is gone, then delete its
    claims node.

    `guard` starts each transaction, and proves that it is gone; by default that it is not
    registered.
    """
    gone = Registration(paths, worker, iter(()))
    names = yield ReadChildren(gone.claims_path)
    if names is None:
        return Cleared([], gone=True)
    failpoints.reach("clear.listed")
    # The same transaction proves that the worker is gone; an ephemeral cannot be created over it.
    guard = guard or [Create(gone.worker_path), Delete(gone.worker_path)]
    claims = [(name, parsed) for name in sorted(names) if (parsed := parse_claim(name)) is not None]
    released: list[tuple[str, int]] = []
    shut: list[str] = []
    for start in range(0, len(claims), ENDINGS_PER_MULTI):
        chunk = yield from _releases(gone, claims[start : start + ENDINGS_PER_MULTI], shut)
        is_gone = yield from end_claims([ending for ending, _ in chunk], guard)
        released += [(ending.task, n) for ending, n in chunk if ending.held]
        shut += [str(ending.error) for ending, _ in chunk if ending.error is not None]
        if not is_gone:
            return Cleared(released, shut=shut)
    for name in sorted(name for name in names if name.startswith(PENDING)):
        settled = yield from or_error(_settle(gone, f"{gone.claims_path}/{name}", guard))
        if isinstance(settled, ZkplanError):
            shut.append(str(settled))
        elif settled.stopped:
            return Cleared(released, shut=shut)
    if shut:
        return Cleared(released, shut=shut)
    answer = yield Multi([*guard, Delete(gone.claims_path)])
    strange = not isinstance(answer, Applied) and answer.reason is Reason.NOT_EMPTY
    return Cleared(released, isinstance(answer, Applied), strange)


def _releases(
    gone: Registration, claims: list[tuple[str, ClaimName]], shut: list[str]
) -> Step[list[tuple[Ending, int]]]:
    """How each claim ends, and the number that its task's next claim gets.

    `shut` gets why some may not be read; a later clearing releases these.
    """
    reads: list[ReadData | ReadChildren] = []
    for name, parsed in claims:
        path = gone.paths.task(parsed.plan, parsed.task)
        parts = (path, f"{path}/owner", f"{path}/started-{parsed.n}")
        reads += [ReadData(f"{gone.claims_path}/{name}"), *map(ReadData, parts)]
    # Strict, because a claim that is deleted without an entry in its place loses a task.
    nodes = yield from or_error(ask(ReadMany(reads, strict=True)))
    found: list[tuple[Ending, int]] = []
    if isinstance(nodes, ZkplanError):
        if len(claims) == 1:
            shut.append(str(nodes))
            return []
        for one in claims:  # the others must still be released
            found += yield from _releases(gone, [one], shut)
        return found
    for index, (name, parsed) in enumerate(claims):
        claim, task, owner, started = nodes[4 * index : 4 * index + 4]
        if claim is None:
            continue
        path, then = gone.paths.task(parsed.plan, parsed.task), list[Op]()
        facts = claim_facts(claim.data)
        if task is not None:
            # An attempt is used up only if the function is known to have started. Most tasks that a
            # worker has claimed when it dies have not started, and must not run out of attempts.
            entry = Entry(facts.rank, parsed.task, parsed.n + 1, facts.a + (started is not None))
            # The check refuses the entry if the task was removed since it was read.
            plan_path = gone.paths.plan(parsed.plan)
            then = [Check(path), Create(entry_path(plan_path, facts.queue, entry))]
        permits = facts.permit_paths(gone.paths, parsed.plan)
        ending = Ending(
            f"{gone.claims_path}/{name}", path, then, owner is not None, permits=permits
        )
        found.append((ending, parsed.n + 1))
    return found


def _settle(gone: Registration, pending: str, guard: Sequence[Op]) -> Step[Published]:
    """Publish the tasks of a pending record that are at K.

    The record is read before the versions. So if a dependent is below K, its last delivery is still
    to come, and brings a pending record of its own.
    """
    node = yield ReadData(pending)
    if node is None:
        return Published([])
    failpoints.reach("clear.pending")
    full = yield from still_full(gone, list(dict.fromkeys(pending_dependents(node.data))))
    return (yield from publish(gone, full, pending, NO_ALLOWANCE, guard))
