"""End claims without a result: after a failure, by a hand-back, or because the worker is gone.

Each way takes a new N: if the name of an entry were used again, a late copy of an old claim would
be applied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...errors import ZkplanError
from .. import failpoints
from ..interference import folder_restored, skip_number
from ..layout import (
    DELIVERED,
    PENDING,
    SERVICE,
    ClaimName,
    Entry,
    Paths,
    delayed_name,
    entry_path,
    parse_claim,
    parse_lease,
)
from ..records import Dead
from ..requests import (
    NO_FACT,
    Applied,
    Check,
    Create,
    Delete,
    Fact,
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
from ..transactions import (
    GUARD,
    NO_ALLOWANCE,
    REFUSALS_MAX,
    Claim,
    Draft,
    Registration,
    ask,
    children_watched,
    claim_facts,
    or_error,
    pending_dependents,
    rejected,
)
from .publish import Published, publish, still_complete

#: How many claims one transaction ends.
ENDINGS_PER_MULTI = 40


@dataclass(slots=True)
class Ending:
    """The end of one claim. `then` replaces the claim, and is empty if the task is gone.

    `has_owner`: the `owner` mark exists. Afterwards `held` says whether the claim existed until its
    end, and `error` why it still exists.
    """

    claim: str
    task: str
    then: list[Op]
    has_owner: bool = True
    held: bool = False
    error: ZkplanError | None = None
    refusals: int = 0
    permits: Sequence[str] = ()
    fact: Fact = NO_FACT

    @property
    def ops(self) -> list[Op]:
        ops: list[Op] = [Delete(self.claim)]
        if self.has_owner and self.then:
            ops.append(Delete(f"{self.task}/owner"))
        ops += map(Delete, self.permits)
        return ops + self.then


def end_claims(endings: Sequence[Ending], guard: Sequence[Op] = ()) -> Step[bool]:
    """End these claims in as few transactions as refusals allow. `guard` starts each transaction.

    Returns False if the guard was refused. After a lost answer nothing needs to be read: both
    copies leave the tasks in the same state.
    """
    repeated = False
    for start in range(0, len(endings), ENDINGS_PER_MULTI):
        todo = list(endings[start : start + ENDINGS_PER_MULTI])
        while todo:
            draft = Draft()
            draft.ops += guard
            draft.own(GUARD)
            for index, ending in enumerate(todo):
                draft.ops += ending.ops
                draft.facts[ending.claim] = ending.fact
                draft.own(index)
            answer = yield draft.multi
            if isinstance(answer, Applied):
                for ending in todo:
                    ending.held = bool(ending.then)
                break
            owner = draft.owners[answer.at]
            if owner == GUARD:
                return False
            repeated = repeated or answer.repeated
            if not (yield from _goes_on(todo[owner], answer, repeated)):
                del todo[owner]
    return True


def _goes_on(ending: Ending, answer: Refused, repeated: bool) -> Step[bool]:
    """Learn from a refusal. Returns False if the ending needs no more tries."""
    missing = answer.reason is Reason.NO_NODE
    ending.refusals += 1
    if ending.refusals > REFUSALS_MAX:
        ending.error = rejected(f"ending a claim of {ending.task}", answer)
    elif missing and answer.path == ending.claim:
        ending.held = repeated and bool(ending.then)
        return False
    elif missing and answer.path == f"{ending.task}/owner":
        ending.has_owner = False
    elif missing and answer.path in ending.permits:
        ending.permits = [path for path in ending.permits if path != answer.path]
    elif missing and (yield from folder_restored(answer)):
        pass  # without the folder the claim would end, and the task be in no index
    elif missing:
        ending.then = []  # the task or its plan was removed, so only the claim itself is left
    elif answer.reason is Reason.NODE_EXISTS and answer.path.endswith("/log-"):
        yield from skip_number(ending.task)
    elif answer.reason is Reason.NODE_EXISTS:
        ending.then = [_over(op) if op.path == answer.path else op for op in ending.then]
    else:
        ending.error = rejected(f"ending a claim of {ending.task}", answer)
    return ending.error is None


def _over(made: Op) -> Op:
    """Use a znode that somebody else made: only the holder of the claim makes these names, and it
    makes each once."""
    data = getattr(made, "data", b"")
    return SetData(made.path, data) if data else Check(made.path)


def _ending(claim: Claim, then: list[Op], log: bytes) -> Ending:
    logs: list[Op] = [Create(f"{claim.task_path}/log-", log, sequence=True)] if log else []
    permits = [*filter(None, claim.permits)]
    return Ending(claim.path, claim.task_path, logs + then, permits=permits, fact=claim.fact)


def _end(endings: list[Ending]) -> Step[int]:
    """Returns how many claims were still held. Raises TransactionRejected if one cannot be ended;
    the others are ended."""
    yield from end_claims(endings)
    for ending in endings:
        if ending.error is not None:
            raise ending.error
    return sum(ending.held for ending in endings)


def fail_again(
    claim: Claim, log: bytes, due_ms: int | None, later: str, delay_ms: int = 0
) -> Step[bool]:
    """End a failed attempt: the task is runnable again, at once or at `due_ms`.

    `due_ms` is by the wall clock of this machine. With `delay_ms`, workers whose clocks are behind
    this one do not wait too long. A worker whose clock is ahead makes the task runnable too early.
    """
    entry = Entry(claim.rank, claim.task, claim.n + 1, claim.a + 1)
    if due_ms is None:
        then: Op = Create(entry_path(claim.plan_path, claim.queue, entry))
    else:
        delay = b"%d" % delay_ms if delay_ms else b""
        then = Create(f"{later}/{delayed_name(due_ms, claim.plan, entry, claim.queue)}", delay)
    return bool((yield from _end([_ending(claim, [then], log)])))


def fail_for_good(
    claim: Claim, failure: bytes, dead: Dead, *, has_result: bool = False
) -> Step[bool]:
    """Make a task dead: it is out of attempts, and keeps its edges for a retry. `has_result`: an
    operator has decided the failure by a `result`, which is deleted now."""
    then: list[Op] = []
    if has_result:
        then = [Delete(f"{claim.task_path}/result"), *undelivered_ops(claim.task_path)]
    then += [
        Create(f"{claim.plan_path}/dead/{claim.task}", dead.to_bytes()),
        Create(f"{claim.plan_path}/results/{claim.task}", failure),
    ]
    return bool((yield from _end([_ending(claim, then, failure)])))


def undelivered_ops(task_path: str) -> list[Op]:
    """Prove that the task has no mark `delivered`.

    Another worker may have delivered its `result` since it was read. A retry that found the mark
    would take its own outcome for delivered, and not keep it.
    """
    mark = f"{task_path}/{DELIVERED}"
    return [Create(mark), Delete(mark)]


def postpone(claim: Claim, due_ms: int, later: str) -> Step[bool]:
    """Hand back a task that may not run before `due_ms` by the server's clock. That uses up no
    attempt."""
    name = delayed_name(due_ms, claim.plan, claim.next_entry, claim.queue)
    return bool((yield from _end([_ending(claim, [Create(f"{later}/{name}")], b"")])))


def hand_back(claims: Sequence[Claim], log: bytes = b"") -> Step[int]:
    """Hand claims back, which uses up no attempt. Returns how many were still held."""
    entries = [entry_path(claim.plan_path, claim.queue, claim.next_entry) for claim in claims]
    endings = [
        _ending(claim, [Create(entry)], log) for claim, entry in zip(claims, entries, strict=True)
    ]
    return (yield from _end(endings))


# ---- Clear the claims node of a worker that is gone: release its claims, publish its dependents.


class Cleared(NamedTuple):
    """The result of clearing a claims node.

    `released` has the path of each released task and the N of its next claim. `strange`: the claims
    node stays, because somebody made a znode below it. `shut` has a reason for each claim or record
    that cannot be released or settled, such as an access list: then the claims node stays, too.
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
    """List the living workers, the claims nodes whose worker is gone, and the leases.

    Claims nodes are listed first. A registration is created with its claims node, so a claims node
    without a worker belongs to one that is gone. If a lagging server shows fewer workers, a check
    refuses each transaction that clears. A znode that somebody else made under `workers` has no
    claims node, so it gets no duties.
    """
    if watch:
        claims_nodes = yield from children_watched(paths.claims)
        workers = yield from children_watched(paths.workers)
    else:
        claims_nodes, workers = yield ReadMany(
            [ReadChildren(paths.claims), ReadChildren(paths.workers)]
        )
    living = set(workers or ())
    leases = {name for name in claims_nodes or () if parse_lease(name) is not None}
    found = set(claims_nodes or ()) - leases
    # A service runs nothing, so it gets no share of the work.
    workers_here = {name for name in living & found if not name.startswith(SERVICE)}
    return ClaimsNodes(sorted(workers_here), sorted(found - living), sorted(leases))


def clear_claims(paths: Paths, worker: str, guard: Sequence[Op] = ()) -> Step[Cleared]:
    """Release all claims of a worker that is gone, settle its pending records, and delete its
    claims node. `guard` starts each transaction, and proves that the worker is gone; by default,
    that it is not registered."""
    gone = Registration(paths, worker, iter(()))
    names = yield ReadChildren(gone.claims_path)
    if names is None:
        return Cleared([], gone=True)
    failpoints.reach("clear.listed")
    # Refused while the registration exists.
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
    """How each claim ends, and the N of the task's next claim. `shut` gets the reason for each
    claim that cannot be read: a later clearing releases that claim."""
    reads: list[ReadData | ReadChildren] = []
    for name, parsed in claims:
        path = gone.paths.task(parsed.plan, parsed.task)
        parts = (path, f"{path}/owner", f"{path}/started-{parsed.n}")
        reads += [ReadData(f"{gone.claims_path}/{name}"), *map(ReadData, parts)]
    # Strict: to delete a claim without an entry in its place would lose the task.
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
            # Most tasks that a lost worker had claimed have not started. They must not run out of
            # attempts, so an attempt is used up only if the function is known to have started.
            entry = Entry(facts.rank, parsed.task, parsed.n + 1, facts.a + (started is not None))
            # No entry without a task: it may have been removed since it was read.
            plan_path = gone.paths.plan(parsed.plan)
            then = [Check(path), Create(entry_path(plan_path, facts.queue, entry))]
        permits = facts.permit_paths(gone.paths, parsed.plan)
        ending = Ending(
            f"{gone.claims_path}/{name}", path, then, owner is not None, permits=permits
        )
        found.append((ending, parsed.n + 1))
    return found


def _settle(gone: Registration, pending: str, guard: Sequence[Op]) -> Step[Published]:
    """Publish the complete tasks of a pending record, and delete it.

    The record is read before the versions. So if a dependent is not complete, its last delivery is
    still to come, and makes a pending record of its own.
    """
    node = yield ReadData(pending)
    if node is None:
        return Published([])
    failpoints.reach("clear.pending")
    complete = yield from still_complete(gone, list(dict.fromkeys(pending_dependents(node.data))))
    return (yield from publish(gone, complete, pending, NO_ALLOWANCE, guard))
