"""Attempts are counted as ADR 11 says: the checker finds each history where they are not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from .faults.aim import Aim
from .judges.case import Case, Letter, noticed_s
from .judges.checks import violations
from .judges.histories import Execution
from .judges.windows import Window
from .test_operators_are_checked import retry
from .test_the_checker_bites import (
    ADDING,
    SESSION_S,
    doomed,
    honest,
    repeated_for_nothing,
    winner,
)


def counting(case: Case) -> list[str]:
    found = violations(replace(case))
    return [text for text in found if text.startswith("S8 attempts are counted right")]


def test_a_dead_task_that_nobody_tried_enough_is_found(tmp_path: Path) -> None:
    case, key = doomed(tmp_path)
    case.plan.executions[key].pop()
    for letter in (Letter(2, 3), Letter(1, 3), Letter(1, 2)):
        case.left.dead[key] = letter
        assert any(f"task {key} died" in text for text in counting(case)), letter
    # No fault excuses that: who is lost leaves the task alive.
    case.ledger.windows.append(Window("a fault", 0.0))
    for letter in (Letter(2, 3), Letter(1, 3), Letter(1, 2)):
        case.left.dead[key] = letter
        assert any(f"task {key} died" in text for text in counting(case)), letter


def test_a_task_that_goes_on_after_its_last_attempt_is_found(tmp_path: Path) -> None:
    case, key = doomed(tmp_path)
    case.left.dead[key] = Letter(3, 3)
    # Neither excuses a worker of this plan: one was over long before, one hit an author.
    case.ledger.windows.append(Window("a fault", -60.0, end=-50.0))
    case.ledger.windows.append(Window("a fault", 1.0, Aim(names=["author"])))
    assert any("its last attempt, and another" in text for text in counting(case))
    one = case.plan.executions[key][-1]
    case.plan.executions[key].append(replace(one, n=3, a=3, uid="fourth", began=one.began + 1.0))
    case.left.dead[key] = Letter(3, 3)
    assert any("began with 3 attempts used up of 3" in text for text in counting(case))


def handed_back(folder: Path) -> tuple[Case, list[Execution]]:
    """A task of three attempts whose second claim was handed back: it costs none of them."""
    case, key = doomed(folder)
    runs = case.plan.executions[key]
    second = replace(runs[1], uid="back", ended=None, raised="", planned=False, pid=77)
    runs[1:] = [second, *(replace(each, n=each.n + 1) for each in runs[1:])]
    case.ledger._stops[77].append(second.began + 0.1)
    case.ledger.windows.append(
        Window("worker told to stop", second.began, Aim(names=["worker0"], hands_back=True))
    )
    case.ledger._actors[77].add("worker0")
    case.left.dead[key] = Letter(3, 3)
    return case, runs


def test_a_hand_back_that_costs_an_attempt_is_found(tmp_path: Path) -> None:
    case, runs = handed_back(tmp_path)
    assert violations(replace(case)) == []
    # As the audit had it: one failure less, for the hand-back counted as one.
    runs[2].a = 2
    del runs[3]
    case.left.dead[runs[0].key] = Letter(2, 3)
    (found,) = counting(case)
    assert "began with 2 attempts used up, not [1]" in found


def test_only_who_was_stopped_may_have_handed_back(tmp_path: Path) -> None:
    case, runs = handed_back(tmp_path)
    case.ledger._stops.clear()
    assert any("nothing had disturbed" in text for text in violations(replace(case)))
    # A stop after the function had ended, and after its grace, gives nothing back.
    case.ledger._stops[77].append(runs[1].began + 5.0)
    runs[1].ended = runs[1].began + 0.5
    assert any("nothing had disturbed" in text for text in violations(replace(case)))


@pytest.mark.parametrize(("n", "costs"), [(1, 0), (2, 1)], ids=["first", "second"])
def test_the_first_loss_after_failures_is_free_and_the_next_one_is_not(
    tmp_path: Path, n: int, costs: int
) -> None:
    """Claims 0 and, for the second loss, 1 are known; claim `n` is killed while it runs."""
    case, key = doomed(tmp_path)
    runs = case.plan.executions[key]
    one = replace(runs[1], ended=None, raised="", planned=False)
    lost = [
        replace(one, n=at, uid=f"lost{at}", pid=70 + at, began=one.began - 0.4 + at / 10)
        for at in range(1, n + 1)
    ]
    rest = [replace(each, n=each.n + n, a=each.a + costs) for each in runs[1:]]
    if costs:
        rest.pop()
    runs[1:] = [*lost, *rest]
    for each in lost:
        case.ledger._kills[each.pid].append(each.began + 0.05)
    case.left.dead[key] = Letter(runs[-1].n, 3)
    assert violations(replace(case)) == []
    following = runs[n + 1]
    following.a += 1 - 2 * costs
    assert any(f"{following} began with" in text for text in counting(case))


def test_of_an_ordinary_task_too_attempts_are_counted(tmp_path: Path) -> None:
    """It has more than it can need, and so would never die of a miscount."""
    case = honest(tmp_path, "failing", 0)
    failing = next(r for r in case.plan.executions.values() if len(r) > 1 and not r[-1].raised)
    failing[-1].a -= 1
    (found,) = counting(case)
    assert f"{failing[-1]} began with" in found


def test_an_attempt_may_be_lost_of_which_nobody_tells(tmp_path: Path) -> None:
    case, runs = handed_back(tmp_path)
    key = runs[0].key
    # The last claim noted its start, and was killed: the next one had no attempt left.
    runs.pop()
    case.left.dead[key] = Letter(4, 3)
    case.ledger._workers.add("worker0")
    assert any("died after 3 attempts" in text for text in counting(case))
    case.ledger.windows.append(Window("a fault", runs[-1].began, Aim(names=["author"])))
    assert any("died after 3 attempts" in text for text in counting(case))
    # Who is told to stop loses none.
    aim = Aim(names=["worker0"], hands_back=True)
    case.ledger.windows.append(Window("worker told to stop", runs[-1].began, aim))
    assert any("died after 3 attempts" in text for text in counting(case))
    case.ledger.windows.append(Window("a fault", runs[-1].began, Aim(names=["worker0"])))
    assert counting(case) == []
    # The numbers of its claims are without a gap: nothing was lost.
    case.left.dead[key] = Letter(3, 3)
    assert any(f"task {key} died" in text for text in counting(case))


@pytest.mark.parametrize("outcome", ["refused", "gone", "done", ""])
def test_a_retry_that_did_not_happen_excuses_no_count(tmp_path: Path, outcome: str) -> None:
    case, key = doomed(tmp_path)
    case.plan.executions[key][1].a = 7
    retried = replace(retry(key, 2), outcome=outcome)
    case.ledger.operations.of_plan[case.plan.workload.name].append(retried)
    assert bool(counting(case)) == (outcome in ("refused", "gone"))


def kills(case: Case, *pids: int, at: float) -> None:
    """Those processes, of workers of their own, were killed then."""
    for pid in pids:
        case.ledger._kills[pid].append(at)
        case.ledger._actors[pid].add(f"worker{pid}")
        case.ledger._workers.add(f"worker{pid}")


def test_a_kill_and_its_fault_are_one_loss(tmp_path: Path) -> None:
    ledger = (case := honest(tmp_path, "one", 0)).ledger
    kills(case, 77, at=10.0)
    assert ledger.losses(9.0, 12.0) == 1
    ledger.windows.append(Window("worker killed", 9.9, Aim(names=["worker77"]), 10.5))
    assert ledger.losses(9.0, 12.0) == 1
    # By another fault it is one more, as is the kill of another worker.
    ledger.windows.append(Window("link cut", 9.9, Aim(names=["worker78"]), 10.5))
    assert ledger.losses(9.0, 12.0) == 1
    kills(case, 78, at=11.0)
    assert ledger.losses(9.0, 12.0) == 3
    # Who is told to stop loses nothing by it, and is killed where that takes too long.
    kills(case, 79, at=20.0)
    aim = Aim(names=["worker79"], hands_back=True)
    ledger.windows.append(Window("worker told to stop", 19.0, aim, 21.0))
    assert ledger.losses(18.0, 22.0) == 1


def test_who_died_at_a_point_and_is_found_late_is_one_loss(tmp_path: Path) -> None:
    ledger = (case := honest(tmp_path, "one", 0)).ledger
    kills(case, 77, at=12.0)
    ledger.windows.append(Window("at a point", 9.0, Aim(pids=[77], codes=[-9]), 11.0))
    assert ledger.losses(10.0, 13.0) == 1
    ledger.windows[0].aim = Aim(pids=[77])
    assert ledger.losses(10.0, 13.0) == 2


def test_a_repetition_after_a_fault_is_allowed(tmp_path: Path) -> None:
    case = repeated_for_nothing(honest(tmp_path, "adding", ADDING))
    case.ledger.windows.append(Window("a fault", 0.0))
    assert not any(text.startswith("S8") for text in violations(replace(case)))


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


def test_who_lacks_memory_may_fail_for_good_and_not_tell_of_it(tmp_path: Path) -> None:
    case, key = doomed(tmp_path)
    last = case.plan.executions[key].pop()
    case.left.dead[key] = Letter(last.n, last.a + 1)
    assert any("died after 3 attempts" in text for text in counting(case))
    case.ledger._pokes.append(("memory", last.began - 0.1, 77))
    assert counting(case) == []
    # It is the last of its attempts all the same.
    case.left.dead[key] = Letter(last.n, last.a)
    assert any("died with 2 attempts used up of 3" in text for text in counting(case))


@pytest.mark.parametrize("line", [False, True], ids=["without a line", "without its end"])
def test_who_lacks_memory_may_fail_and_not_tell_of_it(tmp_path: Path, line: bool) -> None:
    """Its arguments cannot be opened, or nothing can be written down: that attempt failed."""
    case = honest(tmp_path, "adding", ADDING)
    one = winner(case)
    runs = case.plan.executions[one.key]
    runs.remove(one)
    if line:
        runs.append(replace(one, uid="robbed", pid=77, began=one.began - 0.2, ended=None))
    runs.append(replace(one, n=one.n + 1, a=one.a + 1))
    window = Window("task eats memory", one.began - 0.4, Aim(poke="memory"), one.began)
    case.ledger.windows.append(window)
    case.ledger._workers.add("worker0")
    case.ledger._actors[77].add("worker0")
    assert counting(case) != []
    case.ledger._pokes.append(("memory", one.began - 0.3, 77))
    assert counting(case) == []
    # It was short for a moment only, and one claim fails once.
    case.ledger._pokes[0] = ("memory", one.began - 60.0, 77)
    assert counting(case) != []
    case.ledger._pokes[0] = ("memory", one.began - 0.3, 77)
    runs[-1].a += 1
    assert counting(case) != []
