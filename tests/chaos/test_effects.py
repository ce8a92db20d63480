"""What faults have cost is counted under their names: honest histories with one thing changed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from .faults.aim import Aim
from .honest import done, winner
from .validate.checks import violations
from .validate.evidence import PlanEvidence
from .validate.measures import NO_FAULT, Coverage, Effects
from .validate.plans import Execution
from .validate.windows import Window

PID = 2


@pytest.fixture
def evidence(tmp_path: Path) -> PlanEvidence:
    return done("diamonds", 11)(tmp_path)


def effects(evidence: PlanEvidence) -> Effects:
    found = Effects()
    found.add(evidence)
    return found


def lost_before(evidence: PlanEvidence, ended: float | None) -> Execution:
    """One more execution of a task, before the committed one."""
    last = winner(evidence)
    first = replace(last, n=last.n - 1, uid="other", began=last.began - 0.2, ended=ended)
    evidence.plan.executions[last.key].append(first)
    return first


def test_failures_that_are_planned_cost_nothing(tmp_path: Path) -> None:
    evidence = done("failing", 11)(tmp_path)
    assert any(each.planned for each in evidence.everything)
    assert effects(evidence) == Effects()


def test_an_execution_that_returned_late_is_repeated_and_fenced(evidence: PlanEvidence) -> None:
    first = lost_before(evidence, winner(evidence).began + 0.1)
    window = Window("worker paused", first.began + 0.01, Aim(pids=[PID]), first.began + 0.1)
    later = Window("worker killed", first.began + 1.0, Aim(pids=[PID]))
    evidence.history.windows += [window, later]
    assert not [text for text in violations(evidence) if "repeats" in text]
    found = effects(evidence)
    assert found.repeated == {"worker paused": 1}
    assert found.fenced == {"worker paused": 1}


def test_an_execution_of_a_dead_process_is_repeated_and_not_fenced(
    evidence: PlanEvidence,
) -> None:
    first = lost_before(evidence, None)
    evidence.history.windows.append(Window("worker killed", first.began + 0.01, Aim(pids=[PID])))
    assert effects(evidence).repeated == {"worker killed": 1}
    assert not effects(evidence).fenced


def test_a_fault_that_was_healed_shortly_before_is_named_where_there_is_no_other(
    evidence: PlanEvidence,
) -> None:
    first = lost_before(evidence, None)
    before = Window("link cut", first.began - 1.0, Aim(pids=[PID]), first.began - 0.5)
    evidence.history.windows.append(before)
    assert effects(evidence).repeated == {"link cut": 1}
    for name in ("worker killed", "outage"):
        evidence.history.windows.append(Window(name, first.began + 0.01, Aim(pids=[PID])))
    assert effects(evidence).repeated == {"outage, worker killed": 1}


def test_a_fault_of_another_process_is_not_named(evidence: PlanEvidence) -> None:
    first = lost_before(evidence, None)
    evidence.history.windows.append(Window("worker killed", first.began, Aim(pids=[PID + 1])))
    assert effects(evidence).repeated == {NO_FAULT: 1}


def test_a_result_that_nobody_got_may_be_committed_all_the_same(evidence: PlanEvidence) -> None:
    """As of a plan that was removed."""
    one = winner(evidence)
    evidence.remains.kept.clear()
    gone = replace(evidence)
    for each in gone.everything:
        each.got.clear()
    assert one.returned
    assert not gone.committed
    assert not effects(gone).fenced


@pytest.mark.parametrize("shape", ["failing", "diamonds"])
def test_every_execution_is_accounted_for(shape: str, tmp_path: Path) -> None:
    """The first of its task, after a planned failure, or repeated: none twice, none left out."""
    evidence = done(shape, 11)(tmp_path)
    if shape == "diamonds":
        lost_before(evidence, None)
    coverage = Coverage()
    coverage.add(evidence)
    repeated = effects(evidence).repeated.total()
    assert (coverage.retried > 0, repeated > 0) == (shape == "failing", shape == "diamonds")
    everything = [each for runs in evidence.plan.executions.values() for each in runs]
    assert coverage.ran + coverage.retried + repeated == len(everything)
    assert coverage.values == sum(len(each.got) for each in everything) > 0
