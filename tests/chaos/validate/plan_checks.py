"""The checks of a plan of a chaos run that is done, beside those of every run. Pure.

The numbers are those of the invariants in docs/protocol.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from zkplan.stress.validate.attempts import attempts_are_unique, only_losses_and_failures_repeat
from zkplan.stress.validate.remains import nothing_is_left
from zkplan.stress.validate.values import (
    arguments_are_exact,
    nothing_acknowledged_is_lost,
    results_are_fixed_once,
    results_are_the_oracles,
    the_last_claim_commits,
    values_come_from_executions,
    wrong_arguments,
)

from ..actors.workloads import parent_of
from .attempts import attempts_are_counted_right
from .evidence import PlanEvidence, expected_of
from .history import RunHistory
from .remains import kept_is_what_is_to_be_kept, wrongly_counted


def arguments_are_undamaged(evidence: PlanEvidence) -> Iterator[str]:
    """S3: no byte of an argument has changed on the way."""
    for execution in evidence.everything:
        if execution.damaged:
            yield f"{execution} got damaged bytes from {execution.damaged}"


def all_is_under_its_own_number(evidence: PlanEvidence) -> Iterator[str]:
    """S4: a task runs, and its result is kept, under the number that its author was told."""
    numbers = evidence.numbers
    for execution in evidence.everything:
        number = numbers.setdefault(execution.key, execution.number)
        if execution.number != number:
            yield f"{execution} ran as task {execution.number}, and is task {number}"
    for kept in evidence.remains.kept:
        number = numbers.get(kept.key, kept.number)
        if kept.number != number:
            yield f"the kept result of {kept.key}, task {number}, is that of task {kept.number}"


def only_the_added_runs(evidence: PlanEvidence) -> Iterator[str]:
    """S4: what was refused or never sent does not run; an atomic add runs wholly or not at all."""
    ran, batches = evidence.executions, evidence.plan.batches
    allowed = {key for batch in batches.values() for key in batch.possible}
    by_authors = [key for key in ran if parent_of(key) is None]
    yield from (f"task {key} ran and was never added" for key in by_authors if key not in allowed)
    for number, batch in batches.items():
        wanted = [key for key in batch.keys if evidence.fate(key) != "cut"]
        of_it = sum(key in ran for key in wanted)
        if batch.state == "begun" and batch.atomic and 0 < of_it < len(wanted):
            yield f"of add {number}, which is atomic, {of_it} of {len(wanted)} tasks ran"


def an_attempt_adds_with_its_commit(evidence: PlanEvidence) -> Iterator[str]:
    """Promise 8: a task added by a task was added by the execution that was committed."""
    for execution in evidence.everything:
        parent = parent_of(execution.key)
        if parent is None:
            continue
        winners = evidence.committed.get(parent)
        maker = evidence.by_uid.get(execution.by)
        if maker is None or maker.key != parent or not maker.returned:
            yield f"{execution} was added by {execution.by}, which is {maker}"
        elif winners is not None and execution.by not in winners:
            yield f"{execution} was added by {maker}, which was not committed"


def nothing_runs_before_it_is_ready(evidence: PlanEvidence) -> Iterator[str]:
    """S9: a plan is marked ready only after the adds that are to come before.

    After their answers; of an add that had none, after its begin.
    """
    plan = evidence.plan
    early = [each for n, each in plan.batches.items() if n < plan.workload.ready_after]
    ready = max((each.answered or each.begun for each in early), default=0.0)
    for execution in evidence.everything:
        if execution.began < ready:
            yield f"{execution} began before its plan was marked ready"


def counts_agree(evidence: PlanEvidence) -> Iterator[str]:
    """S7: as many tasks were ever added as were acknowledged; an open add may count too."""
    yield from wrongly_counted(evidence, evidence.acknowledged)


def tasks_start_soon(evidence: PlanEvidence) -> Iterator[str]:
    """L2: what is complete is published and claimed at once, not when some check finds it.

    Only where slots are always free: elsewhere histories do not tell who was idle.
    """
    for runs in evidence.executions.values():
        first = min(runs, key=lambda each: each.began, default=None)
        if first is None or not first.got:
            continue
        late_s = first.began - _last_end(evidence, first.got, first.began)
        if late_s > evidence.soon_s:
            yield f"{first} began {late_s:.1f} s after the last that it needs had ended"


def waiters_hear_the_truth(evidence: PlanEvidence) -> Iterator[str]:
    """S7: a waiter that was told `done` was told it after the last commit; no other end is true."""
    everybody = (uid for uids in evidence.committed.values() for uid in uids)
    last, letters = _last_end(evidence, everybody, 0.0), len(evidence.dead)
    for line in evidence.plan.waited:
        if line["state"] != "done":
            yield f"a waiter heard that it is {line['state']}"
            continue
        if line["at"] < last:
            yield f"a waiter heard `done` {last - line['at']:.3f} s before the last commit"
        if line["failed"] != bool(letters):
            yield f"a waiter heard failed={line['failed']}, dead letters: {letters}"


def _last_end(evidence: PlanEvidence, uids: Iterable[str], default: float) -> float:
    """When the last of those executions ended, as far as they are known."""
    known = (evidence.by_uid[uid] for uid in uids if uid in evidence.by_uid)
    return max((each.ended or 0.0 for each in known), default=default)


def authors_hear_the_truth(evidence: PlanEvidence) -> Iterator[str]:
    """S7: of a plan that came to its end no author was told that it is cancelled, or gone."""
    if evidence.plan.cut_short:
        yield f"its author heard {evidence.plan.cut_short}"


Check = tuple[str, Callable[[PlanEvidence], Iterator[str]]]
#: Of every plan, whatever became of it.
OF_EVERY_PLAN: tuple[Check, ...] = (
    ("S4", results_are_fixed_once),
    ("S4", values_come_from_executions),
    ("S5", the_last_claim_commits),
    ("S8", attempts_are_unique),
    ("S3", arguments_are_exact),
    ("S3", arguments_are_undamaged),
    ("S4", all_is_under_its_own_number),
    ("S4", results_are_the_oracles),
    ("S4", an_attempt_adds_with_its_commit),
    ("S9", nothing_runs_before_it_is_ready),
    ("S8", only_losses_and_failures_repeat),
    ("S8", attempts_are_counted_right),
)
CHECKS: tuple[Check, ...] = (
    *OF_EVERY_PLAN,
    ("L3", nothing_acknowledged_is_lost),
    ("S4", only_the_added_runs),
    ("S4", kept_is_what_is_to_be_kept),
    ("S7", nothing_is_left),
    ("S7", counts_agree),
    ("L2", tasks_start_soon),
    ("S7", waiters_hear_the_truth),
    ("S7", authors_hear_the_truth),
)


def violations(evidence: PlanEvidence) -> list[str]:
    """Every broken promise of a plan that is done, with the number of the invariant."""
    return [
        found
        for number, check in CHECKS
        for found in told(number, check.__name__, evidence.name, check(evidence))
    ]


def told(number: str, check: str, name: str, all_found: Iterable[str]) -> list[str]:
    """What a check has found, as it stands among the violations of a run."""
    return [f"{number} {check.replace('_', ' ')}: {name}: {each}" for each in all_found]


# ---- of plans that were checked, or never will be


def committed_numbers(evidence: PlanEvidence) -> dict[str, int]:
    """The attempt number under which each task was committed, as far as anybody saw it."""
    by_uid = evidence.by_uid
    known = {key: uids & by_uid.keys() for key, uids in evidence.committed.items()}
    return {key: max(by_uid[uid].n for uid in uids) for key, uids in known.items() if uids}


def late_executions(history: RunHistory) -> Iterator[str]:
    """S3, S4: what begins after its plan was done began under a claim that was lost before.

    It had its arguments all the same.
    """
    while history.late:
        name, execution = history.late.pop()
        plan = history.plans[name]
        wrong = wrong_arguments(expected_of(plan.workload), execution)
        yield from (f"S3: {name}: {found}" for found in wrong)
        if execution.damaged:
            yield f"S3: {name}: {execution} got damaged bytes from {execution.damaged}"
        n = (plan.committed or {}).get(execution.key)
        if n is not None and execution.n >= n:
            yield f"S4: {name}: {execution} began after attempt {n} was committed"
        last = plan.died.get(execution.key)
        if last is not None and (execution.n > last or plan.workload.fates[execution.key] == "cut"):
            yield f"S4: {name}: {execution} began after the task was out of attempts"


def wrong_deaths(history: RunHistory) -> list[str]:
    """Nobody ends by itself but as a fault makes it; to be asked once all histories are read."""
    return [f"- {death}" for death in list(history.deaths) if not history.made(death)]


def wrong_refusals(history: RunHistory) -> list[str]:
    """S4: in every workload each result that an add depends on is to come, or is kept.

    Of all plans: one of which an add was refused wrongly may never be done.
    """
    return [
        f"S4 adds are refused rightly: {name}: add {number} was refused, though every result can "
        f"be had: {batch.error}"
        for name, plan in list(history.plans.items())
        for number, batch in plan.batches.items()
        if batch.state == "refused" and batch.error.startswith("ResultNotKept")
    ]
