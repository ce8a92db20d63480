"""Check what ran, with which arguments, and whose result was committed: S3, S4, S5 and L3. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ..history import Execution
from .evidence import Evidence, Expected


def nothing_acknowledged_is_lost(evidence: Evidence[Execution]) -> Iterator[str]:
    """L3: every acknowledged task ended as the oracle says."""
    for key in sorted(evidence.acknowledged):
        runs, fate = evidence.executions.get(key, ()), evidence.fate(key)
        if fate == "finished" and not any(each.returned for each in runs):
            yield f"task {key} was acknowledged and never returned ({len(runs)} executions)"
        elif fate != "finished" and key not in evidence.dead:
            yield f"task {key} must be {fate} and has no dead letter"
        elif fate == "cut" and runs:
            yield f"{runs[0]} ran, though a task it needs has failed"


def arguments_are_exact(evidence: Evidence[Execution]) -> Iterator[str]:
    """S3: every execution had all its arguments, and the right ones, however it ended."""
    for execution in evidence.everything:
        yield from wrong_arguments(evidence.expected, execution)


def wrong_arguments(expected: Expected, execution: Execution) -> Iterator[str]:
    """What is wrong with the arguments of that execution."""
    needs = expected.needs.get(execution.key)
    if needs is None:
        yield f"{execution} is of no task of the plan"
    elif len(execution.got) != len(needs):
        yield f"{execution} had {len(execution.got)} of {len(needs)} arguments"
    elif execution.digest != expected.digests[execution.key]:
        yield f"{execution} had other arguments than the oracle, or in another order"


def values_come_from_executions(evidence: Evidence[Execution]) -> Iterator[str]:
    """S3, S4: each argument was returned earlier by an execution of the task that it should come
    from."""
    for execution in evidence.everything:
        needs = evidence.expected.needs.get(execution.key, ())
        for uid, needed in zip(execution.got, needs, strict=False):
            maker = evidence.by_uid.get(uid)
            if maker is None:
                yield f"{execution} got a value of {uid}, which nobody made"
            elif maker.key != needed:
                yield f"{execution} got a value of {maker} as that of {needed}"
            elif not maker.returned:
                yield f"{execution} got a value of {maker}, which never returned"
            elif maker.ended > execution.began:  # type: ignore[operator]
                yield f"{execution} began before {maker} had ended"
    for kept in evidence.remains.kept:
        maker = evidence.by_uid.get(kept.uid)
        if maker is None or maker.key != kept.key or not maker.returned:
            yield f"the kept result of {kept.key} is of {kept.uid}, which is {maker}"


def results_are_fixed_once(evidence: Evidence[Execution]) -> Iterator[str]:
    """S4: all dependents of a task got the result of the same execution."""
    for key, uids in evidence.committed.items():
        if len(uids) > 1:
            found = ", ".join(str(evidence.by_uid.get(uid, uid)) for uid in sorted(uids))
            yield f"task {key} was committed {len(uids)} times: {found}"


def the_last_claim_commits(evidence: Evidence[Execution]) -> Iterator[str]:
    """S5: no execution has a larger attempt number than the one that was committed."""
    for key, uids in evidence.committed.items():
        for uid in uids & evidence.by_uid.keys():
            winner = evidence.by_uid[uid]
            for other in evidence.executions[key]:
                if other.n > winner.n:
                    yield f"{winner} was committed, though {other} had a later claim"


def results_are_the_oracles(evidence: Evidence[Execution]) -> Iterator[str]:
    """S4: what was returned, and what is kept, is the oracle's result."""
    results = evidence.expected.results
    for execution in evidence.everything:
        if execution.value not in (None, results.get(execution.key)):
            yield f"{execution} returned another value than the oracle"
    for kept in evidence.remains.kept:
        right = results.get(kept.key)
        if kept.result != right:
            yield f"the kept result of {kept.key} is {kept.result}, the oracle has {right}"
