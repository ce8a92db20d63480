"""What faults have cost is counted under their names: honest histories with one thing changed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from .faults.aim import Aim
from .judges.case import Case
from .judges.checks import violations
from .judges.effects import NO_FAULT, Effects
from .judges.histories import Execution
from .judges.scope import Scope
from .judges.windows import Window
from .test_the_checker_bites import honest, winner

PID = 2


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return honest(tmp_path, "diamonds", 11)


def effects(case: Case) -> Effects:
    found = Effects()
    found.add(case)
    return found


def lost_before(case: Case, ended: float | None) -> Execution:
    """One more execution of a task, before the committed one."""
    last = winner(case)
    first = replace(last, n=last.n - 1, uid="other", began=last.began - 0.2, ended=ended)
    case.plan.executions[last.key].append(first)
    return first


def test_failures_that_are_planned_cost_nothing(tmp_path: Path) -> None:
    case = honest(tmp_path, "failing", 11)
    assert any(each.planned for each in case.everything)
    assert effects(case) == Effects()


def test_an_execution_that_returned_late_is_repeated_and_fenced(case: Case) -> None:
    first = lost_before(case, winner(case).began + 0.1)
    window = Window("worker paused", first.began + 0.01, Aim(pids=[PID]), first.began + 0.1)
    later = Window("worker killed", first.began + 1.0, Aim(pids=[PID]))
    case.ledger.windows += [window, later]
    assert not [text for text in violations(case) if "repeats" in text]
    found = effects(case)
    assert found.repeated == {"worker paused": 1}
    assert found.fenced == {"worker paused": 1}


def test_an_execution_of_a_process_that_died_is_repeated_and_not_fenced(case: Case) -> None:
    first = lost_before(case, None)
    case.ledger.windows.append(Window("worker killed", first.began + 0.01, Aim(pids=[PID])))
    assert effects(case).repeated == {"worker killed": 1}
    assert not effects(case).fenced


def test_a_fault_that_was_healed_shortly_before_is_named_where_there_is_no_other(
    case: Case,
) -> None:
    first = lost_before(case, None)
    before = Window("link cut", first.began - 1.0, Aim(pids=[PID]), first.began - 0.5)
    case.ledger.windows.append(before)
    assert effects(case).repeated == {"link cut": 1}
    for name in ("worker killed", "outage"):
        case.ledger.windows.append(Window(name, first.began + 0.01, Aim(pids=[PID])))
    assert effects(case).repeated == {"outage, worker killed": 1}


def test_a_fault_of_another_process_is_not_named(case: Case) -> None:
    first = lost_before(case, None)
    case.ledger.windows.append(Window("worker killed", first.began, Aim(pids=[PID + 1])))
    assert effects(case).repeated == {NO_FAULT: 1}


def test_a_result_that_nobody_got_may_be_committed_all_the_same(case: Case) -> None:
    """As of a plan that was removed."""
    one = winner(case)
    gone = replace(case, left=replace(case.left, kept=[]))
    for each in gone.everything:
        each.got.clear()
    assert one.returned
    assert not gone.committed
    assert not effects(gone).fenced


@pytest.mark.parametrize("shape", ["failing", "diamonds"])
def test_every_execution_is_accounted_for(shape: str, tmp_path: Path) -> None:
    """The first of its task, after a planned failure, or repeated: none twice, none left out."""
    case = honest(tmp_path, shape, 11)
    if shape == "diamonds":
        lost_before(case, None)
    scope = Scope()
    scope.add(case)
    repeated = effects(case).repeated.total()
    assert (scope.retried > 0, repeated > 0) == (shape == "failing", shape == "diamonds")
    everything = [each for runs in case.plan.executions.values() for each in runs]
    assert scope.ran + scope.retried + repeated == len(everything)
    assert scope.values == sum(len(each.got) for each in everything) > 0
