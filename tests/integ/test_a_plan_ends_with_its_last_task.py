"""The worker that ends the last task of a plan ends the plan, without any wait or check."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.tools.support import Here, WorkerProcess, wait_until, working
from zkplan import Client
from zkplan.protocol.core import wide_delivery
from zkplan.protocol.core.commit_part import Part
from zkplan.protocol.failpoints import VARIABLE
from zkplan.protocol.requests import Step
from zkplan.runtime import maintenance

#: More than one transaction delivers.
WIDE_BYTES = 500_000


@pytest.fixture(autouse=True)
def _nobody_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "CHECK_FIRST_S", 1000.0)


def large() -> bytes:
    return bytes(WIDE_BYTES)


@pytest.mark.parametrize("keep", [None, False])
def test_a_large_result_without_dependents_ends_its_plan(
    here: Here, zkplan_client: Client, keep: bool | None
) -> None:
    with zkplan_client.create_plan() as plan:
        plan.add_task(large, keep=keep)
    with working(*here):
        wait_until(lambda: plan.status().state == "done", "the plan is done")
    assert len(list(plan.outcomes())) == (keep is None)


def test_a_worker_that_resumes_a_delivery_after_the_last_edge_ends_the_plan(
    here: Here, zkplan_client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zkplan_client.create_plan() as plan:
        top = plan.add_task(large, priority=-100)
        for _ in range(4):
            plan.add_task(len, [top], keep=False)
    monkeypatch.setenv(VARIABLE, "wide.delivered=kill")
    options = ("--session-timeout", "2")
    with WorkerProcess(*here, tmp_path, *options) as doomed:
        assert doomed.process.wait_ended(30)
        assert doomed.process.exit_code == -signal.SIGKILL
    assert plan.status().tasks > 0
    with working(*here):
        wait_until(lambda: plan.status().state == "done", "the plan is done")
    assert list(plan.outcomes()) == []


def test_a_delivery_whose_last_answer_was_lost_still_ends_its_plan(
    here: Here, zkplan_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last answer was lost, and the task was read again: all that shows is that it is gone."""
    finish = wide_delivery._finish

    def unanswered(part: Part) -> Step[bool | None]:
        yield from finish(part)
        return None

    monkeypatch.setattr(wide_delivery, "_finish", unanswered)
    with zkplan_client.create_plan() as plan:
        plan.add_task(large)
    with working(*here):
        wait_until(lambda: plan.status().state == "done", "the plan is done", 10.0)
