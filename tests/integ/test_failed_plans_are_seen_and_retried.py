"""Every view shows that a plan ended with failures, and a retry runs its failed tasks again."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import zkplan
from tests.tools.support import (
    Here,
    Run,
    WorkerProcess,
    note,
    notes,
    run_python,
    wait_until,
    working,
)
from zkplan import Client, PlanFailed
from zkplan.errors import PlanCancelled, PlanError
from zkplan.integrations.prometheus import RootCollector
from zkplan.protocol.features import remove_plan as removal
from zkplan.protocol.features import retry as reopen
from zkplan.protocol.features.bounds import is_over
from zkplan.values.store_maintenance import remove


def load(folder: str, name: str) -> int:
    note(Path(folder) / "ran", name)
    if not (Path(folder) / name).exists():
        raise FileNotFoundError(name)
    return 20


def add(folder: str, name: str, *values: int) -> int:
    note(Path(folder) / "ran", name)
    return sum(values)


def cleaned(folder: str, *values: object) -> str:
    note(Path(folder) / "ran", "clean")
    return ", ".join(str(each) for each in values)


def night(client: Client, folder: Path) -> zkplan.Plan:
    """One task fails, two fail by it, one runs on its failure, one has nothing to do with it."""
    with client.create_plan("night", on_failure="cascade", attempts=1) as plan:
        at = str(folder)
        bad, good = plan.add_task(load, [at, "there"]), plan.add_task(add, [at, "good", 1])
        total = plan.add_task(add, [at, "total", bad, good], name="total")
        plan.add_task(add, [at, "last", total, 100], name="last")
        plan.add_task(cleaned, [at, bad], run_if="all_finished", name="clean")
        plan.add_task(add, [at, "other", 5], name="other")
    return plan


def failed(plan: zkplan.Plan) -> zkplan.Plan:
    with pytest.raises(PlanFailed):
        plan.wait(30)
    return plan


def test_a_retry_runs_failed_tasks_again_with_the_results_of_others(
    zkplan_client: Client, here: Here, tmp_path: Path
) -> None:
    with working(*here):
        plan = failed(night(zkplan_client, tmp_path))
        status = plan.status()
        assert (status.state, status.dead, status.tasks, status.finished) == ("failed", 3, 3, 3)
        assert status.has_ended
        assert plan.is_drained()
        told = plan.why().causes[0]
        assert "has ended, and 3 tasks of 6 failed (task" in told.text
        assert "FileNotFoundError: there" in told.text.partition(";")[0]
        assert zkplan_client.command(f"plan retry {int(plan.number)}") in told.advice
        ran = sorted(notes(tmp_path / "ran"))
        assert ran == ["clean", "good", "other", "there"]

        (tmp_path / "there").touch()
        assert plan.retry() == 3
        assert plan.wait(30).state == "done"
        assert plan.task("last").result(5) == 121
        again = plan.status()
        assert (again.added, again.finished, again.dead, again.retried) == (6, 6, 0, 1)
        assert sorted(notes(tmp_path / "ran")) == sorted([*ran, "there", "total", "last"])
        assert plan.retry() == 0  # nothing has failed


def test_a_failed_plan_is_seen_in_every_list(
    zkplan_client: Client, here: Here, tmp_path: Path, run: Run
) -> None:
    with working(*here):
        plan = failed(night(zkplan_client, tmp_path))
        late = zkplan_client.create_plan("late", deadline=1.0)
        late.add_task(int, queue="nobody")
        late.mark_ready()
        wait_until(lambda: late.status().state == "cancelled", "its deadline cancels it")
    number = int(plan.number)
    rows = {row["name"]: row["state"] for row in run("plan", "ls", "-o", "json").data}
    assert rows == {"night": "failed", "late": "cancelled"}
    told = [each.text for each in zkplan_client.observer().look().late]
    assert told == [
        f"plan {int(late.number)} (late) was cancelled: its deadline has passed",
        f"plan {number} (night) has failed: 3 tasks of 6 (`zkplan plan why {number}`)",
    ]
    assert "(night) has failed: 3 tasks of 6" in run("top", "--once").out
    text = RootCollector(zkplan_client).text()
    root = f'root="{zkplan_client.root}"'
    assert f'zkplan_plans{{{root},state="failed"}} 1.0' in text
    assert f"zkplan_plans_failed{{{root}}} 2.0" in text
    assert "3 tasks failed" in run("plan", "history", "night", "--kind", "done").out
    (tmp_path / "there").touch()
    assert "(night): 3 tasks run again" in run("plan", "retry", "night").err
    told = [each.text for each in zkplan_client.observer().look().late]
    assert not any("night" in each for each in told)


def test_a_schedule_says_how_its_plans_ended(zkplan_client: Client, here: Here, run: Run) -> None:
    schedule = zkplan_client.schedule("nightly", "0 3 29 2 *", load, args=["/", "no such file"])
    with working(*here):
        plan = schedule.trigger()
        failed(plan)
    assert schedule.info().outcomes == ["failed"]
    (row,) = run("schedule", "ls", "-o", "json").data
    assert [each["outcome"] for each in row["fired"]] == ["failed"]
    assert f"plan {int(plan.number)} triggered by hand: failed" in run("schedule", "ls").out
    plan.remove()
    assert schedule.info().outcomes == [""]


def test_a_running_or_removed_plan_is_not_retried(
    zkplan_client: Client, here: Here, tmp_path: Path
) -> None:
    plan = night(zkplan_client, tmp_path)
    with pytest.raises(PlanError, match="has not ended, so its failed tasks cannot run again yet"):
        plan.retry()
    with working(*here):
        failed(plan)
    with pytest.raises(zkplan.TaskError, match="cannot be retried alone: retry the plan once it"):
        plan.task("total").retry()
    assert not plan.task("total").skip(1)
    # A removal that died half way has cancelled it.
    zkplan_client.transport.run(removal._end_for_good(plan.path, None))
    with pytest.raises(PlanCancelled):
        plan.retry()
    plan.remove()
    with pytest.raises(zkplan.PlanNotFound):
        plan.retry()


def test_garbage_collection_leaves_a_retried_plan_alone(
    zkplan_client: Client, here: Here, tmp_path: Path
) -> None:
    run = zkplan_client.transport.run
    with working(*here):
        plan = failed(night(zkplan_client, tmp_path))
        over = run(is_over(zkplan_client.paths, plan.number, 1e11))
        assert over is not None
        (tmp_path / "there").touch()
        plan.retry()
        assert remove(zkplan_client.transport, zkplan_client.values, plan.path, over.end) is None
        assert plan.wait(30).state == "done"
        # It has ended anew: its retention begins anew, too.
        assert remove(zkplan_client.transport, zkplan_client.values, plan.path, over.end) is None
        assert plan.task("last").result(5) == 121


def test_tasks_added_to_a_dead_task_fail_and_are_retried_with_it(
    zkplan_client: Client, here: Here, tmp_path: Path
) -> None:
    with working(*here):
        plan = zkplan_client.create_plan("open", on_failure="cascade", attempts=1)
        stays = plan.add_task(add, [str(tmp_path), "stays"], not_before=4e9)
        bad = plan.add_task(load, [str(tmp_path), "there"])
        plan.mark_ready()
        wait_until(lambda: plan.status().dead, "it is dead")
        late = plan.add_task(add, [str(tmp_path), "late", bad])
        wait_until(lambda: plan.status().dead == 2, "what was added later fails by it")
        stays.cancel()
        failed(plan)
        (tmp_path / "there").touch()
        assert plan.retry() == 3
        assert late.result(30) == 20


#: Retries the plan of that number in a process that dies in between.
_RETRY = """
import sys, zkplan
from zkplan.protocol.features import retry as reopen
reopen.GROUP_OPS_MAX = 40
with zkplan.connect(sys.argv[1], root=sys.argv[2]) as client:
    client.plan(sys.argv[3]).retry()
"""


@pytest.mark.parametrize("point", ["reopen.between=kill:1:2", "reopen.open=kill"])
def test_a_retry_whose_caller_died_can_be_completed(
    zkplan_client: Client,
    here: Here,
    tmp_path: Path,
    point: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reopen, "GROUP_OPS_MAX", 40)
    at = str(tmp_path)
    with working(*here):
        with zkplan_client.create_plan("wide", on_failure="cascade", attempts=1) as plan:
            bad = [plan.add_task(load, [at, "there"]) for _ in range(30)]
            sums = [plan.add_task(add, [at, "sum", *bad[i : i + 10]]) for i in range(20)]
            last = plan.add_task(add, [at, "last", *sums])
        failed(plan)
        (tmp_path / "there").touch()
        ran = len(notes(tmp_path / "ran"))
        died = run_python(
            *("-c", _RETRY, *here, plan.number),
            env={**os.environ, "ZKPLAN_FAILPOINTS": point},
        )
        assert died.returncode == -signal.SIGKILL
        assert plan.status().state == "failed"
        assert len(notes(tmp_path / "ran")) == ran  # nothing of it runs yet
        assert plan.retry() == 51
        assert plan.wait(60).state == "done"
        assert last.result(5) == 20 * 200
        assert len(notes(tmp_path / "ran")) == ran + 51


def test_a_retried_plan_gives_the_right_values_while_workers_are_killed(
    zkplan_client: Client, here: Here, tmp_path: Path
) -> None:
    at = str(tmp_path)
    with zkplan_client.create_plan(
        "killed", on_failure="cascade", attempts=3, retry_delay=0
    ) as plan:
        bad = [plan.add_task(load, [at, "there"], attempts=1) for _ in range(20)]
        sums = [plan.add_task(add, [at, "sum", *bad[i : i + 4]]) for i in range(16)]
        last = plan.add_task(add, [at, "last", *sums])
    with WorkerProcess(*here, tmp_path, "--session-timeout", "4") as first:
        first.wait_ready()
        failed(plan)
        (tmp_path / "there").touch()
        plan.retry()
        with WorkerProcess(*here, tmp_path) as second:
            second.wait_ready()
            wait_until(lambda: plan.status().dead or plan.status().finished > 5, "it is under way")
            os.kill(first.pid, signal.SIGKILL)
            assert plan.wait(60).state == "done"
    assert last.result(5) == 16 * 80
