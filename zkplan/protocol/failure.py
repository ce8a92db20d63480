"""Fail, hand back, retry: how a claim ends without a result.

Each of these takes a new number N. If a name came back, a late copy of an old claim could succeed.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import PayloadUndecodable, TransactionRejected
from . import failpoints
from .foreign import with_below
from .layout import Entry, delayed_name
from .records import Dead
from .requests import (
    Applied,
    Check,
    Create,
    Delete,
    Multi,
    Op,
    ReadData,
    ReadMany,
    Reason,
    SetData,
    Step,
)
from .shared import REFUSALS_MAX, Claim, rejected


def end_claim(claim: Claim, then: list[Op], log: bytes, owner: bool = True) -> Step[bool]:
    """Delete the claim and its mark, leave a log, do `then`. Returns False if the claim was gone.

    After a lost answer nothing needs to be read: either copy leaves the task in the same state.
    Raises TransactionRejected if somebody else's znodes are in the way and cannot be removed.
    """
    log_op: list[Op] = [Create(f"{claim.task_path}/log-", log, sequence=True)] if log else []
    strange: list[str] = []
    repeated = False
    for _ in range(REFUSALS_MAX):
        ops: list[Op] = [*map(Delete, strange), Delete(claim.path), *log_op]
        if owner:
            ops.append(Delete(f"{claim.task_path}/owner"))
        answer = yield Multi([*ops, *then])
        if isinstance(answer, Applied):
            return True
        repeated = repeated or answer.repeated
        if answer.reason is Reason.NOT_EMPTY:
            strange = yield from with_below(answer.path, strange)
        elif strange and answer.at < len(strange):
            strange = []  # it went with the claim or mark above it, or by itself
        elif answer.path == claim.path and answer.reason is Reason.NO_NODE:
            return repeated
        elif answer.path == f"{claim.task_path}/owner" and answer.reason is Reason.NO_NODE:
            owner = False
        elif answer.reason is Reason.NO_NODE:
            # The task or its plan was removed, so only the claim itself is left.
            yield Multi([Delete(claim.path)])
            return False
        elif answer.reason is Reason.NODE_EXISTS:
            then = [_over(op) if op.path == answer.path else op for op in then]
        else:
            break
    raise rejected(f"ending a claim of {claim.task_path}", answer)


def _over(made: Op) -> Op:
    """Replace the create of a znode that somebody else has made: keep it as it is, or overwrite it.

    Only the worker that has the claim makes these znodes, and it makes each name once.
    """
    data = getattr(made, "data", b"")
    return SetData(made.path, data) if data else Check(made.path)


def fail_again(
    claim: Claim, log: bytes, due_ms: int | None, later: str, delay_ms: int = 0
) -> Step[bool]:
    """The operation after a failed attempt: runnable again, at once or at `due_ms` through
    `delayed`.

    `due_ms` is by the wall clock here. `delay_ms` helps workers whose clocks are behind that clock
    and who would wait too long. A worker whose clock is ahead makes the task runnable too early.
    """
    entry = Entry(claim.rank, claim.task, claim.n + 1, claim.a + 1)
    if due_ms is None:
        then: Op = Create(f"{claim.plan_path}/runnable/{entry.name}")
    else:
        delay = b"%d" % delay_ms if delay_ms else b""
        then = Create(f"{later}/{delayed_name(due_ms, claim.plan, entry)}", delay)
    return (yield from end_claim(claim, [then], log))


def fail_for_good(claim: Claim, failure: bytes, dead: Dead) -> Step[bool]:
    """The operations that make a task dead: it is out of attempts and keeps its edges for a
    retry."""
    then: list[Op] = [
        Create(f"{claim.plan_path}/dead/{claim.task}", dead.to_bytes()),
        Create(f"{claim.plan_path}/results/{claim.task}", failure),
    ]
    return (yield from end_claim(claim, then, failure))


def hand_back(claims: Sequence[Claim], log: bytes = b"") -> Step[int]:
    """Hand claims back unused, which costs no attempt. Returns how many were still held."""
    count = 0
    failure: TransactionRejected | None = None
    for claim in claims:
        then = Create(f"{claim.plan_path}/runnable/{claim.next_entry.name}")
        try:
            count += yield from end_claim(claim, [then], log)
        except TransactionRejected as error:
            failure = error  # it stays claimed; the others are handed back
    if failure is not None:
        raise failure
    return count


def retry(plan_path: str, task: str) -> Step[bool]:
    """Make a dead task runnable again, with all its attempts. Returns False if it is not dead.

    Raises PayloadUndecodable if its dead letter is damaged.
    """
    dead, outcome, node = yield ReadMany(
        [
            ReadData(f"{plan_path}/{name}")
            for name in (f"dead/{task}", f"results/{task}", f"task-{task}")
        ]
    )
    if dead is None or node is None:
        return False
    letter = Dead.from_bytes(dead.data)
    if letter.n < 0:
        # Without the number of its last claim, a runnable name might come back.
        raise PayloadUndecodable(
            f"task {task} of {plan_path} cannot be retried: {letter.error}; it must be added anew"
        )
    entry = Entry(letter.rank, task, letter.n + 1, 0)
    ops: list[Op] = [
        # Only one retry for each death. Otherwise a late copy, or a second operator, could retry a
        # later death with the same name and version, and a runnable name would come back.
        Create(f"{plan_path}/task-{task}/retry-{letter.n}"),
        Delete(f"{plan_path}/dead/{task}"),
        Create(f"{plan_path}/runnable/{entry.name}"),
    ]
    if outcome is not None:
        ops.insert(1, Delete(f"{plan_path}/results/{task}"))
    failpoints.reach("retry.between")
    answer = yield Multi(ops)
    return isinstance(answer, Applied) or answer.repeated


def write_log(claim: Claim, log: bytes) -> Step[str | None]:
    """Write a log entry of a running task. Returns its name, or None if the claim is gone.

    Raises TransactionRejected, ServerFull; then the claim still stands.
    """
    answer = yield Multi([Check(claim.path), Create(f"{claim.task_path}/log-", log, sequence=True)])
    if isinstance(answer, Applied):
        name: str = answer.results[1].rpartition("/")[2]
        return name
    if answer.reason is not Reason.NO_NODE:
        raise rejected(f"a log entry of {claim.task_path}", answer)
    return None


def mark_started(claim: Claim) -> Step[bool]:
    """Note that the function starts under this claim. Returns False if the claim is gone.

    This is done only for a task whose earlier claim ended without an outcome. If this worker
    vanishes too, the task is known to have run, and an attempt is used up. So a task that kills its
    workers runs out of attempts, and tasks beside it do not. Raises TransactionRejected if an
    access list refuses it; then the claim still stands.
    """
    name = f"{claim.task_path}/started-{claim.n}"
    answer = yield Multi([Check(claim.path), Create(name)])
    if isinstance(answer, Applied):
        return True
    if answer.reason is Reason.NODE_EXISTS:
        return True  # the name belongs to this claim alone: an earlier copy of this was applied
    if answer.reason is not Reason.NO_NODE:
        raise rejected(f"noting the start of {claim.task_path}", answer)
    if answer.path == name:
        yield Multi([Delete(claim.path)])  # the task was removed with its plan
    return False
