"""Claim runnable tasks in one transaction, and write what a claimed task does while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from ...errors import ZkplanError
from .. import failpoints
from ..interference import LateCopies
from ..layout import DEFAULT_QUEUE, Entry, entry_path, parse_entry, queue_path
from ..requests import (
    Applied,
    Await,
    Check,
    Create,
    Delete,
    Fact,
    Multi,
    Op,
    Printed,
    ReadChildren,
    ReadData,
    ReadMany,
    Reason,
    Refused,
    Send,
    SetData,
    Step,
)
from ..transactions import GUARD, Claim, Draft, Registration, ask, or_error, rejected
from .load import FirstReads, drop_claim, first_reads

#: The most claims whose tasks are read together with the transaction that makes them.
READ_BEHIND_MAX = 16


class Claimed(NamedTuple):
    """The claims that were made, and what to do next.

    `plan_changed`: forget the plan's candidates. `worker_gone`: register again. `barred` entries
    cannot be claimed because of somebody else's znodes. `no_room`: the server is full. `blocked`
    entries, by their current names, were not claimed because another claim took the permit or a
    limit changed.
    """

    claims: list[Claim]
    conflicts: int = 0
    plan_changed: bool = False
    worker_gone: bool = False
    read: FirstReads | None = None
    barred: tuple[str, ...] = ()
    no_room: ZkplanError | None = None
    blocked: tuple[str, ...] = ()


class Permits(NamedTuple):
    """The permits that a claim takes: for each limit the version of its znode as last read, and for
    each entry the paths of its permits in the order of its limits. `starts` has the version of each
    permit of a rate, -1 if its znode is new."""

    versions: dict[str, int]
    taken: dict[str, tuple[str, ...]]
    starts: Mapping[str, int] = MappingProxyType({})


NO_PERMITS = Permits({}, {})


def new_claim(
    me: Registration,
    plan: str,
    rank: str,
    task: str,
    n: int,
    a: int,
    queue: str = DEFAULT_QUEUE,
    permits: tuple[str, ...] = (),
    starts: tuple[tuple[str, int], ...] = (),
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
        permits=permits,
        starts=starts,
    )


def claim_ops(me: Registration, claim: Claim, *, owner_stands: bool = False) -> list[Op]:
    """Create the claim and its `owner` mark. `owner_stands`: replace the mark of an ended
    session."""
    owner = f"{claim.task_path}/owner"
    ops: list[Op] = [Create(claim.path, claim.data)]
    if claim.permits:
        holder = f"{me.worker}/{claim.name}".encode()
        ops += [Create(path, holder) for path in claim.permits if path]
        ops += [
            # If two workers take it over, the second meets another version.
            Create(path, holder) if version < 0 else SetData(path, holder, version)
            for path, version in claim.starts
        ]
    if owner_stands:
        ops.append(Delete(owner))
    ops.append(Create(owner, f"{me.worker} {claim.n}".encode(), me.has_session))
    return ops


def send_taking(
    me: Registration, ops: list[Op], claims: list[Claim]
) -> Step[tuple[Applied | Refused, FirstReads | None]]:
    """Send a transaction that makes `claims`, and right after it the first reads of their tasks.

    The server executes requests of one session in order, so the reads see what the transaction did.
    Many claims are refused more often, so their tasks are read only once they are made.
    """
    if not 0 < len(claims) <= READ_BEHIND_MAX:
        return (yield Multi(ops)), None
    sent = yield Send(Multi(ops))
    reading = yield Send(ReadMany(first_reads(claims), strict=True))
    answer = yield Await(sent)
    answers = yield from or_error(ask(Await(reading)))
    # The claims stand even if something cannot be read: loading them meets the same error.
    return answer, None if isinstance(answers, ZkplanError) else answers


def claim(
    me: Registration,
    plan: str,
    ready_version: int,
    names: list[str],
    queue: str = DEFAULT_QUEUE,
    permits: Permits = NO_PERMITS,
) -> Step[Claimed]:
    """Claim the entries `names` of one queue of a plan, except those that others took.

    S9: the version of the plan's `ready` is checked, so nothing is claimed after a pause. L1: the
    worker's registration is checked, or a claim could be released and made again forever. S11: the
    claim of a task takes a permit of each of its limits, and the version of each limit is checked,
    so the numbers are free at that size.
    """
    plan_path = me.paths.plan(plan)
    runnable = queue_path(plan_path, queue)
    entries = [(name, entry) for name in names if (entry := parse_entry(name)) is not None]
    todo = _Todo(
        [(name, _claim_of(me, plan, queue, name, entry, permits)) for name, entry in entries]
    )
    claimed: list[Claim] = []
    read: FirstReads | None = None
    late = LateCopies[list[Claim]](me.claims_path)
    while todo.wanted:
        draft = _draft(me, runnable, todo.wanted, todo.standing, permits)
        draft.guard(me, {plan_path: ready_version})
        failpoints.reach("claim.before")
        made = [made for _, made in todo.wanted]
        answer, read = yield from send_taking(me, draft.ops, made)
        if isinstance(answer, Applied):
            failpoints.reach("claim.made")
            claimed = made
            break
        before = yield from late.applied(answer, [each.name for each in made], made)
        if before is not None:
            # A copy was applied: no other transaction makes these names. An operator may have taken
            # some of the claims since. All tries have the same claims, and the copy may be one of a
            # later try with fewer.
            claimed, read = [each for each in before if each.name in late.standing], None
            todo.blocked = [item for item in todo.blocked if item[1] not in claimed]
            break
        stopped = _stopped(me, plan_path, answer, draft.owners[answer.at])
        if stopped is not None:
            return stopped._replace(conflicts=todo.conflicts)
        yield from todo.sort_out(runnable, answer, draft.owners[answer.at])
    yield from _drop_orphans(runnable, todo.orphans)
    blocked = [name for name, _ in todo.blocked]
    if blocked and todo.repeated:
        found, blocked = yield from rename_blocked(me, runnable, todo.blocked)
        read, claimed = (None, claimed + found) if found else (read, claimed)
    read = read if claimed else None
    return Claimed(
        *(claimed, todo.conflicts), read=read, barred=tuple(todo.barred), blocked=tuple(blocked)
    )


@dataclass(slots=True)
class _Todo:
    """The entries that are still to be claimed, and what became of the others."""

    wanted: list[tuple[str, Claim]]
    standing: set[str] = field(default_factory=set)
    orphans: list[str] = field(default_factory=list)
    barred: list[str] = field(default_factory=list)
    blocked: list[tuple[str, Claim]] = field(default_factory=list)
    conflicts: int = 0
    #: Copies of a refused transaction may still be under way.
    repeated: bool = False

    def sort_out(self, runnable: str, answer: Refused, owner: int) -> Step[None]:
        """Drop or change the entry that the refusal names."""
        self.repeated = self.repeated or answer.repeated
        if owner == GUARD:  # a limit has changed
            self.blocked += self.wanted
            self.wanted = []
            return
        name, made = self.wanted[owner]
        at_owner = answer.path.endswith("/owner")
        if answer.path in made.taken:
            self.blocked.append(self.wanted.pop(owner))
        elif answer.reason is Reason.NODE_EXISTS and at_owner:
            self.standing.add(name)
        elif answer.reason is Reason.NO_NODE and at_owner and name in self.standing:
            self.standing.discard(name)
        elif answer.reason is Reason.NO_NODE:
            if at_owner:
                self.orphans.append(name)
            before = len(self.wanted)
            del self.wanted[owner]
            self.wanted = yield from _still_there(runnable, self.wanted)
            self.conflicts += before - len(self.wanted)
        elif answer.reason in (Reason.NOT_EMPTY, Reason.EPHEMERAL_PARENT):
            # Znodes below the entry or the mark that cannot be deleted, or an ephemeral task.
            self.barred.append(name)
            del self.wanted[owner]
        else:
            raise rejected(f"claiming {name} of {made.plan_path}", answer)


def rename_blocked(
    me: Registration, runnable: str, blocked: list[tuple[str, Claim]]
) -> Step[tuple[list[Claim], list[str]]]:
    """Raise the N of entries whose claim lacked a permit while copies of it may be under way: the
    server would apply one as soon as the permit is free, and no worker would know of the claim.

    Returns the claims that such a copy has made, and the new names of the other entries.
    """
    names = []
    for name, made in blocked:
        later = entry_path(made.plan_path, made.queue, made.next_entry)
        yield Multi([Delete(f"{runnable}/{name}"), Create(later)])
        names.append(later.rpartition("/")[2])
    standing = (yield ReadChildren(me.claims_path)) or ()
    late = [made for _, made in blocked if made.name in standing]
    return late, [name for name, (_, made) in zip(names, blocked, strict=True) if made not in late]


def _stopped(me: Registration, plan_path: str, answer: Refused, owner: int) -> Claimed | None:
    """The result if the refusal ends the claim as a whole."""
    if answer.reason is Reason.FULL:
        return Claimed([], no_room=rejected(f"claiming tasks of {plan_path}", answer))
    if answer.path == me.worker_path or answer.path.startswith(me.claims_path + "/"):
        return Claimed([], worker_gone=True)
    if owner == GUARD and answer.path == f"{plan_path}/ready":
        return Claimed([], plan_changed=True)
    return None


def _claim_of(
    me: Registration, plan: str, queue: str, name: str, entry: Entry, permits: Permits
) -> Claim:
    if "~" not in name and "+" not in name:  # neither limits nor a kind
        return new_claim(me, plan, entry.rank, entry.task, entry.n, entry.a, queue)
    lane, taken = queue + name[len(entry.name) :], permits.taken.get(name, ())
    starts = tuple((path, permits.starts[path]) for path in taken if path in permits.starts)
    if starts:
        taken = tuple("" if path in permits.starts else path for path in taken)
    return new_claim(me, plan, entry.rank, entry.task, entry.n, entry.a, lane, taken, starts)


def _drop_orphans(runnable: str, names: list[str]) -> Step[None]:
    """Delete entries whose tasks somebody deleted: a task number never comes back."""
    for name in names:
        yield Multi([Delete(f"{runnable}/{name}")])


def _draft(
    me: Registration,
    runnable: str,
    wanted: list[tuple[str, Claim]],
    standing: set[str],
    permits: Permits,
) -> Draft:
    draft = Draft()
    if permits.versions:
        limits = {path.rpartition("/")[0] for _, made in wanted for path in made.taken}
        draft.ops += [Check(path, permits.versions[path]) for path in sorted(limits)]
    draft.own(GUARD)
    for index, (name, made) in enumerate(wanted):
        draft.ops.append(Delete(f"{runnable}/{name}"))
        draft.ops += claim_ops(me, made, owner_stands=name in standing)
        draft.own(index)
    return draft


def _still_there(runnable: str, wanted: list[tuple[str, Claim]]) -> Step[list[tuple[str, Claim]]]:
    """The entries of `wanted` that still exist. Finding the others by one refused transaction after
    another would take too long."""
    if not wanted:
        return []
    nodes = yield ReadMany([ReadData(f"{runnable}/{name}") for name, _ in wanted])
    return [item for item, node in zip(wanted, nodes, strict=True) if node is not None]


# ---- Write what a running task does: that it started, what it logs and prints.


def write_log(claim: Claim, log: bytes) -> Step[str | None]:
    """Write a log entry of a running task. Returns its name, or None if the claim is gone. Raises
    TransactionRejected, ServerFull; then the claim still stands."""
    answer = yield Multi([Check(claim.path), Create(f"{claim.task_path}/log-", log, sequence=True)])
    if isinstance(answer, Applied):
        name: str = answer.results[1].rpartition("/")[2]
        return name
    if answer.reason is not Reason.NO_NODE:
        raise rejected(f"a log entry of {claim.task_path}", answer)
    return None


def record_printed(claim: Claim, printed: Printed) -> Step[bool]:
    """Record in the history of its plan what a running task prints. Returns False if the claim is
    gone or the history has no room. After a lost answer it may be recorded twice, at the same
    place. Raises TransactionRejected, ServerFull; then the claim still stands."""
    answer = yield Multi([Check(claim.path)], {claim.path: Fact(printed=printed)})
    if isinstance(answer, Applied):
        return not answer.untold
    if answer.reason is not Reason.NO_NODE:
        raise rejected(f"recording what {claim.task_path} prints", answer)
    return False


def mark_started(claim: Claim) -> Step[bool]:
    """Note that the function starts under this claim. Returns False if the claim is gone.

    Called only for a task whose earlier claim ended without an outcome. If this worker vanishes
    too, an attempt is used up. So a task that kills its workers runs out of attempts, and tasks
    beside it do not. Raises TransactionRejected; then the claim still stands.
    """
    name = f"{claim.task_path}/started-{claim.n}"
    answer = yield Multi([Check(claim.path), Create(name)])
    if isinstance(answer, Applied):
        return True
    if answer.reason is Reason.NODE_EXISTS:
        return True  # an earlier copy was applied: only this claim makes that name
    if answer.reason is not Reason.NO_NODE:
        raise rejected(f"noting the start of {claim.task_path}", answer)
    if answer.path == name:
        yield from drop_claim(claim)  # the task was removed with its plan
    return False
