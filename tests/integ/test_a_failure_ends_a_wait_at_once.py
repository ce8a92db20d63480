"""A failure wakes who waits: the last one of a plan that stands still, or with fail-fast any."""

from __future__ import annotations

from pathlib import Path

import pytest

import zkplan
from zkplan import Client
from zkplan.inspect import waiting

from .support import WAIT_S, wait_until


def fails() -> None:
    raise ValueError("no data today")


def waits_for(file: str) -> str:
    wait_until(Path(file).exists, "the gate is open")
    return "done"


@pytest.fixture
def no_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits looks only when it is woken."""
    monkeypatch.setattr(waiting, "LOOK_S", 3600.0)


@pytest.mark.usefixtures("worker", "no_polls")
def test_the_failure_after_which_nothing_can_run_is_told_without_a_poll(
    zkplan_client: Client,
) -> None:
    with zkplan_client.create_plan("fails", attempts=1) as plan:
        plan.add_task(str, [plan.add_task(fails)])
    with pytest.raises(zkplan.PlanFailed, match="no data today"):
        plan.wait()  # at the end of a time-out it would look without being woken


@pytest.mark.usefixtures("worker", "no_polls")
def test_fail_fast_does_not_wait_for_the_siblings(zkplan_client: Client, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with zkplan_client.create_plan("fails", attempts=1) as plan:
        sibling = plan.add_task(waits_for, [str(gate)])
        plan.add_task(fails)
    with pytest.raises(zkplan.PlanFailed, match="the others go on"):
        plan.wait(timeout=WAIT_S, fail_fast=True)
    assert plan.status().tasks == 2
    gate.touch()
    assert sibling.result(timeout=WAIT_S) == "done"
