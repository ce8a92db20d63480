"""Nothing begins before its `not_before`, and nothing counts after its `deadline`."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from kazoo.client import KazooClient

from zkplan import Client, InvalidTask, PlanCancelled, Worker

from .support import pass_gate, wait_until

#: How much later than it may, at most, a task begins on a busy machine.
LATE_S = 5.0


def now(*_: object) -> float:
    return time.time()


def test_a_task_begins_not_before_its_time(zkplan_client: Client, worker: Worker) -> None:
    with zkplan_client.create_plan() as plan:
        first = plan.add_task(int)
        at = datetime.now(ZoneInfo("Asia/Kathmandu")) + timedelta(seconds=1)
        alone = plan.add_task(now, not_before=at)
        behind = plan.add_task(now, [first], not_before=at + timedelta(seconds=0.2))
        whole = plan.status()
    wait_until(lambda: behind.state() == "delayed", "the first task has ended")
    assert "may not run before" in str(behind.why())
    for task, earliest in ((alone, at.timestamp()), (behind, at.timestamp() + 0.2)):
        assert earliest <= task.result(30) < earliest + LATE_S
    assert whole.state == "defining"
    assert behind.info().attempts_used == 1  # the wait has used up none


def test_a_plan_begins_not_before_its_time(zkplan_client: Client, worker: Worker) -> None:
    began = time.time()
    with zkplan_client.create_plan(not_before=1.0) as plan:
        task = plan.add_task(now)
    assert "does not begin before" in str(plan.why())
    assert began + 1.0 <= task.result(30) < began + 1.0 + LATE_S


def test_a_task_that_has_not_ended_by_its_deadline_fails_for_good(
    zkplan_client: Client, worker: Worker, tmp_path: Path
) -> None:
    with zkplan_client.create_plan(on_failure="cascade") as plan:
        runs = plan.add_task(pass_gate, [str(tmp_path / "gate")], deadline=1.0)
        after = plan.add_task(now, [runs])
        late = plan.add_task(now, deadline=datetime.now(timezone.utc))
    for task in (runs, late, after):
        assert "its deadline has passed" in str(task.exception(30))
    (tmp_path / "gate").touch()


def test_a_plan_is_cancelled_at_its_deadline(
    zkplan_client: Client, worker: Worker, tmp_path: Path, znodes: KazooClient
) -> None:
    with zkplan_client.create_plan(deadline=timedelta(seconds=1)) as plan:
        plan.add_task(pass_gate, [str(tmp_path / "gate")])
    with pytest.raises(PlanCancelled, match="its deadline has passed"):
        plan.wait(30)
    assert "its deadline has passed" in str(plan.why())
    (tmp_path / "gate").touch()


@pytest.mark.parametrize(
    "moment", [datetime(2026, 11, 23), "tomorrow", True, float("nan"), -(10**12)]
)
def test_a_moment_that_is_none_is_refused(moment: object, zkplan_client: Client) -> None:
    with pytest.raises(InvalidTask, match="deadline"):
        zkplan_client.create_plan(deadline=moment)  # type: ignore[arg-type]
    plan = zkplan_client.create_plan()
    with pytest.raises(InvalidTask, match="not_before"):
        plan.add_task(now, not_before=moment)  # type: ignore[arg-type]
