"""Every check of the checker finds what it is for, in an honest history with one thing changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from zkplan.stress.checks import Remains

from .actors.workloads import Workload, attempts_of, parent_of
from .judges.case import Case, Kept, Left, Letter
from .judges.checks import late_executions, violations, wrong_refusals
from .judges.histories import Batch, Execution, PlanHistory
from .judges.ledger import Ledger

SESSION_S = 3.0
ADDING = 11
#: What stands of a plan that is done.
DONE = ("add-ids", "dead", "done", "results", "ready", "runnable")


def honest(folder: Path, shape: str, seed: int) -> Case:
    """The history of one worker that runs everything in order, undisturbed."""
    workload = Workload.make(seed, shape)
    history = PlanHistory(seed, workload, author_pid=1, closed=True)
    for number, batch in enumerate(workload.batches):
        history.batches[number] = Batch([item.key for item in batch], True, "done")
    at, dead, kept = 0.0, {}, []
    needed = {key for item in workload.items.values() for key in item.needs}
    for item in workload.items.values():
        fate = workload.fates.get(item.key)
        if fate in ("dead", "cut"):
            dead[item.key] = Letter(2, 3) if fate == "dead" else Letter(0, 1)
        if fate in (None, "cut"):
            continue
        raises = 3 if fate == "dead" else item.fails
        for n in range(raises + (fate == "finished")):
            at += 1.0
            history.executions[item.key].append(
                Execution(
                    item.key,
                    n,
                    n % 3 if attempts_of(item) == 3 else n,
                    f"{item.key}#{n}",
                    "worker",
                    2,
                    uid_of(workload, parent_of(item.key)),
                    at,
                    workload.digests[item.key],
                    [uid_of(workload, key) for key in item.needs],
                    len(item.needs),
                    [],
                    at + 0.5,
                    "PlannedFailure" if n < raises else "",
                    n < raises,
                )
            )
        if fate == "finished" and (workload.growing or item.key not in needed):
            uid = uid_of(workload, item.key)
            kept.append(Kept(item.key, workload.digests[item.key], uid))
    history.waited.append({"state": "done", "failed": bool(dead), "at": at + 1})
    added = len(workload.fates)
    left = Left(Remains(plan=[*DONE]), kept, dead, added, [*dead])
    return Case(history, left, Ledger(folder), SESSION_S)


def doomed(folder: Path) -> tuple[Case, str]:
    """With a task of three attempts that is dead, and its key."""
    seed = next(s for s in range(100) if "dead" in Workload.make(s, "failing").fates.values())
    case = honest(folder, "failing", seed)
    return case, next(key for key, fate in case.plan.workload.fates.items() if fate == "dead")


def uid_of(workload: Workload, key: str | None) -> str:
    return f"{key}#{workload.items[key].fails}" if key else ""


def winner(case: Case, index: int = 0) -> Execution:
    """The committed execution of a task that others need."""
    needed = sorted(key for key, uids in case.committed.items() if uids & set(case.by_uid))
    return max(case.plan.executions[needed[index]], key=lambda each: each.n)


def again(execution: Execution, n: int, uid: str = "other") -> Execution:
    return replace(execution, n=n, uid=uid, began=execution.began + 0.1)


def committed_twice(case: Case) -> Case:
    one = winner(case)
    other = again(one, one.n + 1)
    case.plan.executions[one.key].append(other)
    kept = Kept(one.key, one.digest, other.uid)
    return replace(case, left=replace(case.left, kept=[*case.left.kept, kept]))


def value_of_nobody(case: Case) -> Case:
    needy = next(each for each in case.everything if each.got)
    needy.got[0] = "nobody"
    return case


def value_of_an_unfinished(case: Case) -> Case:
    needy = next(each for each in case.everything if each.got)
    case.by_uid[needy.got[0]].ended = None
    return case


def stale_claim(case: Case) -> Case:
    one = winner(case)
    case.plan.executions[one.key].append(again(one, one.n + 1))
    return case


def same_attempt(case: Case) -> Case:
    one = winner(case)
    case.plan.executions[one.key].append(again(one, one.n))
    return case


def argument_missing(case: Case) -> Case:
    needy = next(each for each in case.everything if each.got)
    needy.got.pop()
    return case


def argument_wrong(case: Case) -> Case:
    next(each for each in case.everything if each.got).digest = "wrong"
    return case


def kept_wrong(case: Case) -> Case:
    first, *rest = case.left.kept
    return replace(case, left=replace(case.left, kept=[first._replace(digest="wrong"), *rest]))


def task_lost(case: Case) -> Case:
    sink = case.left.kept[-1].key
    del case.plan.executions[sink]
    return case


def refused_ran(case: Case) -> Case:
    case.plan.batches[0].state = "refused"
    return case


def half_an_add(case: Case) -> Case:
    batch = next(batch for batch in case.plan.batches.values() if len(batch.keys) > 1)
    batch.state = "begun"
    del case.plan.executions[batch.keys[-1]]
    return case


def added_by_a_failed_attempt(case: Case) -> Case:
    added = next(each for each in case.everything if each.by)
    maker = case.by_uid[added.by]
    failed = again(maker, maker.n + 7)
    failed.raised = "died"
    case.plan.executions[maker.key].append(failed)
    added.by = failed.uid
    return case


def not_kept(case: Case) -> Case:
    return replace(case, left=replace(case.left, kept=case.left.kept[1:]))


def left_over(case: Case) -> Case:
    remains = Remains(plan=["done", "ready", "task-0000000007"])
    return replace(case, left=replace(case.left, remains=remains))


def stranger_left(case: Case) -> Case:
    return replace(case, left=replace(case.left, remains=Remains(plan=[*DONE, "lock-1"])))


def child_missing(case: Case) -> Case:
    names = [name for name in DONE if name != "results"]
    return replace(case, left=replace(case.left, remains=Remains(plan=names)))


def inner_kept(case: Case) -> Case:
    keys = {each.key for each in case.left.kept}
    inner = next(e for e in case.everything if e.returned and e.key not in keys)
    kept = [*case.left.kept, Kept(inner.key, inner.digest, inner.uid)]
    return replace(case, left=replace(case.left, kept=kept))


def kept_twice(case: Case) -> Case:
    return replace(case, left=replace(case.left, kept=[*case.left.kept, case.left.kept[0]]))


def failure_of_a_finished(case: Case) -> Case:
    return replace(case, left=replace(case.left, failed=[case.left.kept[0].key]))


def ran_before_ready(case: Case) -> Case:
    first = min(each.began for each in case.everything)
    case.plan.batches[case.plan.workload.ready_after - 1].answered = first + 0.1
    return case


def ran_before_an_add_without_an_answer(case: Case) -> Case:
    first = min(each.began for each in case.everything)
    batch = case.plan.batches[case.plan.workload.ready_after - 1]
    batch.begun, batch.answered = first + 0.1, 0.0
    return case


def never_done(case: Case) -> Case:
    return replace(case, left=replace(case.left, remains=Remains(plan=["ready", "add-count"])))


def one_too_many(case: Case) -> Case:
    return replace(case, left=replace(case.left, added=case.left.added + 1))


def repeated_for_nothing(case: Case) -> Case:
    one = winner(case)
    earlier = replace(one, n=one.n - 1, uid="before", began=one.began - 0.1)
    case.plan.executions[one.key].append(earlier)
    return case


def done_too_early(case: Case) -> Case:
    case.plan.waited[0]["at"] = 1.0
    return case


def heard_of_a_cancel(case: Case) -> Case:
    case.plan.waited.append({"state": "cancelled", "failed": False, "at": 1e6})
    return case


def heard_that_it_is_gone(case: Case) -> Case:
    case.plan.waited.append({"state": "gone", "failed": False, "at": 1e6})
    return case


def cut_short(case: Case) -> Case:
    case.plan.cut_short = "PlanCancelled('chaos')"
    return case


def started_late(case: Case) -> Case:
    needy = next(each for each in case.everything if each.got)
    needy.began = max(case.by_uid[uid].ended or 0.0 for uid in needy.got) + 1000.0
    return replace(case, soon_s=999.0)


TAMPERED: dict[str, tuple[str, Callable[[Case], Case]]] = {
    "results are fixed once": ("S4", committed_twice),
    "values come from executions": ("S4", value_of_nobody),
    "which never returned": ("S4", value_of_an_unfinished),
    "the last claim commits": ("S5", stale_claim),
    "attempts are unique": ("S8", same_attempt),
    "arguments are exact": ("S3", argument_missing),
    "other arguments than": ("S3", argument_wrong),
    "results are the oracles": ("S4", kept_wrong),
    "nothing acknowledged is lost": ("L3", task_lost),
    "only the added runs": ("S4", refused_ran),
    "which is atomic": ("S4", half_an_add),
    "an attempt adds with its commit": ("S4", added_by_a_failed_attempt),
    "kept is what is to be kept": ("S4", not_kept),
    "nothing is left": ("S7", left_over),
    "`done` is missing": ("S7", never_done),
    "lock-1 is left": ("S7", stranger_left),
    "`results` is missing": ("S7", child_missing),
    "though it has dependents": ("S4", inner_kept),
    "is kept 2 times": ("S4", kept_twice),
    "failure kept, and no dead letter": ("S4", failure_of_a_finished),
    "nothing runs before it is ready": ("S9", ran_before_ready),
    "began before its plan was marked": ("S9", ran_before_an_add_without_an_answer),
    "counts agree": ("S7", one_too_many),
    "only losses and failures repeat": ("S8", repeated_for_nothing),
    "waiters hear the truth": ("S7", done_too_early),
    "a waiter heard that it is cancelled": ("S7", heard_of_a_cancel),
    "a waiter heard that it is gone": ("S7", heard_that_it_is_gone),
    "authors hear the truth": ("S7", cut_short),
    "tasks start soon": ("L2", started_late),
}


@pytest.mark.parametrize("shape", ["adding", "failing", "random", "growing", "hub", "huge join"])
@pytest.mark.parametrize("seed", range(5))
def test_an_honest_history_breaks_nothing(tmp_path: Path, shape: str, seed: int) -> None:
    assert violations(honest(tmp_path, shape, seed)) == []


@pytest.mark.parametrize("what", TAMPERED)
def test_a_tampered_history_is_found(tmp_path: Path, what: str) -> None:
    number, tamper = TAMPERED[what]
    case = tamper(honest(tmp_path, "adding", ADDING))
    found = violations(replace(case))
    assert any(text.startswith(number) and what in text for text in found), found


def test_of_each_dead_task_a_failure_is_kept(tmp_path: Path) -> None:
    case, key = doomed(tmp_path)
    case.left.failed.remove(key)
    assert any(f"task {key} has no failure kept" in text for text in violations(replace(case)))
    case.left.failed.extend([key, key])
    assert any(f"failure of {key} is kept 2 times" in text for text in violations(replace(case)))


def test_a_result_that_only_the_tasks_of_its_commit_need_is_not_kept(tmp_path: Path) -> None:
    """They get it with that commit, without an edge."""
    case = honest(tmp_path, "adding", ADDING)
    items = case.plan.workload.items.values()
    needed = {key for item in items for key in item.needs if parent_of(item.key) != key}
    lent = {key for item in items for key in item.needs} - needed
    assert lent
    for key in lent:
        ended = next(each for each in case.everything if each.key == key and each.returned)
        kept = Kept(key, ended.digest, ended.uid)
        broken = replace(case, left=replace(case.left, kept=[*case.left.kept, kept]))
        assert any(f"{key} is kept, though" in text for text in violations(broken))


def test_who_ended_before_it_was_needed_had_no_dependents(tmp_path: Path) -> None:
    """As where the plan runs while its author still defines a wide join."""
    case = inner_kept(honest(tmp_path, "diamonds", 0))
    assert any("though it has dependents" in text for text in violations(replace(case)))
    inner = case.left.kept[-1].key
    for batch in case.plan.batches.values():
        if any(inner in case.plan.workload.items[key].needs for key in batch.keys):
            batch.answered = max(each.ended or 0.0 for each in case.everything) + 1.0
    assert not any("though it has" in text for text in violations(replace(case)))


def test_what_open_adds_may_need_may_be_kept_or_not(tmp_path: Path) -> None:
    case = honest(tmp_path, "diamonds", 0)
    last = case.plan.batches[max(case.plan.batches)]
    needed = {key for name in last.keys for key in case.plan.workload.items[name].needs}
    last.state = "begun"
    for key in last.keys:
        case.plan.executions.pop(key, None)
    kept = [each for each in case.left.kept if each.key not in last.keys]
    for name in ("kept", "not kept"):
        found = violations(replace(case, left=replace(case.left, kept=kept)))
        assert not any("kept is what" in text for text in found), name
        runs = [e for key in needed - set(last.keys) for e in case.plan.executions[key]]
        kept = [*kept, *(Kept(each.key, each.digest, each.uid) for each in runs)]


# ---- how attempts are counted


def test_of_a_refused_add_those_run_that_were_told_added(tmp_path: Path) -> None:
    case = honest(tmp_path, "hub", 0)
    batch = next(batch for batch in case.plan.batches.values() if len(batch.keys) > 1)
    batch.state, batch.added = "refused", len(batch.keys) - 1
    last = f"task {batch.keys[-1]} ran and was never added"
    assert last in " ".join(violations(replace(case)))
    for key in batch.keys[1:]:
        del case.plan.executions[key]
    case.plan.executions.pop(batch.keys[0])
    batch.added = 1
    lost = f"task {batch.keys[0]} was acknowledged and never returned"
    assert lost in " ".join(violations(replace(case)))


def test_with_an_open_add_no_more_count_than_the_plan_has(tmp_path: Path) -> None:
    case = honest(tmp_path, "random", 1)
    last = case.plan.batches[max(case.plan.batches)]
    last.state = "begun"
    whole = len(case.plan.workload.items)
    assert len(case.acknowledged) < whole
    for added in (len(case.acknowledged) - 1, len(case.acknowledged), whole, whole + 1):
        found = violations(replace(case, left=replace(case.left, added=added)))
        wrong = not len(case.acknowledged) <= added <= whole
        assert any("counts agree" in text for text in found) == wrong, added


def test_an_add_that_was_refused_for_nothing_is_found(tmp_path: Path) -> None:
    case = honest(tmp_path, "hub", 0)
    case.ledger.plans[case.plan.workload.name] = case.plan
    assert wrong_refusals(case.ledger) == []
    case.plan.batches[0].state, case.plan.batches[0].error = "refused", "PlanDrained('it is done')"
    assert wrong_refusals(case.ledger) == []
    case.plan.batches[0].error = "ResultNotKept('T')"
    assert len(wrong_refusals(case.ledger)) == 1


def test_an_execution_after_the_commit_is_found(tmp_path: Path) -> None:
    case = honest(tmp_path, "hub", 0)
    case.plan.committed = {"top": 3}
    case.ledger.plans[case.plan.workload.name] = case.plan
    name = case.plan.workload.name
    (top,) = case.plan.executions["top"]
    case.ledger.late += [(name, replace(top, n=2)), (name, replace(top, n=3))]
    assert len(list(late_executions(case.ledger))) == 1
