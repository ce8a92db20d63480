"""Changes of a plan that is done: values, results, adds, what is kept and what is told."""

from __future__ import annotations

from dataclasses import replace

from zkplan.stress.validate.evidence import Kept

from ..actors.workloads import digest_of, parent_of
from ..validate.evidence import DeadLetter, PlanEvidence
from ..validate.plan_checks import committed_numbers
from ..validate.plans import Batch, Execution
from .honest import (
    adding,
    again,
    chain,
    dead_key,
    defined_late,
    diamonds,
    doomed,
    drawn,
    hub,
    needy,
    winner,
)
from .table import row


def keep(evidence: PlanEvidence, made: Execution) -> None:
    evidence.remains.kept.append(Kept(made.key, made.digest, made.uid, made.number))


def change_kept(evidence: PlanEvidence, **facts: str) -> None:
    evidence.remains.kept[0] = evidence.remains.kept[0]._replace(**facts)


# ---- values and commits


@row(adding, "S4 results are fixed once … was committed 2 times")
def a_task_is_committed_twice(evidence: PlanEvidence) -> None:
    other = again(winner(evidence), winner(evidence).n + 1)
    evidence.plan.executions[other.key].append(other)
    keep(evidence, other)


@row(adding, "S4 values come from executions … which nobody made")
def a_value_is_of_nobody(evidence: PlanEvidence) -> None:
    needy(evidence).got[0] = "nobody"


@row(drawn, "S4 values come from executions … as that of")
def values_come_in_each_others_place(evidence: PlanEvidence) -> None:
    needy(evidence, 2).got.reverse()


@row(adding, "S4 values come from executions … which never returned")
def a_value_is_of_an_execution_without_an_end(evidence: PlanEvidence) -> None:
    evidence.by_uid[needy(evidence).got[0]].ended = None


@row(adding, "S4 values come from executions … began before … had ended")
def a_value_is_got_before_it_is_made(evidence: PlanEvidence) -> None:
    one = needy(evidence)
    evidence.by_uid[one.got[0]].ended = one.began + 0.1


@row(adding, "S4 values come from executions … the kept result of", uid="nobody")
@row(adding, "S4 results are the oracles … the kept result of", result="wrong")
@row(adding, "S4 all is under its own number … the kept result of", number="another")
def a_kept_result_has(evidence: PlanEvidence, **facts: str) -> None:
    change_kept(evidence, **facts)


@row(drawn, "S4 all is under its own number … the kept result of")
def results_are_kept_under_each_others_number(evidence: PlanEvidence) -> None:
    one, other, *_ = evidence.remains.kept
    evidence.remains.kept[:2] = [
        one._replace(number=other.number),
        other._replace(number=one.number),
    ]


@row(drawn, "S4 all is under its own number … ran as task")
def tasks_run_under_each_others_number(evidence: PlanEvidence) -> None:
    one, other, *_ = evidence.everything
    one.number, other.number = other.number, one.number


@row(doomed, "S4 all is under its own number … ran as task another", changes=True)
@row(doomed, changes=False)
def a_task_whose_number_nobody_was_told(evidence: PlanEvidence, changes: bool) -> None:
    """As one that a task has added: its author is not there to be told."""
    for batch in evidence.plan.batches.values():
        batch.numbers = []
    twice = next(runs for runs in evidence.plan.executions.values() if len(runs) > 1)
    twice[1].number = "another" if changes else twice[0].number


@row(adding, "S5 the last claim commits … had a later claim")
def a_later_claim_runs_too(evidence: PlanEvidence) -> None:
    one = winner(evidence)
    evidence.plan.executions[one.key].append(again(one, one.n + 1))


@row(adding, "S3 arguments are exact … arguments")
def an_argument_is_missing(evidence: PlanEvidence) -> None:
    needy(evidence).got.pop()


@row(adding, "S3 arguments are exact … had other arguments")
def an_argument_is_wrong(evidence: PlanEvidence) -> None:
    needy(evidence).digest = "wrong"


@row(drawn, "S3 arguments are exact … in another order")
def arguments_come_in_another_order(evidence: PlanEvidence) -> None:
    one, digests = needy(evidence, 2), evidence.expected.digests
    pairs = [(key, digests[key]) for key in evidence.expected.needs[one.key]]
    assert digest_of(one.key, pairs) == one.digest
    one.digest = digest_of(one.key, pairs[::-1])


@row(adding, "S3 arguments are exact … is of no task")
def a_stranger_runs(evidence: PlanEvidence) -> None:
    evidence.plan.executions["stranger"].append(replace(winner(evidence), key="stranger", uid="x"))


@row(adding, "S3 arguments are undamaged … got damaged bytes from")
def an_argument_is_damaged(evidence: PlanEvidence) -> None:
    needy(evidence).damaged.append("some task")


# ---- adds


@row(adding, "L3 nothing acknowledged is lost … never returned")
def a_task_never_runs(evidence: PlanEvidence) -> None:
    del evidence.plan.executions[evidence.remains.kept[-1].key]


@row(doomed, "L3 nothing acknowledged is lost … must be dead and has no dead letter")
def a_dead_letter_is_missing(evidence: PlanEvidence) -> None:
    del evidence.remains.letters[dead_key(evidence)]


@row(doomed, "L3 nothing acknowledged is lost … ran, though a task it needs has failed")
def a_task_below_a_dead_one_runs(evidence: PlanEvidence) -> None:
    cut = next(key for key, fate in evidence.expected.fates.items() if fate == "cut")
    evidence.plan.executions[cut].append(replace(winner(evidence), key=cut, uid="cut"))


@row(adding, "S4 only the added runs … ran and was never added")
def what_was_refused_runs(evidence: PlanEvidence) -> None:
    evidence.plan.batches[0].state = "refused"


@row(adding, "S4 only the added runs … which is atomic")
def half_of_an_add_runs(evidence: PlanEvidence) -> None:
    batch = wide(evidence)
    batch.state = "begun"
    del evidence.plan.executions[batch.keys[-1]]


@row(hub, "S4 only the added runs … ran and was never added", told=-1, ran=0)
@row(hub, "L3 nothing acknowledged is lost … never returned (0 executions)", told=1, ran=-1)
def of_an_add_of_several_transactions_some_were(
    evidence: PlanEvidence, told: int, ran: int
) -> None:
    """It was refused after `told` tasks; all run but those before the place `ran`, if any."""
    batch = wide(evidence)
    batch.state, batch.added = "refused", told % len(batch.keys)
    for key in batch.keys if ran else ():
        evidence.plan.executions.pop(key)


def wide(evidence: PlanEvidence) -> Batch:
    return next(batch for batch in evidence.plan.batches.values() if len(batch.keys) > 1)


@row(hub, "S4 adds are refused rightly … though every result can be had", error="ResultNotKept('')")
def an_add_is_refused(evidence: PlanEvidence, error: str) -> None:
    evidence.plan.batches[0].state, evidence.plan.batches[0].error = "refused", error


@row(hub)
def an_add_is_refused_after_the_end(evidence: PlanEvidence) -> None:
    late = Batch(["late"], True, "refused", "PlanDrained('it is done')")
    evidence.plan.batches[len(evidence.plan.batches)] = late


@row(adding, "S4 an attempt adds with its commit … which is None", maker="nobody")
@row(adding, "S4 an attempt adds with its commit … which is", maker="failed")
@row(adding, "S4 an attempt adds with its commit … which was not committed", maker="other")
def a_task_is_added_by(evidence: PlanEvidence, maker: str) -> None:
    added = next(each for each in evidence.everything if each.by)
    other = again(evidence.by_uid[added.by], 7)
    other.raised = "died" if maker == "failed" else ""
    evidence.plan.executions[other.key].append(other)
    added.by = "nobody" if maker == "nobody" else other.uid


@row(adding, "S7 counts agree", added=1)
@row(adding, "S7 counts agree", added=-1)
def another_number_of_tasks_was_added(evidence: PlanEvidence, added: int) -> None:
    evidence.remains.added += added


@row(drawn, "S7 counts agree", fewer=1)
@row(drawn, "S7 counts agree", more=1)
@row(drawn, fewer=0)
@row(drawn, more=0)
def with_an_open_add_the_tasks_that_count_are(
    evidence: PlanEvidence, fewer: int | None = None, more: int = 0
) -> None:
    """All, or none of the add: its last tasks, on which nothing else depends."""
    last = evidence.plan.batches[max(evidence.plan.batches)]
    last.state = "begun"
    if fewer is not None:
        evidence.remains.added = len(evidence.certain()) - fewer
        for key in last.keys:
            del evidence.plan.executions[key]
        evidence.remains.kept = [k for k in evidence.remains.kept if k.key not in last.keys]
    else:
        evidence.remains.added = len(evidence.plan.workload.items) + more


# ---- what is kept and what is left


@row(adding, "S4 kept is what is to be kept … is not kept")
def a_result_is_not_kept(evidence: PlanEvidence) -> None:
    evidence.remains.kept.pop(0)


@row(adding, "S4 kept is what is to be kept … is kept 2 times")
def a_result_is_kept_twice(evidence: PlanEvidence) -> None:
    evidence.remains.kept.append(evidence.remains.kept[0])


@row(adding, "S4 kept is what is to be kept … is kept, though it has dependents")
@row(diamonds, "S4 kept is what is to be kept … is kept, though it has dependents")
@row(defined_late, answered=True)
def an_inner_result_is_kept(evidence: PlanEvidence, answered: bool = False) -> None:
    """Who ended before the add was `answered` that needs it had no dependents."""
    kept = {each.key for each in evidence.remains.kept}
    inner = next(each for each in evidence.everything if each.key not in kept)
    keep(evidence, inner)
    if answered:
        last = evidence.plan.batches[max(evidence.plan.batches)]
        last.answered = max(each.ended or 0.0 for each in evidence.everything) + 1.0


@row(adding, "S4 kept is what is to be kept … is kept, though it has dependents")
def a_result_that_only_the_tasks_of_its_commit_need_is_kept(evidence: PlanEvidence) -> None:
    """They get it with that commit, without an edge."""
    pairs = [(key, need) for key, needs in evidence.expected.needs.items() for need in needs]
    needed = {need for key, need in pairs if parent_of(key) != need}
    lent = next(need for _, need in pairs if need not in needed)
    keep(evidence, evidence.plan.executions[lent][-1])


@row(diamonds, kept=False)
@row(diamonds, kept=True)
def what_an_open_add_may_need_is(evidence: PlanEvidence, kept: bool) -> None:
    last = evidence.plan.batches[max(evidence.plan.batches)]
    last.state = "begun"
    for key in last.keys:
        evidence.plan.executions.pop(key, None)
    left = [each for each in evidence.remains.kept if each.key not in last.keys]
    evidence.remains.kept = left
    needed = {need for key in last.keys for need in evidence.expected.needs[key]} - {*last.keys}
    for key in sorted(needed) if kept else ():
        keep(evidence, evidence.plan.executions[key][-1])


@row(adding, "S4 kept is what is to be kept … failure kept, and no dead letter", finished=1)
@row(doomed, "S4 kept is what is to be kept … has no failure kept, and a dead letter", dead=0)
@row(doomed, "S4 kept is what is to be kept … the failure of … is kept 2 times", dead=2)
def failures_are_kept_of_a_task_that_is(
    evidence: PlanEvidence, finished: int = 0, dead: int | None = None
) -> None:
    evidence.remains.failed += [evidence.remains.kept[0].key] * finished
    if dead is not None:
        key = dead_key(evidence)
        evidence.remains.failed.remove(key)
        evidence.remains.failed += [key] * dead


@row(adding, "S7 nothing is left … task-0000000007 is left", add="task-0000000007")
@row(adding, "S7 nothing is left … lock-1 is left", add="lock-1")
@row(adding, "S7 nothing is left … adds is left", add="add-count")
@row(adding, "S7 nothing is left … `done` is missing", remove="done")
@row(adding, "S7 nothing is left … `results` is missing", remove="outcomes")
def of_the_plan_there_is(evidence: PlanEvidence, add: str = "", remove: str = "") -> None:
    names = {*evidence.remains.plan, add} - {remove, ""}
    evidence.remains.plan = sorted(names)


@row(adding, "S7 nothing is left … runnable: a name is left", kind="runnable")
@row(adding, "S7 nothing is left … later: a name is left", kind="delayed")
@row(adding, "S7 nothing is left … claims: a name is left", kind="claims")
def there_is_left(evidence: PlanEvidence, kind: str) -> None:
    getattr(evidence.remains, kind).append("a name")


@row(adding, "S7 nothing is left … has a dead letter, the oracle says: finished")
def a_finished_task_has_a_dead_letter(evidence: PlanEvidence) -> None:
    key = evidence.remains.kept[0].key
    evidence.remains.letters[key] = DeadLetter(0, 1)


# ---- when, and what was told


@row(adding, "S9 nothing runs before it is ready", answered=True)
@row(adding, "S9 nothing runs before it is ready", answered=False)
def a_task_runs_before_an_early_add_was(evidence: PlanEvidence, answered: bool) -> None:
    at = min(each.began for each in evidence.everything) + 0.1
    batch = evidence.plan.batches[evidence.plan.workload.ready_after - 1]
    batch.begun, batch.answered = (0.0, at) if answered else (at, 0.0)


@row(chain, "L2 tasks start soon … after the last that it needs had ended")
def a_task_starts_late(evidence: PlanEvidence) -> None:
    one = max(evidence.everything, key=lambda each: each.began)
    one.began += 1000.0
    object.__setattr__(evidence, "soon_s", 999.0)


@row(adding, "S7 waiters hear the truth … before the last commit", state="done", at=1.0)
@row(adding, "S7 waiters hear the truth … heard failed=True", state="done", failed=True)
@row(adding, "S7 waiters hear the truth … heard that it is cancelled", state="cancelled")
@row(adding, "S7 waiters hear the truth … heard that it is gone", state="gone")
def a_waiter_hears(
    evidence: PlanEvidence, state: str, at: float = 1e6, failed: bool = False
) -> None:
    evidence.plan.waited.append({"state": state, "failed": failed, "at": at})


@row(adding, "S7 authors hear the truth … PlanCancelled")
def an_author_hears_of_a_cancel(evidence: PlanEvidence) -> None:
    evidence.plan.cut_short = "PlanCancelled('chaos')"


@row(hub, n=-1)
@row(hub, "S4: chaos-0 … began after attempt 0 was committed", n=0)
@row(hub, "S3: chaos-0 … had other arguments", n=-1, digest="wrong")
@row(hub, "S3: chaos-0 … got damaged bytes", n=-1, damaged=["some task"])
def after_the_end_an_execution_begins_as(evidence: PlanEvidence, n: int, **facts: object) -> None:
    """One with an earlier claim was lost before, and had its arguments all the same."""
    evidence.plan.committed = committed_numbers(evidence)
    (one,) = evidence.plan.executions["top"]
    late = replace(one, n=n, **facts)  # type: ignore[arg-type]
    evidence.history.late.append((evidence.plan.workload.name, late))


@row(doomed, fate="dead", n=2)
@row(doomed, "S4: … began after the task was out of attempts", fate="dead", n=3)
@row(doomed, "S4: … began after the task was out of attempts", fate="cut", n=0)
def after_the_end_a_task_without_a_result_begins(evidence: PlanEvidence, fate: str, n: int) -> None:
    """Under its last claim it may, by a worker that was lost with it; a cut one never had any."""
    evidence.plan.committed = {}
    evidence.plan.died = {key: letter.n for key, letter in evidence.remains.letters.items()}
    key = next(key for key, found in evidence.expected.fates.items() if found == fate)
    got = ["uid"] * len(evidence.expected.needs[key])
    late = replace(winner(evidence), key=key, n=n, got=got, digest=evidence.expected.digests[key])
    evidence.history.late.append((evidence.plan.workload.name, late))
