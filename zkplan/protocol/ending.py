"""End claims without a result: after a failure, by a hand-back, or by the release of a lost worker.

Each of these takes a new number N. If a name came back, a late copy of an old claim could succeed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..errors import ZkplanError
from .foreign import folder_restored, skip_number, with_below
from .layout import DELIVERED, Entry, delayed_name, entry_path
from .records import Dead
from .requests import (
    NO_FACT,
    Applied,
    Check,
    Create,
    Delete,
    Fact,
    Op,
    Reason,
    Refused,
    SetData,
    Step,
)
from .shared import GUARD, REFUSALS_MAX, Claim, Draft, or_error, rejected

#: How many claims one transaction ends.
ENDINGS_PER_MULTI = 40


@dataclass(slots=True)
class Ending:
    """The end of one claim. `then` replaces it; empty: the task is gone, and nothing does.

    `has_owner`: its mark stands. Afterwards `held` says whether the claim stood until now, and
    `error` why it still stands.
    """

    claim: str
    task: str
    then: list[Op]
    has_owner: bool = True
    held: bool = False
    error: ZkplanError | None = None
    refusals: int = 0
    permits: Sequence[str] = ()
    #: Znodes that somebody else made below the claim or the mark.
    below: list[str] = field(default_factory=list)
    fact: Fact = NO_FACT

    @property
    def ops(self) -> list[Op]:
        ops: list[Op] = [*map(Delete, self.below), Delete(self.claim)]
        if self.has_owner and self.then:
            ops.append(Delete(f"{self.task}/owner"))
        ops += map(Delete, self.permits)
        return ops + self.then


def end_claims(endings: Sequence[Ending], guard: Sequence[Op] = ()) -> Step[bool]:
    """End these claims, in as few transactions as refusals allow; `guard` starts each of them.

    Returns False if the guard was refused. After a lost answer nothing needs to be read: either
    copy leaves the tasks in the same state.
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
    """Learn from a refusal. Returns False if nothing is left to do, or nothing can be done."""
    missing = answer.reason is Reason.NO_NODE
    ending.refusals += 1
    if ending.refusals > REFUSALS_MAX:
        ending.error = rejected(f"ending a claim of {ending.task}", answer)
    elif answer.reason is Reason.NOT_EMPTY:
        # zkplan makes no znodes below claims and marks. Somebody else's must not stop this.
        below = yield from or_error(with_below(answer.path, ending.below))
        if isinstance(below, ZkplanError):
            ending.error = below
        else:
            ending.below = below
    elif answer.path in ending.below:
        ending.below = []  # gone with the claim or mark above it, or by itself
    elif missing and answer.path == ending.claim:
        ending.held = repeated and bool(ending.then)
        return False
    elif missing and answer.path == f"{ending.task}/owner":
        ending.has_owner = False
    elif missing and answer.path in ending.permits:
        ending.permits = [path for path in ending.permits if path != answer.path]
    elif missing and (yield from folder_restored(answer)):
        pass  # else the claim would end, and the task be in no index
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
    """Replace the create of a znode that somebody else has made: keep it as it is, or overwrite it.

    Only the worker that has the claim makes these znodes, and it makes each name once.
    """
    data = getattr(made, "data", b"")
    return SetData(made.path, data) if data else Check(made.path)


def _ending(claim: Claim, then: list[Op], log: bytes) -> Ending:
    logs: list[Op] = [Create(f"{claim.task_path}/log-", log, sequence=True)] if log else []
    permits = [*filter(None, claim.permits)]
    return Ending(claim.path, claim.task_path, logs + then, permits=permits, fact=claim.fact)


def _end(endings: list[Ending]) -> Step[int]:
    """Returns how many claims were still held.

    Raises TransactionRejected if one of them stays claimed; the others are ended all the same.
    """
    yield from end_claims(endings)
    for ending in endings:
        if ending.error is not None:
            raise ending.error
    return sum(ending.held for ending in endings)


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
        then: Op = Create(entry_path(claim.plan_path, claim.queue, entry))
    else:
        delay = b"%d" % delay_ms if delay_ms else b""
        then = Create(f"{later}/{delayed_name(due_ms, claim.plan, entry, claim.queue)}", delay)
    return bool((yield from _end([_ending(claim, [then], log)])))


def fail_for_good(
    claim: Claim, failure: bytes, dead: Dead, *, has_result: bool = False
) -> Step[bool]:
    """The operations that make a task dead: it is out of attempts and keeps its edges for a retry.

    `has_result`: an operator has decided that it fails, by a `result` that goes now.
    """
    then: list[Op] = []
    if has_result:
        then = [Delete(f"{claim.task_path}/result"), *undelivered_ops(claim.task_path)]
    then += [
        Create(f"{claim.plan_path}/dead/{claim.task}", dead.to_bytes()),
        Create(f"{claim.plan_path}/results/{claim.task}", failure),
    ]
    return bool((yield from _end([_ending(claim, then, failure)])))


def undelivered_ops(task_path: str) -> list[Op]:
    """The operations after which the task has no mark of a delivery, whether it had one or not.

    Somebody else may have delivered its `result` since it was read. A retry that found the mark
    would take its own outcome for delivered, and not keep it.
    """
    mark = f"{task_path}/{DELIVERED}"
    return [Create(mark), Delete(mark)]


def postpone(claim: Claim, due_ms: int, later: str) -> Step[bool]:
    """Give back the claim of a task that may not run yet: it is runnable again at `due_ms`, by the
    server's clock. No attempt is used up."""
    name = delayed_name(due_ms, claim.plan, claim.next_entry, claim.queue)
    return bool((yield from _end([_ending(claim, [Create(f"{later}/{name}")], b"")])))


def hand_back(claims: Sequence[Claim], log: bytes = b"") -> Step[int]:
    """Hand claims back unused, which costs no attempt. Returns how many were still held."""
    entries = [entry_path(claim.plan_path, claim.queue, claim.next_entry) for claim in claims]
    endings = [
        _ending(claim, [Create(entry)], log) for claim, entry in zip(claims, entries, strict=True)
    ]
    return (yield from _end(endings))
