"""`crash_at_every_step` kills a worker at each transaction and reports different outcomes."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

import zkplan
from tests.tools.support import note, notes
from zkplan import Client, Plan
from zkplan.testing import crash_at_every_step


def add(*values: int) -> int:
    return sum(values)


def fail() -> None:
    raise ValueError("always")


def diamond(client: Client) -> Plan:
    plan = client.create_plan("diamond")
    top = plan.add_task(add, (1, 2))
    sides = [plan.add_task(add, (top, number)) for number in (10, 20)]
    plan.add_task(add, sides)
    return plan


def test_a_plan_without_effects_ends_the_same_wherever_its_worker_dies() -> None:
    report = crash_at_every_step(diamond)
    assert report.differences == [], report
    assert report.undisturbed.how == "drained"
    assert list(report.undisturbed.outcome.values()) == [36]
    # Register, claim, commit at the least; before and after each.
    assert len(report.steps) >= 6
    assert {step.when for step in report.steps} == {"before", "after"}
    assert report.steps[0].number == 1
    assert "create workers/" in report.steps[0].what
    assert str(report) == f"{len(report.steps)} crashes, 0 differences"


def large() -> bytes:
    return bytes(300_000)


@pytest.mark.slow
def test_an_inner_result_is_not_kept_wherever_its_wide_delivery_is_interrupted() -> None:
    def build(client: Client) -> Plan:
        plan = client.create_plan()
        top = plan.add_task(large)
        for _ in range(3):
            plan.add_task(len, [top], keep=False)
        return plan

    report = crash_at_every_step(build, outcome=lambda plan: list(plan.outcomes()))
    assert report.differences == [], report
    assert report.undisturbed == ("drained", [])
    assert any("create plan-" in step.what and "/delivered" in step.what for step in report.steps)


def test_an_effect_that_is_repeated_is_reported_with_the_step(tmp_path: Path) -> None:
    """The promise is at least once for effects: the helper finds the step where it shows."""
    file = tmp_path / "effects"

    def build(client: Client) -> Plan:
        file.unlink(missing_ok=True)
        plan = client.create_plan()
        plan.add_task(note, (str(file), "done"))
        return plan

    report = crash_at_every_step(build, outcome=lambda plan: notes(file))
    assert report.undisturbed.outcome == ["done"]
    found = {
        (difference.step.when, str(difference.ending.outcome)) for difference in report.differences
    }
    assert ("before", "['done', 'done']") in found
    # Only where the function had run and its commit was not applied: not at each step.
    assert 0 < len(report.differences) < len(report.steps)
    assert "instead of drained, ['done']" in str(report)


def test_a_result_that_depends_on_the_process_differs_at_each_step_before_its_commit() -> None:
    def build(client: Client) -> Plan:
        plan = client.create_plan()
        plan.add_task(os.getpid)
        return plan

    report = crash_at_every_step(build)
    assert report.steps[0] in [difference.step for difference in report.differences]
    assert {difference.ending.how for difference in report.differences} == {"drained"}


@pytest.mark.slow
def test_a_plan_that_fails_undisturbed_must_fail_the_same_at_every_crash() -> None:
    def build(client: Client) -> Plan:
        plan = client.create_plan(attempts=2)
        # Nobody waits the second between two attempts that is usual elsewhere.
        assert 0 < plan.record.defaults.retry_delay < 0.1
        plan.add_task(fail)
        return plan

    report = crash_at_every_step(build)
    assert any("delete delayed/" in step.what for step in report.steps)
    assert report.undisturbed.how == "PlanFailed"
    assert list(report.undisturbed.outcome.values()) == ["ValueError: always"]
    assert report.steps
    assert report.differences == [], report


def test_a_plan_that_does_not_end_in_time_is_reported_as_such() -> None:
    def build(client: Client) -> Plan:
        plan = client.create_plan()
        plan.add_task(forever)
        return plan

    report = crash_at_every_step(build, timeout=1.0, outcome=lambda plan: plan.status().tasks)
    assert report.undisturbed == ("WaitTimeout", 1)


def forever() -> None:
    threading.Event().wait(3600)


def test_a_build_function_without_a_plan_or_tasks_is_refused() -> None:
    def none(client: Client) -> Plan:
        diamond(client)
        return None  # type: ignore[return-value]

    def raises(client: Client) -> Plan:
        raise zkplan.InvalidTask("", "not today")

    for build, told in (
        (none, "must return the plan that it made, not None"),
        (Client.create_plan, "has no tasks to crash in"),
        (raises, "not today"),
    ):
        with pytest.raises(zkplan.ZkplanError, match=told):
            crash_at_every_step(build)
