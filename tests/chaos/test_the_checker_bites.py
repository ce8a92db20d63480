"""Every check of the checker finds what it is for, in an honest history with one thing changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from zkplan.stress.checks import Remains

from .actors.workloads import Workload, parent_of
from .faults.aim import Aim
from .judges.checks import Case, Kept, Left, late_executions, noticed_s, violations, wrong_refusals
from .judges.ledger import Batch, Execution, Ledger, PlanHistory, Window

SESSION_S = 3.0
ADDING = 11


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
            dead[item.key] = 3
        if fate in (None, "cut"):
            continue
        raises = 3 if fate == "dead" else item.fails
        for n in range(raises + (fate == "finished")):
            at += 1.0
            history.executions[item.key].append(
                Execution(
                    item.key,
                    n,
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
    left = Left(Remains(plan=["done", "ready"]), kept, dead, added)
    return Case(history, left, Ledger(folder), SESSION_S)


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


def never_done(case: Case) -> Case:
    return replace(case, left=replace(case.left, remains=Remains(plan=["ready", "adds"])))


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
    "counts agree": ("S7", one_too_many),
    "attempts are counted right": ("S8", repeated_for_nothing),
    "waiters hear the truth": ("S7", done_too_early),
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


def test_a_dead_task_that_nobody_tried_enough_is_found(tmp_path: Path) -> None:
    seed = next(s for s in range(100) if "dead" in Workload.make(s, "failing").fates.values())
    case = honest(tmp_path, "failing", seed)
    key = next(key for key, fate in case.plan.workload.fates.items() if fate == "dead")
    case.plan.executions[key].pop()
    # A fault of later excuses nothing.
    after = max(each.ended or 0.0 for each in case.plan.executions[key]) + 1.0
    case.ledger.windows.append(Window("a fault", after))
    assert any("attempts are counted right" in text for text in violations(replace(case)))
    case.ledger.windows[0].begin = after - 2.0
    assert not any("attempts are counted right" in text for text in violations(replace(case)))


def test_attempts_that_nobody_made_are_found(tmp_path: Path) -> None:
    seed = next(s for s in range(100) if "dead" in Workload.make(s, "failing").fates.values())
    case = honest(tmp_path, "failing", seed)
    key = next(key for key, fate in case.plan.workload.fates.items() if fate == "dead")
    case.left.dead[key] = 4
    # Neither excuses a worker of this plan: one was over long before, one hit an author.
    case.ledger.windows.append(Window("a fault", -60.0, end=-50.0))
    case.ledger.windows.append(Window("a fault", 1.0, Aim(names=["author"])))
    assert any("used up 4 attempts in 3" in text for text in violations(replace(case)))
    case.ledger.windows.append(Window("a fault", 1.0))
    assert not any("used up" in text for text in violations(replace(case)))


def test_a_dead_task_may_have_lost_an_attempt_of_which_nobody_tells(tmp_path: Path) -> None:
    seed = next(s for s in range(100) if "dead" in Workload.make(s, "failing").fates.values())
    case = honest(tmp_path, "failing", seed)
    key = next(key for key, fate in case.plan.workload.fates.items() if fate == "dead")
    last = case.plan.executions[key].pop()
    # The worker of the last attempt was lost: the next claim had none left, and wrote one more.
    case.left.dead[key] = 4
    case.ledger._workers.add("worker0")
    case.ledger.windows.append(Window("a fault", 1.0, Aim(names=["author"])))
    assert any("failed 2 times" in text for text in violations(replace(case)))
    case.ledger.windows.append(Window("a fault", last.began, Aim(names=["worker0"])))
    assert not any("failed 2 times" in text for text in violations(replace(case)))
    # The numbers of its claims are without a gap: nothing was lost.
    case.left.dead[key] = 3
    assert any("failed 2 times" in text for text in violations(replace(case)))


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


def test_an_add_that_was_refused_for_nothing_is_found(tmp_path: Path) -> None:
    case = honest(tmp_path, "hub", 0)
    case.ledger.plans[case.plan.workload.name] = case.plan
    assert wrong_refusals(case.ledger) == []
    case.plan.batches[0].state, case.plan.batches[0].error = "refused", "PlanDrained('it is done')"
    assert wrong_refusals(case.ledger) == []
    case.plan.batches[0].error = "ResultNotKept('T')"
    assert len(wrong_refusals(case.ledger)) == 1


def test_a_repetition_after_a_fault_is_allowed(tmp_path: Path) -> None:
    case = repeated_for_nothing(honest(tmp_path, "adding", ADDING))
    case.ledger.windows.append(Window("a fault", 0.0))
    assert not any("attempts are counted" in text for text in violations(replace(case)))


def test_a_fault_excuses_as_long_as_a_loss_takes_to_be_noticed(tmp_path: Path) -> None:
    case = repeated_for_nothing(honest(tmp_path, "adding", ADDING))
    runs = [each for some in case.plan.executions.values() for each in some]
    repeated = next(each for each in runs if each.uid == "before")
    assert noticed_s(SESSION_S) < 2 * SESSION_S
    healed = repeated.began - noticed_s(SESSION_S)
    case.ledger.windows.append(Window("a fault", -100.0, end=healed + 0.1))
    assert not any("nothing had disturbed" in text for text in violations(replace(case)))
    case.ledger.windows[0].end = healed - 0.1
    assert any("nothing had disturbed" in text for text in violations(replace(case)))


def test_a_fault_after_the_commit_excuses_no_repetition(tmp_path: Path) -> None:
    case = repeated_for_nothing(honest(tmp_path, "adding", ADDING))
    runs = next(some for some in case.plan.executions.values() if some[-1].uid == "before")
    ended = runs[-1].ended or 0.0
    for other in runs[:-1]:
        other.began += 100.0
        other.ended = other.began + 0.5
    case.ledger.windows.append(Window("a fault", ended + 5.0, end=ended + 6.0))
    assert not any("nothing had disturbed" in text for text in violations(replace(case)))
    case.ledger.windows[0].begin = case.ledger.windows[0].end = ended + 60.0
    assert any("nothing had disturbed" in text for text in violations(replace(case)))


def test_an_execution_after_the_commit_is_found(tmp_path: Path) -> None:
    case = honest(tmp_path, "hub", 0)
    case.plan.committed = {"top": 3}
    case.ledger.plans[case.plan.workload.name] = case.plan
    name = case.plan.workload.name
    late = winner(case)
    case.ledger.late += [
        (name, replace(late, key="top", n=2)),
        (name, replace(late, key="top", n=3)),
    ]
    assert len(list(late_executions(case.ledger))) == 1
