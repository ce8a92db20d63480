"""Every check of plans that operators touched finds what it is for, in an honest history."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from zkplan.stress.checks import Remains
from zkplan.stress.history import Recorder

from .faults.aim import Aim
from .judges.case import Kept, Letter
from .judges.checks_operators import Stopped, violations_of_operations, violations_of_stopped
from .judges.ledger import Ledger
from .judges.operations import Operation, Operations
from .judges.rest import Rest, every_edge_has_two_ends, every_task_is_in_one_place, is_quiet
from .judges.windows import Window
from .test_the_checker_bites import DONE, again, honest

ADDING = 11
NOW = 1e6


def cancelled(folder: Path) -> Stopped:
    """Cancelled when half of what runs had run."""
    whole = honest(folder, "adding", ADDING)
    order = sorted(whole.everything, key=lambda each: each.began)
    for execution in order[len(order) // 2 :]:
        whole.plan.executions.pop(execution.key, None)
    whole.plan.waited.clear()
    standing = set(whole.plan.workload.fates) - set(whole.plan.executions)
    # A task that an unfinished one adds does not exist.
    standing = {key for key in standing if not any(key.startswith(f"{p}/") for p in standing)}
    kept = [each for each in whole.left.kept if each.key in whole.plan.executions]
    remains = Remains(plan=[name for name in DONE if name != "done"])
    case = replace(whole, left=replace(whole.left, kept=kept, remains=remains))
    stopped = Stopped(case, "cancelled", [cancel()], standing)
    added = len(stopped.certain)
    return replace(stopped, case=replace(case, left=replace(case.left, added=added)))


def cancel() -> Operation:
    seen = {"at": NOW, "claims": {}, "entries": {}, "standing": [], "late": [], "resumed": False}
    return Operation("uid", "cancel", "/z/plan-1", NOW, {}, NOW, "done", seen, "PlanCancelled")


def removed(folder: Path) -> Stopped:
    stopped = cancelled(folder)
    seen = {"at": NOW, "numbers": [], "late": [], "resumed": False}
    remove = Operation("uid", "remove", "/z/plan-1", NOW, {}, NOW, "done", seen, "PlanNotFound")
    return replace(stopped, ending="removed", operations=[remove], standing=set())


def claimed_afterwards(stopped: Stopped) -> Stopped:
    one = stopped.case.everything[0]
    stopped.operations[0].answered = one.began - 0.1
    stopped.operations[0].seen |= {"standing": [one.key], "entries": {one.key: one.n}}
    return stopped


def lost_on_the_way(stopped: Stopped) -> Stopped:
    key = next(iter(stopped.certain & stopped.standing))
    return replace(stopped, standing=stopped.standing - {key})


def never_added(stopped: Stopped) -> Stopped:
    return replace(stopped, standing=stopped.standing | {"stranger"})


def half_added(stopped: Stopped) -> Stopped:
    batch = next(b for b in stopped.case.plan.batches.values() if len(b.keys) > 1)
    batch.state = "begun"
    stopped.case.plan.executions.pop(batch.keys[0], None)
    others = {*stopped.standing, *batch.keys[1:]} - {batch.keys[0]}
    return replace(stopped, standing=others)


def one_too_many(stopped: Stopped) -> Stopped:
    left = replace(stopped.case.left, added=stopped.case.left.added + 1)
    return replace(stopped, case=replace(stopped.case, left=left))


def done_all_the_same(stopped: Stopped) -> Stopped:
    left = replace(stopped.case.left, remains=Remains(plan=[*DONE]))
    return replace(stopped, case=replace(stopped.case, left=left))


def stranger_left(stopped: Stopped) -> Stopped:
    remains = Remains(plan=[*stopped.case.left.remains.plan, "lock-1"])
    left = replace(stopped.case.left, remains=remains)
    return replace(stopped, case=replace(stopped.case, left=left))


def ran_while_it_waited(stopped: Stopped) -> Stopped:
    """As of a join that its author had not defined wholly when it died."""
    return replace(stopped, unready={stopped.case.everything[0].key})


def inner_kept(stopped: Stopped) -> Stopped:
    case = stopped.case
    keys = {each.key for each in case.left.kept}
    inner = next(e for e in case.everything if e.returned and e.key not in keys)
    kept = [*case.left.kept, Kept(inner.key, inner.digest, inner.uid)]
    return replace(stopped, case=replace(case, left=replace(case.left, kept=kept)))


def standing_kept(stopped: Stopped) -> Stopped:
    case, key = stopped.case, next(iter(stopped.standing))
    kept = [*case.left.kept, Kept(key, case.plan.workload.digests[key], "uid")]
    return replace(stopped, case=replace(case, left=replace(case.left, kept=kept)))


def resumed(stopped: Stopped) -> Stopped:
    stopped.operations[0].seen["resumed"] = True
    return stopped


def heard_that_it_is_done(stopped: Stopped) -> Stopped:
    stopped.case.plan.waited.append({"state": "done", "failed": False, "at": NOW})
    return stopped


def in_two_places(stopped: Stopped) -> Stopped:
    rest = resting()
    rest.places["2"].append("delayed")
    return replace(stopped, rest=rest)


def same_attempt(stopped: Stopped) -> Stopped:
    one = stopped.case.everything[0]
    stopped.case.plan.executions[one.key].append(again(one, one.n))
    return stopped


TAMPERED: dict[str, tuple[str, Callable[[Stopped], Stopped]]] = {
    "nothing is claimed afterwards": ("S9", claimed_afterwards),
    "every task stands or ended": ("L3", lost_on_the_way),
    "task stranger was never added": ("S4", never_added),
    "which is atomic": ("S4", half_added),
    "counts agree": ("S7", one_too_many),
    "`done` stands in a cancelled plan": ("S9", done_all_the_same),
    "a cancelled plan was resumed": ("S9", resumed),
    "lock-1 is left": ("S9", stranger_left),
    "a waiter heard that it is done": ("S9", heard_that_it_is_done),
    "what waits has not run": ("S3", ran_while_it_waited),
    "though it has dependents": ("S4", inner_kept),
    "which has not finished": ("S4", standing_kept),
    "it rests whole": ("S1, S2", in_two_places),
    "attempts are unique": ("S8", same_attempt),
}


def test_an_honest_cancel_breaks_nothing(tmp_path: Path) -> None:
    stopped = cancelled(tmp_path)
    assert stopped.standing
    assert stopped.case.everything
    assert violations_of_stopped(replace(stopped, rest=resting())) == []
    assert violations_of_operations(stopped.case, stopped.operations) == []


@pytest.mark.parametrize("what", TAMPERED)
def test_a_tampered_cancel_is_found(tmp_path: Path, what: str) -> None:
    number, tamper = TAMPERED[what]
    stopped = tamper(cancelled(tmp_path))
    found = violations_of_stopped(replace(stopped, case=replace(stopped.case)))
    assert any(text.startswith(number) and what in text for text in found), found


def test_a_removed_plan_commits_and_starts_nothing(tmp_path: Path) -> None:
    stopped = removed(tmp_path)
    assert violations_of_stopped(stopped) == []
    needy = next(each for each in stopped.case.everything if each.got)
    operation = stopped.operations[0]
    operation.answered = (stopped.case.by_uid[needy.got[0]].ended or 0.0) - 0.1
    assert any("committed afterwards" in text for text in violations_of_stopped(stopped))
    operation.answered, operation.seen["at"] = NOW, needy.began - 0.1
    for batch in stopped.case.plan.batches.values():
        batch.numbers = list(batch.keys)
    by_author = [key for key in stopped.case.plan.executions if "/" not in key]
    operation.seen["at"] = stopped.case.plan.executions[by_author[-1]][0].began - 0.1
    assert any("without a claim" in text for text in violations_of_stopped(stopped))


@pytest.mark.parametrize("what", ["heard", "late", "late before a resume"])
def test_what_operators_were_told_and_saw_is_checked(tmp_path: Path, what: str) -> None:
    stopped = cancelled(tmp_path)
    if what == "heard":
        stopped.operations[0].heard = "WaitTimeout"
    elif what == "late":
        stopped.operations[0].seen["late"] = ["claims/claim"]
    else:
        seen = {"late": ["claims/claim"]}
        stopped.operations.append(Operation("2", "resume", "/p", NOW, {}, seen=seen))
    found = violations_of_operations(stopped.case, stopped.operations)
    assert len(found) == 1
    assert found[0].startswith("S9")


def test_a_waiter_without_a_server_has_a_fault_to_blame(tmp_path: Path) -> None:
    stopped = cancelled(tmp_path)
    operation = stopped.operations[0]
    operation.heard, operation.heard_at = "ZooKeeperUnavailable", NOW + 5.0
    assert len(violations_of_operations(stopped.case, stopped.operations)) == 1
    # Of a worker it is none, for a waiter of an operator has no link that is cut.
    windows = stopped.case.ledger.windows
    windows.append(Window("worker killed", NOW, Aim(names=["worker0"])))
    windows.append(Window("server killed", NOW - 60.0, end=NOW - 50.0))
    windows.append(Window("server killed", NOW + 6.0))
    assert len(violations_of_operations(stopped.case, stopped.operations)) == 1
    windows.append(Window("server killed", NOW + 4.0))
    assert violations_of_operations(stopped.case, stopped.operations) == []


def test_an_operator_that_was_told_of_the_removal_is_owed_it() -> None:
    operations = Operations()
    begun = {"event": "operator begun", "uid": "1", "what": "remove", "plan": "P", "path": "/p"}
    operations.take({**begun, "at": 1.0})
    assert operations.ending("P") == "removed"
    assert not operations.was_removed("P", 9.0)
    operations.take({"event": "operator answered", "uid": "1", "outcome": "done", "at": 2.0})
    assert not operations.was_removed("P", 1.5)
    assert operations.was_removed("P", 9.0)
    operations.take({"event": "operator heard", "uid": "1", "heard": "PlanNotFound", "at": 3.0})
    assert operations.named("P", "remove")[0].heard_at == 3.0


def retry(key: str, n: int) -> Operation:
    facts = {"key": key, "n": n, "a": 3}
    return Operation(f"{key}{n}", "retry", "/z/plan-1", NOW, facts, NOW, "done")


def test_retries_are_counted(tmp_path: Path) -> None:
    case = honest(tmp_path, "held", 0)
    retries = [retry(item.key, 2) for item in case.plan.workload.items.values() if item.fails == 5]
    assert retries
    assert violations_of_operations(case, retries) == []
    twice = violations_of_operations(case, [*retries, retries[0]])
    assert any("retried once" in text for text in twice)
    early = violations_of_operations(case, [retry(retries[0].facts["key"], 1)])
    assert any("gives all attempts" in text for text in early)
    refused = replace(retry(retries[0].facts["key"], 1), outcome="refused")
    assert violations_of_operations(case, [*retries, refused]) == []
    none = violations_of_operations(case, [retry(retries[0].facts["key"], 9)])
    assert any("gives all attempts" in text for text in none)


def test_an_attempt_may_be_lost_before_its_first_line(tmp_path: Path) -> None:
    """Its worker has noted in ZooKeeper that it starts: it counts, and nobody tells of it."""
    case = honest(tmp_path, "held", 0)
    key = next(item.key for item in case.plan.workload.items.values() if item.fails == 5)
    runs = case.plan.executions[key]
    # In its second life its starts are noted. Claim 5 is the one that was lost.
    retries = [retry(key, 2)]
    runs[5:] = [replace(each, n=each.n + 1) for each in runs[5:]]
    assert violations_of_operations(case, retries) == []
    runs[5].raised, runs[5].planned = "PlannedFailure", True
    case.left.dead[key] = Letter(7, 3)
    runs.append(replace(runs[5], n=9, uid="again", a=0))
    retries.append(replace(retry(key, 7), facts={"key": key, "n": 7, "a": 3}))
    del case.left.dead[key], runs[5]
    case.ledger._workers.add("worker0")
    assert len(violations_of_operations(case, retries)) == 1
    unrelated = Window("a fault", 1.0, Aim(names=["author"]))
    case.ledger.windows.append(unrelated)
    assert len(violations_of_operations(case, retries)) == 1
    # Not one that touched any of the executions that are known.
    case.ledger.windows.append(Window("a fault", NOW - 2.0, Aim(names=["worker0"])))
    assert violations_of_operations(case, retries) == []
    # One loss uses up one attempt.
    del runs[4]
    assert len(violations_of_operations(case, retries)) == 1


def resting() -> Rest:
    """Task 1 feeds task 2, which is runnable for another reason than that; both are whole."""
    rest = Rest()
    rest.children = {
        "1": ["prov-0", "ready"],
        "2": ["arg-0", "ready"],
        "3": ["arg-0", "dep-1", "ready"],
    }
    rest.versions = {"1": (1, 0), "2": (2, 1), "3": (1, 2)}
    rest.places["1"] = ["runnable"]
    rest.places["2"] = ["dead"]
    rest.provisions = ["task-3/dep-1"]
    return rest


def test_a_plan_at_rest_is_checked() -> None:
    assert not list(every_task_is_in_one_place(resting()))
    assert not list(every_edge_has_two_ends(resting()))
    assert is_quiet(resting())

    nowhere = resting()
    del nowhere.places["1"]
    assert len(list(every_task_is_in_one_place(nowhere))) == 1

    of_nobody = resting()
    of_nobody.places["4"] = ["runnable"]
    assert len(list(every_task_is_in_one_place(of_nobody))) == 1

    one_end = resting()
    one_end.provisions = []
    assert len(list(every_edge_has_two_ends(one_end))) == 1
    other_end = resting()
    other_end.children["3"].remove("dep-1")
    assert len(list(every_edge_has_two_ends(other_end))) == 1

    both = resting()
    both.children["3"].append("arg-1")
    assert len(list(every_edge_has_two_ends(both))) == 1

    owed = resting()
    owed.places["2"] = ["pending"]
    owed.versions["2"] = (1, 1)
    assert not is_quiet(owed)
    assert not is_quiet(replace(resting(), claims=["claims/claim"]))


def test_what_an_author_was_told_of_its_plan_is_read(tmp_path: Path) -> None:
    author = Recorder(str(tmp_path), "author-7")
    author.write("cut short", seed=5, shape="one", error="PlanNotFound('chaos-5')")
    author.close()
    ledger = Ledger(tmp_path, "one")
    ledger.read()
    assert ledger.plans["chaos-5"].cut_short == "PlanNotFound('chaos-5')"
