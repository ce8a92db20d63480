"""Nothing begins before its `not_before`, and nothing counts after its `deadline`."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from kazoo.client import KazooClient

import zkplan
from tests.tools.support import Here, pass_gate, wait_until, working
from zkplan import Client, InvalidTask, PlanCancelled, PlanFailed, WaitTimeout, Worker

#: How much later than it may, at most, a task begins on a busy machine.
LATE_S = 5.0


def now(*_: object) -> float:
    return time.time()


def test_a_task_does_not_begin_before_its_time(zkplan_client: Client, worker: Worker) -> None:
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


def test_a_plan_does_not_begin_before_its_time(zkplan_client: Client, worker: Worker) -> None:
    began = time.time()
    with zkplan_client.create_plan(not_before=1.0) as plan:
        task = plan.add_task(now)
    assert "does not begin before" in str(plan.why())
    assert began + 1.0 <= task.result(30) < began + 1.0 + LATE_S


def test_a_timedelta_is_accepted_wherever_seconds_are(
    here: Here, zkplan_client: Client, tmp_path: Path
) -> None:
    second, minute = timedelta(seconds=1), timedelta(minutes=1)
    told = {"timeout": minute, "retry_delay": second}
    made = zkplan_client.create_plan("times", retention=timedelta(days=1), **told)  # type: ignore
    assert made.record.retention == 86_400.0
    assert (made.record.defaults.timeout, made.record.defaults.retry_delay) == (60.0, 1.0)
    task = made.add_task(zkplan.task(timeout=2 * second)(int), retry_delay=minute, keep=True)
    gate = made.add_task(zkplan.when(f"{zkplan_client.root}/never", timeout=0.01 * second))
    assert (task.info().timeout, task.info().retry_delay) == (2.0, 60.0)
    with pytest.raises(WaitTimeout, match=r"after 0[.]01 s"):
        task.result(0.01 * second)
    made.mark_ready()
    with working(*here):
        assert task.result(minute) == 0
        assert zkplan.wait([task, gate], timeout=minute).not_done == set()
        with pytest.raises(PlanFailed):
            made.wait(minute)
    assert zkplan_client.set_retention(timedelta(days=2)).retention == 172_800.0
    assert zkplan_client.gc(older_than=timedelta(days=1)) == []
    assert list(zkplan_client.tasks(longer_than=minute)) == []
    schedule = zkplan_client.schedule("tick", "@yearly", abs, [1], jitter=minute, retention=minute)
    assert schedule.info().jitter == 60.0
    zkplan_client.export_plan(zkplan_client.create_plan(), tmp_path / "file", wait=second)
    with zkplan.connect(*here, session_timeout=10 * second, patience=minute) as other:
        assert (other.transport.session_timeout_s, other.transport.patience_s) == (10.0, 60.0)


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
def test_an_invalid_moment_is_refused(moment: object, zkplan_client: Client) -> None:
    with pytest.raises(InvalidTask, match="deadline"):
        zkplan_client.create_plan(deadline=moment)  # type: ignore[arg-type]
    plan = zkplan_client.create_plan()
    with pytest.raises(InvalidTask, match="not_before"):
        plan.add_task(now, not_before=moment)  # type: ignore[arg-type]
