"""What is written of a task while it runs: that it has started, what it logs, what it prints."""

from __future__ import annotations

from .load import drop_claim
from .requests import Applied, Check, Create, Fact, Multi, Printed, Reason, Step
from .shared import Claim, rejected


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


def tell_printed(claim: Claim, printed: Printed) -> Step[bool]:
    """Tell in the history of its plan what a running task prints. Returns False if it is not told:
    the claim is gone, or the history has no room. After a lost answer it may be told twice, at the
    same place.

    Raises TransactionRejected, ServerFull; then the claim still stands.
    """
    answer = yield Multi([Check(claim.path)], {claim.path: Fact(printed=printed)})
    if isinstance(answer, Applied):
        return not answer.untold
    if answer.reason is not Reason.NO_NODE:
        raise rejected(f"telling what {claim.task_path} prints", answer)
    return False


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
        yield from drop_claim(claim)  # the task was removed with its plan
    return False
