"""An operator skips, cancels, retries and reprioritises tasks; no skipped task commits."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import zkplan
from tests.tools.support import Here, Run, note, notes, wait_until, working
from zkplan import Client, Plan
from zkplan.protocol.records import OnFailure


def listed(*values: object) -> list[object]:
    return list(values)


def fail() -> None:
    raise TimeoutError("as it was told")


def stay(file: str) -> str:
    """Run until nobody wants the result, and give one all the same."""
    note(file, "runs")
    wait_until(lambda: zkplan.current().cancelled, "nobody wants its result")
    note(file, "told")
    return "late"


@pytest.fixture
def plan(zkplan_client: Client) -> Plan:
    return zkplan_client.create_plan("nightly", attempts=1)


def test_a_task_can_be_skipped_in_every_state(plan: Plan, here: Here) -> None:
    with plan:
        dead = plan.add_task(fail)
        delayed = plan.add_task(fail, attempts=2, retry_delay=1000)
        first = plan.add_task(int)
        waiting = plan.add_task(listed, [first])
        runnable = plan.add_task(int, [7])
        parts = [dead, delayed, waiting, runnable]
        end = plan.add_task(listed, parts)
    with working(*here):
        wait_until(lambda: {dead.state(), delayed.state()} == {"dead", "delayed"}, "both failed")
        plan.pause()
    late = plan.add_task(int, [8])
    later = plan.add_task(listed, [late])
    assert [late.skip("late"), late.skip(), late.cancel()] == [True, False, False]
    assert late.state() == "decided"
    assert [part.skip(index) for index, part in enumerate(parts[:2])] == [True, True]
    assert not waiting.skip(2), "it has run"
    assert plan.status().skipped == 3
    plan.resume()
    with working(*here):
        assert end.result(30) == [0, 1, [0], 7]
        assert later.result(30) == ["late"]
        assert late.result(30) == "late"
        plan.wait(30)
    assert {kept.kind for kept in plan.outcomes() if kept.number == late.number} == {"skipped"}
    assert (late.info().skipped, end.info().skipped) == (True, False)


def test_a_waiting_task_is_skipped_without_its_dependencies(plan: Plan, here: Here) -> None:
    with plan:
        dead = plan.add_task(fail)
        other = plan.add_task(int)
        waiting = plan.add_task(listed, [dead, [other, dead]])
        end = plan.add_task(listed, [waiting, other])
    assert waiting.skip("instead")
    with working(*here):
        assert end.result(30) == ["instead", 0]
        assert dead.state() == "dead"
        assert dead.retry()


def test_a_running_task_that_was_skipped_never_commits(
    plan: Plan, here: Here, tmp_path: Path
) -> None:
    file = str(tmp_path / "notes")
    with plan:
        running = plan.add_task(stay, [file])
        end = plan.add_task(listed, [running])
    # Its heartbeat alone would find it after ten seconds.
    with working(*here, session_timeout=60) as worker:
        wait_until(lambda: notes(file) == ["runs"], "it runs")
        assert running.skip("early")
        assert end.result(30) == ["early"]
        wait_until(lambda: notes(file) == ["runs", "told"], "it is told", timeout_s=5)
        wait_until(lambda: worker.statistics().fenced == 1, "its result is refused")
    assert running.result(5) == "early"


def test_decisions_work_on_tasks_with_gates_queues_keys_times_and_processes(
    plan: Plan, here: Here, tmp_path: Path
) -> None:
    file = str(tmp_path / "notes")
    with plan:
        gate, barred = (plan.add_task(zkplan.when("/never-made"), name=name) for name in "gb")
        passed = plan.add_task(listed, [gate], keep=True)
        told = plan.add_task(str, [barred], run_if="all_finished")
        queued = plan.add_task(int, queue="gpu", key="once", keep=True)
        later = plan.add_task(int, not_before=3600)
        alone = plan.add_task(stay, [file], isolation="process")
    assert not gate.set_priority(5)
    assert [gate.skip(b"v"), barred.cancel(), queued.skip("q"), later.retry()] == [True] * 4
    with pytest.raises(zkplan.InvalidTask, match="takes no run_if"):
        plan.add_task(zkplan.when("/never-made"), run_if="all_finished")
    assert plan.add_task(int, queue="gpu", key="once").number == queued.number
    with working(*here):
        assert passed.result(30) == [b"v"]
        assert told.result(30).startswith("TaskCancelled: cancelled by an operator")
        wait_until(lambda: notes(file) == ["runs"], "it runs")
        assert alone.skip("early")
        assert alone.result(30) == "early"
        wait_until(lambda: notes(file) == ["runs", "told"], "its process is told")
        wait_until(lambda: later.state() == "delayed", "its time has not come")
        assert later.skip()
        assert queued.state() == "decided"
    with working(*here, of_worker={"queues": ["gpu", "default"]}):
        assert queued.result(30) == "q"
        wait_until(lambda: barred.state() == "dead", "its failure is told")
        with pytest.raises(zkplan.TaskError, match="waited for others"):
            barred.retry()
        assert barred.skip(b"v")
        plan.wait(30)


@pytest.mark.parametrize("policy", ["hold", "cascade"])
def test_a_cancelled_task_fails_as_the_policy_says(
    policy: OnFailure, zkplan_client: Client, here: Here, tmp_path: Path
) -> None:
    file = str(tmp_path / "notes")
    with zkplan_client.create_plan("cancels", on_failure=policy) as plan:
        running = plan.add_task(stay, [file], keep=True)
        after = plan.add_task(listed, [running])
        waiting = plan.add_task(listed, [after])
    with working(*here):
        wait_until(lambda: notes(file) == ["runs"], "it runs")
        assert (waiting.cancel(), running.cancel()) == (True, True)
        for task in (waiting, running):
            with pytest.raises(zkplan.TaskCancelled, match="cancelled by an operator"):
                task.result(30)
        if policy == "cascade":
            with pytest.raises(zkplan.PlanFailed):
                plan.wait(30)
            assert plan.status().dead == 3
            return
        wait_until(lambda: plan.status().state == "failed", "nothing can run")
        assert after.state() == "waiting"
        with pytest.raises(zkplan.TaskError, match="waited for others"):
            waiting.retry()
        assert running.skip([])
        assert after.state() in ("waiting", "runnable", "decided", "running", "finished")
        assert waiting.skip()
        plan.wait(30)


def test_a_delayed_task_can_be_retried_at_once(plan: Plan, here: Here) -> None:
    with plan:
        task = plan.add_task(fail, attempts=2, retry_delay=1000)
    with working(*here):
        wait_until(lambda: task.state() == "delayed", "it is delayed")
        assert task.retry()
        wait_until(lambda: task.state() == "dead", "it has run again")


def test_a_priority_can_be_set_in_every_state(plan: Plan, here: Here) -> None:
    ran: list[str] = []
    lock = threading.Lock()
    _RAN[plan.path] = ran

    with plan:
        first = plan.add_task(remember, [plan.path, "first"], priority=9)
        low = plan.add_task(remember, [plan.path, "low"])
        waiting = plan.add_task(remember, [plan.path, "waiting"], after=[first])
        delayed = plan.add_task(fail, attempts=2, retry_delay=1000)
        last = plan.add_task(remember, [plan.path, "last"], priority=8)
    assert [waiting.set_priority(5), last.set_priority(-5), low.set_priority(1)] == [True] * 3
    with working(*here, threads=1):
        wait_until(lambda: delayed.state() == "delayed", "it is delayed")
        assert delayed.set_priority(7)
        assert delayed.info().due is not None
        wait_until(lambda: len(ran) == 4, "all have run")
        assert not low.set_priority(3)
    with lock:
        assert ran == ["first", "waiting", "low", "last"]
    with pytest.raises(zkplan.InvalidTask, match="priority must be"):
        delayed.set_priority(10_000)


_RAN: dict[str, list[str]] = {}


def remember(plan: str, name: str) -> None:
    _RAN[plan].append(name)


def test_a_filter_picks_tasks_by_state_error_and_name(plan: Plan, here: Here) -> None:
    with plan:
        for index in range(3):
            plan.add_task(fail, name=f"load-{index}")
        plan.add_task(int, ["no number"], name="load-x")
    with working(*here):
        wait_until(lambda: plan.status().dead == 4, "all are dead")

    def chosen(**filters: str) -> list[str]:
        return [task.name for task in plan.select(**filters)]

    assert chosen(state="dead", error="Timeout*") == ["load-0", "load-1", "load-2"]
    assert chosen(error="ValueError") == ["load-x"]
    assert chosen(name="*-[1x]") == ["load-1", "load-x"]
    assert chosen(state="waiting") == []
    with pytest.raises(zkplan.InvalidTask, match="state must be one of"):
        plan.select(state="gone")


def test_a_command_acts_on_all_matching_tasks(plan: Plan, here: Here, run: Run) -> None:
    with plan:
        loads = [plan.add_task(fail, name=f"load-{index}") for index in range(3)]
        end = plan.add_task(listed, [loads], name="end")
    number = str(int(plan.number))
    with working(*here):
        wait_until(lambda: plan.status().dead == 3, "all are dead")
    matching = ("--all-matching", "--state", "dead", "--error", "TimeoutError", "--name", "*-[02]")
    meant = run("task", "skip", number, *matching, "--dry-run", "-o", "json")
    assert [(row["name"], row["state"]) for row in meant.data] == [
        ("load-0", "dead"),
        ("load-2", "dead"),
    ]
    meant = run("task", "cancel", number, "load-0", "end", "--dry-run", "-o", "json")
    assert [row["outcome"][:24] for row in meant.data] == ["left: it has ended, is d", ""]
    assert "1 task of " in meant.err
    assert "; 1 would stay as they are" in meant.err
    assert run("task", "skip", number, *matching).code == 2  # there is no terminal to ask
    assert plan.status().skipped == 0
    done = run("task", "skip", number, *matching, "--value", '"text"', "--yes", "-o", "json")
    assert done.code == 0
    assert {row["outcome"] for row in done.data} == {"skipped"}
    assert run("task", "set", number, "load-1", "end", "--priority", "3").code == 1
    assert run("task", "cancel", number, "load-1", "--yes").code == 2
    assert run("task", "retry", number, "load-1").code == 0
    assert run("task", "cancel", number, "load-1", "end", "load-1", "--yes").code == 0
    for wrong in ([], ["load-1", "--all-matching"], ["load-1", "--state", "dead"]):
        assert run("task", "skip", number, *wrong, "--yes").code == 2
    assert run("task", "skip", number, "load-1", "--value", "text", "--yes").code == 2
    with working(*here), pytest.raises(zkplan.TaskCancelled):
        end.result(30)
