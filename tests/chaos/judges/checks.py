"""The checker: what zkplan promises, verified on the history of one plan and on what is left. Pure.

The numbers are those of the invariants in docs/protocol.md. Which execution of a task was committed
is not asked of ZooKeeper alone: every value names the execution that made it, and every execution
records whose values it got.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..actors.workloads import parent_of
from .attempts import (
    attempts_are_counted_right,
    attempts_are_unique,
    only_losses_and_failures_repeat,
)
from .case import Case
from .histories import Execution, PlanHistory
from .ledger import Ledger
from .left import kept_is_what_is_to_be_kept, nothing_is_left, wrongly_counted


def results_are_fixed_once(case: Case) -> Iterator[str]:
    """S4: all who got a task's value got that of one and the same execution."""
    for key, uids in case.committed.items():
        if len(uids) > 1:
            found = ", ".join(str(case.by_uid.get(uid, uid)) for uid in sorted(uids))
            yield f"task {key} was committed {len(uids)} times: {found}"


def values_come_from_executions(case: Case) -> Iterator[str]:
    """S4: a value that somebody got was returned by an execution of that task."""
    for execution in case.everything:
        for uid in execution.got:
            if uid not in case.by_uid:
                yield f"{execution} got a value of {uid}, which nobody made"
            elif not case.by_uid[uid].returned:
                yield f"{execution} got a value of {case.by_uid[uid]}, which never returned"
            elif case.by_uid[uid].ended > execution.began:  # type: ignore[operator]
                yield f"{execution} began before {case.by_uid[uid]} had ended"
    for kept in case.left.kept:
        maker = case.by_uid.get(kept.uid)
        if maker is None or maker.key != kept.key or not maker.returned:
            yield f"the kept result of {kept.key} is of {kept.uid}, which is {maker}"


def the_last_claim_commits(case: Case) -> Iterator[str]:
    """S5: no execution has a larger attempt number than the one that was committed."""
    for key, uids in case.committed.items():
        for uid in uids & case.by_uid.keys():
            winner = case.by_uid[uid]
            for other in case.plan.executions[key]:
                if other.n > winner.n:
                    yield f"{winner} was committed, though {other} had a later claim"


def arguments_are_exact(case: Case) -> Iterator[str]:
    """S3: every execution, whatever became of it, had all its arguments, and the right ones."""
    for execution in case.everything:
        yield from _wrong_arguments(case.plan, execution)


def _wrong_arguments(plan: PlanHistory, execution: Execution) -> Iterator[str]:
    item = plan.workload.items.get(execution.key)
    if item is None:
        yield f"{execution} is of no task of the plan"
    elif execution.keys != len(item.needs) or len(execution.got) != len(item.needs):
        yield f"{execution} had {len(execution.got)} of {len(item.needs)} arguments"
    elif execution.digest != plan.workload.digests[execution.key]:
        yield f"{execution} had other arguments than the oracle, or in another order"
    elif execution.damaged:
        yield f"{execution} got damaged bytes from {execution.damaged}"


def all_is_under_its_own_number(case: Case) -> Iterator[str]:
    """S4: a task runs, and its result is kept, under the number that its author was told."""
    numbers = case.numbers
    for execution in case.everything:
        number = numbers.setdefault(execution.key, execution.number)
        if execution.number != number:
            yield f"{execution} ran as task {execution.number}, and is task {number}"
    for kept in case.left.kept:
        number = numbers.get(kept.key, kept.number)
        if kept.number != number:
            yield f"the kept result of {kept.key}, task {number}, is that of task {kept.number}"


def results_are_the_oracles(case: Case) -> Iterator[str]:
    """S4: a kept result is the oracle's."""
    for kept in case.left.kept:
        if case.plan.workload.digests.get(kept.key) != kept.digest:
            yield f"the kept result of {kept.key} differs from the oracle"


def nothing_acknowledged_is_lost(case: Case) -> Iterator[str]:
    """L3: every task that was acknowledged came to the end that the oracle knows."""
    for key in sorted(case.acknowledged):
        runs, fate = case.plan.executions.get(key, []), case.fate(key)
        if fate == "finished" and not any(each.returned for each in runs):
            yield f"task {key} was acknowledged and never returned ({len(runs)} executions)"
        elif fate != "finished" and key not in case.left.dead:
            yield f"task {key} must be {fate} and has no dead letter"
        elif fate == "cut" and runs:
            yield f"{runs[0]} ran, though a task it needs has failed"


def only_the_added_runs(case: Case) -> Iterator[str]:
    """S4: what was refused or never sent does not run; an atomic add runs wholly or not at all."""
    by_authors = [key for key in case.plan.executions if parent_of(key) is None]
    allowed = {key for batch in case.plan.batches.values() for key in batch.possible}
    yield from (f"task {key} ran and was never added" for key in by_authors if key not in allowed)
    for number, batch in case.plan.batches.items():
        wanted = [key for key in batch.keys if case.fate(key) != "cut"]
        ran = [key for key in wanted if key in case.plan.executions]
        if batch.state == "begun" and batch.atomic and 0 < len(ran) < len(wanted):
            yield f"of add {number}, which is atomic, {len(ran)} of {len(wanted)} tasks ran"


def an_attempt_adds_with_its_commit(case: Case) -> Iterator[str]:
    """Promise 8: a task added by a task was added by the execution that was committed."""
    for execution in case.everything:
        parent = parent_of(execution.key)
        if parent is None:
            continue
        winners = case.committed.get(parent)
        maker = case.by_uid.get(execution.by)
        if maker is None or maker.key != parent or not maker.returned:
            yield f"{execution} was added by {execution.by}, which is {maker}"
        elif winners is not None and execution.by not in winners:
            yield f"{execution} was added by {maker}, which was not committed"


def nothing_runs_before_it_is_ready(case: Case) -> Iterator[str]:
    """S9: a plan is marked ready only after the adds that are to come before.

    After their answers; of an add that had none, after its begin.
    """
    plan = case.plan
    early = [each for n, each in plan.batches.items() if n < plan.workload.ready_after]
    before = [each.answered or each.begun for each in early]
    for execution in case.everything:
        if execution.began < max(before, default=0.0):
            yield f"{execution} began before its plan was marked ready"


def counts_agree(case: Case) -> Iterator[str]:
    """S7: as many tasks were ever added as were acknowledged; an open add may count too."""
    yield from wrongly_counted(case, case.acknowledged)


def adds_are_refused_rightly(plan: PlanHistory) -> Iterator[str]:
    """S4: in every workload each result that an add depends on is to come, or is kept."""
    for number, batch in plan.batches.items():
        if batch.state == "refused" and batch.error.startswith("ResultNotKept"):
            yield f"add {number} was refused, though every result can be had: {batch.error}"


def tasks_start_soon(case: Case) -> Iterator[str]:
    """L2: what is complete is published and claimed at once, not when some check finds it."""
    for runs in case.plan.executions.values():
        first = min(runs, key=lambda each: each.began, default=None)
        if first is None or not first.got:
            continue
        needed = [case.by_uid[uid].ended or 0.0 for uid in first.got if uid in case.by_uid]
        late_s = first.began - max(needed, default=first.began)
        if late_s > case.soon_s:
            yield f"{first} began {late_s:.1f} s after the last that it needs had ended"


def waiters_hear_the_truth(case: Case) -> Iterator[str]:
    """S7: a waiter that was told `done` was told it after the last commit; no other end is true."""
    last = max(
        (
            case.by_uid[uid].ended or 0.0
            for uids in case.committed.values()
            for uid in uids & case.by_uid.keys()
        ),
        default=0.0,
    )
    for line in case.plan.waited:
        if line["state"] != "done":
            yield f"a waiter heard that it is {line['state']}"
        if line["state"] == "done" and line["at"] < last:
            yield f"a waiter heard `done` {last - line['at']:.3f} s before the last commit"
        doomed = bool(case.left.dead)
        if line["state"] == "done" and line["failed"] != doomed:
            yield f"a waiter heard failed={line['failed']}, dead letters: {len(case.left.dead)}"


def authors_hear_the_truth(case: Case) -> Iterator[str]:
    """S7: of a plan that came to its end no author was told that it is cancelled, or gone."""
    if case.plan.cut_short:
        yield f"its author heard {case.plan.cut_short}"


CHECKS: tuple[tuple[str, Callable[[Case], Iterator[str]]], ...] = (
    ("S4", results_are_fixed_once),
    ("S4", values_come_from_executions),
    ("S5", the_last_claim_commits),
    ("S8", attempts_are_unique),
    ("S3", arguments_are_exact),
    ("S4", all_is_under_its_own_number),
    ("S4", results_are_the_oracles),
    ("L3", nothing_acknowledged_is_lost),
    ("S4", only_the_added_runs),
    ("S4", an_attempt_adds_with_its_commit),
    ("S4", kept_is_what_is_to_be_kept),
    ("S7", nothing_is_left),
    ("S7", counts_agree),
    ("S9", nothing_runs_before_it_is_ready),
    ("S8", only_losses_and_failures_repeat),
    ("S8", attempts_are_counted_right),
    ("L2", tasks_start_soon),
    ("S7", waiters_hear_the_truth),
    ("S7", authors_hear_the_truth),
)


def violations(case: Case) -> list[str]:
    """Every broken promise of that plan, with the number of the invariant."""
    name = f"{case.plan.workload.name} ({case.plan.workload.shape})"
    return [
        f"{number} {check.__name__.replace('_', ' ')}: {name}: {found}"
        for number, check in CHECKS
        for found in check(case)
    ]


def committed_numbers(case: Case) -> dict[str, int]:
    """The attempt number under which each task was committed, as far as anybody saw it."""
    return {
        key: max(case.by_uid[uid].n for uid in uids & case.by_uid.keys())
        for key, uids in case.committed.items()
        if uids & case.by_uid.keys()
    }


def late_executions(ledger: Ledger) -> Iterator[str]:
    """S3, S4: what begins after its plan was done began under a claim that was lost before.

    It had its arguments all the same.
    """
    while ledger.late:
        name, execution = ledger.late.pop()
        plan = ledger.plans[name]
        yield from (f"S3: {name}: {found}" for found in _wrong_arguments(plan, execution))
        n = (plan.committed or {}).get(execution.key)
        if n is not None and execution.n >= n:
            yield f"S4: {name}: {execution} began after attempt {n} was committed"
        last = plan.buried.get(execution.key)
        if last is not None and (execution.n > last or plan.workload.fates[execution.key] == "cut"):
            yield f"S4: {name}: {execution} began after the task was out of attempts"


def wrong_deaths(ledger: Ledger) -> list[str]:
    """Nobody ends by itself but as a fault makes it; to be asked once all histories are read."""
    return [f"- {death}" for death in list(ledger.deaths) if not ledger.made(death)]


def wrong_refusals(ledger: Ledger) -> list[str]:
    """S4: of plans that may never be done because of it."""
    return [
        f"S4 adds are refused rightly: {name}: {found}"
        for name, plan in list(ledger.plans.items())
        for found in adds_are_refused_rightly(plan)
    ]
