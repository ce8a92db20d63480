"""Register a worker, and clear the claims node of a worker that is gone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..errors import UNREACHABLE, TransactionRejected, ZooKeeperError
from . import failpoints
from .foreign import below, with_below
from .layout import PENDING, ClaimName, Entry, Paths, parse_claim
from .publish import still_full
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
    Refused,
    SetData,
    Step,
)
from .shared import REFUSALS_MAX, Registration, pending_dependents, rejected

#: How many claims one transaction releases.
RELEASES_PER_MULTI = 40


class Cleared(NamedTuple):
    """The result of clearing a claims node.

    `released` has the path of each released task, and the number that its next claim gets.
    `strange`: the claims node stays, because it holds something that zkplan did not make. `shut`:
    it stays with claims or records that an access list forbids to read, release or settle; for
    each, why.
    """

    released: list[tuple[str, int]]
    published: int = 0
    gone: bool = False
    strange: bool = False
    shut: Sequence[str] = ()


def register(
    paths: Paths, worker: str, data: bytes, uids: Iterator[str]
) -> Step[Registration | None]:
    """Create the ephemeral registration and the claims node of a worker. Returns None if the ID was
    used.

    Raises TransactionRejected, ServerFull.
    """
    me = Registration(paths, worker, uids)
    answer = yield Multi([Create(me.worker_path, data, ephemeral=True), Create(me.claims_path)])
    if isinstance(answer, Applied):
        return me
    if answer.reason is Reason.NO_NODE:
        raise ZooKeeperError(f"{paths.root} has no worker and claims node znodes: {answer.path}")
    if answer.reason is not Reason.NODE_EXISTS:
        raise rejected(f"registering worker {worker}", answer)
    return None  # an earlier copy, perhaps in an expired session: take a new ID


def unregister(me: Registration) -> Step[bool]:
    """Delete the registration and the empty claims node together. Returns False if claims are left
    on it."""
    names = yield ReadChildren(me.claims_path)
    ops: list[Op] = [
        Delete(f"{me.claims_path}/{name}") for name in names or () if name.startswith(PENDING)
    ]
    ops += [Delete(me.worker_path), Delete(me.claims_path)]
    answer = yield Multi(ops)
    if isinstance(answer, Applied):
        return True
    # Something is left on the claims node. Others clear it as soon as they see that the worker is
    # gone.
    yield from sign_off(me.paths, me.worker)
    return False


def sign_off(paths: Paths, worker: str) -> Step[bool]:
    """Delete the registration of a worker before its session ends. Returns False if it has none.

    Only a caller that knows that the worker's process is dead may do this. What the process sent
    last may still arrive. As after the end of the session, a claim is refused from now on, and a
    commit as soon as its claim is released.
    """
    answer = yield Multi([Delete(paths.worker(worker))])
    return isinstance(answer, Applied) or (answer.repeated and answer.reason is Reason.NO_NODE)


def orphaned_claims(paths: Paths) -> Step[tuple[list[str], list[str]]]:
    """Return the living workers, and the claims nodes whose worker is gone.

    Claims nodes are listed first. A registration and its claims node are created together, so a
    claims node without a worker belongs to one that is gone. If a lagging server shows fewer
    workers, the check in each clearing transaction refuses it. Only a registration with a claims
    node counts as a worker: a znode of somebody else would be left duties that it never does.
    """
    claims_nodes, workers = yield ReadMany(
        [ReadChildren(paths.claims), ReadChildren(paths.workers)]
    )
    living = set(workers or ())
    return sorted(living.intersection(claims_nodes or ())), sorted(set(claims_nodes or ()) - living)


def clear_claims(paths: Paths, worker: str) -> Step[Cleared]:
    """Release all claims and settle all pending records of a worker that is gone, then delete its
    claims node."""
    claims_node = paths.claims_of(worker)
    names = yield ReadChildren(claims_node)
    if names is None:
        return Cleared([], gone=True)
    failpoints.reach("clear.listed")
    # The same transaction proves that the worker is gone; an ephemeral cannot be created over it.
    guard: list[Op] = [Create(paths.worker(worker)), Delete(paths.worker(worker))]
    claims = [(name, parsed) for name in sorted(names) if (parsed := parse_claim(name)) is not None]
    released: list[tuple[str, int]] = []
    shut: list[str] = []
    for start in range(0, len(claims), RELEASES_PER_MULTI):
        chunk = claims[start : start + RELEASES_PER_MULTI]
        done = yield from _release(paths, claims_node, guard, chunk, shut)
        if done is None:
            return Cleared(released, shut=shut)
        released += done
    published = 0
    for name in sorted(names):
        if name.startswith(PENDING):
            try:
                count = yield from _settle_pending(paths, f"{claims_node}/{name}", guard)
            except UNREACHABLE:
                raise
            except ZooKeeperError as error:
                shut.append(str(error))
                continue
            if count is None:
                return Cleared(released, published, shut=shut)
            published += count
    if shut:
        return Cleared(released, published, shut=shut)
    answer = yield Multi([*guard, Delete(claims_node)])
    strange = not isinstance(answer, Applied) and answer.reason is Reason.NOT_EMPTY
    return Cleared(released, published, isinstance(answer, Applied), strange)


@dataclass(slots=True)
class _Release:
    """The release of one claim, while it is prepared.

    `end` is the entry that it makes, or None. `n` is the number in that entry.
    """

    claim: str
    owner: str
    has_owner: bool
    task: str
    n: int
    end: Create | Check | None
    #: Znodes that somebody else made below the claim or the mark.
    strange: list[str] = field(default_factory=list)

    @property
    def ops(self) -> list[Op]:
        ops: list[Op] = [Delete(path) for path in (*self.strange, self.claim)]
        if self.end is not None:
            # The check refuses the entry if the task was removed since it was read.
            ops.append(Check(self.task))
            if self.has_owner:
                ops.append(Delete(self.owner))
            ops.append(self.end)
        return ops


def _release(
    paths: Paths,
    claims_node: str,
    guard: list[Op],
    claims: list[tuple[str, ClaimName]],
    shut: list[str],
) -> Step[list[tuple[str, int]] | None]:
    """Release `claims`. Returns `Cleared.released`, or None if the worker is alive after all.

    Claims that an access list keeps from being released are left to a later clearing, and listed in
    `shut`.
    """
    todo = yield from _read_releases(paths, claims_node, claims, shut)
    refusals = 0
    while todo:
        ops, owners = list(guard), [-1, -1]
        for index, release in enumerate(todo):
            part = release.ops
            ops += part
            owners += [index] * len(part)
        answer = yield Multi(ops)
        if isinstance(answer, Applied):
            return [(release.task, release.n) for release in todo if release.end is not None]
        owner = owners[answer.at]
        if owner < 0:
            return None
        if answer.reason is Reason.NO_AUTH:
            shut.append(f"{answer.path}: {answer.reason.value}")
            del todo[owner]
            continue
        refusals += 1
        if refusals > REFUSALS_MAX:
            raise _in_the_way(answer)
        yield from _mend_release(todo, owner, answer)
    return []


def _read_releases(
    paths: Paths, claims_node: str, claims: list[tuple[str, ClaimName]], shut: list[str]
) -> Step[list[_Release]]:
    """The claims to release. `shut` gets those that may not be read, and why."""
    reads: list[ReadData | ReadChildren] = []
    for name, parsed in claims:
        path = paths.task(parsed.plan, parsed.task)
        reads += (
            ReadData(f"{claims_node}/{name}"),
            ReadData(path),
            ReadData(f"{path}/owner"),
            ReadData(f"{path}/started-{parsed.n}"),
        )
    todo: list[_Release] = []
    try:
        # Strict, because a claim that is deleted without an entry in its place loses a task.
        nodes = yield ReadMany(reads, strict=True)
    except UNREACHABLE:
        raise
    except ZooKeeperError as error:
        if len(claims) == 1:
            shut.append(str(error))
            return []
        for one in claims:  # the others must still be released
            todo += yield from _read_releases(paths, claims_node, [one], shut)
        return todo
    for index, (name, parsed) in enumerate(claims):
        claim, task, owner, started = nodes[4 * index : 4 * index + 4]
        if claim is None:
            continue
        path = paths.task(parsed.plan, parsed.task)
        end = None
        if task is not None:
            entry = _next_entry(claim.data, parsed, started is not None)
            end = Create(f"{paths.plan(parsed.plan)}/runnable/{entry.name}")
        todo.append(
            _Release(
                f"{claims_node}/{name}", f"{path}/owner", owner is not None, path, parsed.n + 1, end
            )
        )
    return todo


def _next_entry(claim: bytes, parsed: ClaimName, started: bool) -> Entry:
    rank, _, used = claim.decode("ascii", errors="replace").partition(".")
    # An attempt is used up only if the function is known to have started. Most tasks that a worker
    # has claimed when it dies have not started, and must not run out of attempts for that.
    a = (int(used) if used.isdecimal() and len(used) < 10 else 0) + started
    rank = rank if rank.isdecimal() and len(rank) == 4 else "5000"
    return Entry(rank, parsed.task, parsed.n + 1, a)


def _in_the_way(answer: Refused) -> TransactionRejected:
    return rejected("clearing a claims node", answer)


def _mend_release(todo: list[_Release], at: int, answer: Refused) -> Step[None]:
    release = todo[at]
    if answer.reason is Reason.NOT_EMPTY:
        # zkplan makes no znodes below claims and marks. Somebody else's must not stop the clearing.
        release.strange = yield from with_below(answer.path, release.strange)
    elif answer.path in release.strange:
        release.strange = []  # gone meanwhile
    elif answer.reason is Reason.NODE_EXISTS and isinstance(release.end, Create):
        release.end = Check(answer.path)  # made by somebody else: the entry that is wanted
    elif answer.reason is not Reason.NO_NODE:
        raise _in_the_way(answer)
    elif answer.path == release.claim:
        del todo[at]  # committed or released meanwhile
    elif answer.path == release.owner:
        release.has_owner = False
    else:
        release.end = None  # the task or its plan is gone: only the claim remains


def _settle_pending(paths: Paths, pending: str, guard: list[Op]) -> Step[int | None]:
    """Publish the tasks of a pending record that are at K. Returns None if the worker is alive
    after all.

    The record is read before the versions. So if a dependent is below K, its last delivery is still
    to come, and brings a pending record of its own.
    """
    node = yield ReadData(pending)
    if node is None:
        return 0
    nobody = Registration(paths, "", iter(()))
    named = list(dict.fromkeys(pending_dependents(node.data)))
    standing: set[str] = set()
    strange: list[str] = []
    for _ in range(REFUSALS_MAX):
        failpoints.reach("clear.pending")
        full = yield from still_full(nobody, named)
        ops: list[Op] = list(guard)
        for target in full:
            plan_path = paths.plan(target.plan)
            entry = f"{plan_path}/runnable/{target.entry.name}"
            ops.append(SetData(f"{plan_path}/task-{target.task}/ready", b"%d" % target.k, target.k))
            ops.append(Check(entry) if entry in standing else Create(entry))
        ops += [Delete(path) for path in (*strange, pending)]
        answer = yield Multi(ops)
        if isinstance(answer, Applied):
            return len(full)
        if answer.at < len(guard):
            return None
        if answer.reason is Reason.NOT_EMPTY:
            strange = yield from below(pending)
        elif answer.path == pending:
            return 0
        elif answer.path in standing:
            standing.discard(answer.path)
        elif answer.reason is Reason.NODE_EXISTS:
            standing.add(answer.path)  # made by somebody else: the entry that is wanted
        elif answer.path.endswith("/ready") or answer.path in strange:
            strange = []  # somebody published one of them meanwhile: read the versions again
        else:
            # The plan has no `runnable`, or an entry vanished: the plan's check publishes what is
            # left.
            named = [target for target in named if paths.plan(target.plan) not in answer.path]
    raise _in_the_way(answer)
