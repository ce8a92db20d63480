"""Each command of `zkplan` prints data to stdout and messages to stderr, and sets an exit code."""

from __future__ import annotations

import json
import os
import re
from datetime import datetime

import pytest

import zkplan
from tests.tools.support import Here, Run, wait_until, working
from zkplan import Client
from zkplan.testing.server_process import free_port


@pytest.fixture
def plan(zkplan_client: Client) -> zkplan.Plan:
    """A plan of three tasks; the last one fails."""
    with zkplan_client.create_plan("nightly", attempts=1) as made:
        first = made.add_task(lambda: 1, name="first", keep=True)
        made.add_task(lambda x: x + 1, [first], name="second")
        made.add_task(lambda x: x // 0, [first], name="divide")
    return made


def number_of(plan: zkplan.Plan, index: int) -> str:
    return str(int(max(plan.client.transport.client.get_children(plan.path))[5:]) - 2 + index)


def require_time(told: str, plan: zkplan.Plan) -> None:
    """For programs the time of a plan has its offset."""
    created = datetime.fromisoformat(told)
    assert created.tzinfo is not None
    assert abs(created.timestamp() - plan.status().created) < 1


def test_plans_are_listed_as_a_table_and_as_json(run: Run, plan: zkplan.Plan) -> None:
    listed = run("plan", "ls", "-o", "json")
    assert listed.code == 0
    (row,) = listed.data
    assert (row["name"], row["state"], row["unfinished"], row["runnable"]) == (
        "nightly",
        "running",
        3,
        1,
    )
    assert row["path"] == plan.path
    require_time(row["created"], plan)
    table = run("plan", "ls")
    lines = table.out.splitlines()
    assert lines[0].split()[:4] == ["number", "name", "state", "unfinished"]
    assert "nightly" in lines[1]
    assert table.err == ""


def test_a_plan_is_shown_by_name_number_or_path(run: Run, plan: zkplan.Plan) -> None:
    for which in ("nightly", plan.path, plan.path[-10:], str(int(plan.path[-10:]))):
        shown = run("plan", "show", which, "-o", "json")
        assert shown.code == 0
        assert (shown.data["path"], shown.data["on_failure"]) == (plan.path, "hold")
        require_time(shown.data["created"], plan)
    assert "nightly" in run("plan", "show", "nightly").out


def test_a_failed_plan_is_shown_retried_and_waited_for(
    run: Run, plan: zkplan.Plan, here: Here
) -> None:
    with working(*here):
        waited = run("plan", "wait", "nightly", "--timeout", "30")
        assert waited.code == 1
        assert "divide: ZeroDivisionError" in waited.err
        assert waited.out == ""
        shown = run("plan", "show", "nightly", "-o", "json").data
        (number,) = [name[5:] for name in shown["failures"]]
        failure = shown["failures"][f"task-{number}"]
        assert failure["name"] == "divide"
        assert "ZeroDivisionError" in failure["error"]
        assert f"divide (task-{number}): ZeroDivisionError" in run("plan", "show", "nightly").out
        told = run("task", "show", "nightly", number, "-o", "json")
        assert told.data["state"] == "dead"
        assert told.data["name"] == "divide"
        assert "ZeroDivisionError" in told.data["outcome"]
        assert "Traceback" in told.data["outcome"]
        assert "x // 0" in run("task", "show", "nightly", "divide").out
        retried = run("task", "retry", "nightly", number)
        assert (retried.code, retried.out.split()[-2:]) == (0, ["runnable", "again"])
        assert "runnable again" in retried.err
        wait_until(lambda: plan.status().dead == 1, "it fails again")
        again = run("plan", "retry", "nightly")
        assert (again.code, again.err) == (0, f"{plan.path} (nightly): 1 task run again\n")
        wait_until(lambda: plan.status().dead == 1, "and again")
        alive = str(int(number) + 5)
        assert run("task", "retry", "nightly", alive).code == 2
        assert run("task", "show", "nightly", "99").code == 2


def test_waiting_for_a_plan_prints_its_counts_when_it_has_drained(
    run: Run, zkplan_client: Client, here: Here
) -> None:
    with zkplan_client.create_plan("short") as plan:
        task = plan.add_task(lambda: 1, name="one")
    with working(*here):
        waited = run("plan", "wait", "short", "-o", "json")
    assert waited.code == 0
    assert (waited.data["state"], waited.data["finished"]) == ("done", 1)
    finished = run("task", "show", "short", task.number, "-o", "json").data
    assert finished["state"] == "finished"


def test_a_wait_that_times_out_exits_with_four(run: Run, plan: zkplan.Plan) -> None:
    ran = run("plan", "wait", "nightly", "--timeout", "0.1")
    assert ran.code == 4
    assert "not done after 0.1 s" in ran.err


def test_a_plan_is_paused_resumed_cancelled_and_removed(run: Run, plan: zkplan.Plan) -> None:
    for command, state in (("pause", "paused"), ("resume", "running"), ("cancel", "cancelled")):
        ran = run("plan", command, "nightly")
        assert (ran.code, ran.out) == (0, "")
        assert plan.path in ran.err
        assert plan.status().state == state
    assert run("plan", "wait", "nightly").code == 1
    assert run("plan", "resume", "nightly").code in (1, 2)
    refused = run("plan", "rm", "nightly")
    assert refused.code == 2
    told = "there is no terminal to ask whether to remove"
    asked = f"{told} {plan.path} (nightly), cancelled, 3 tasks"
    assert asked in refused.err
    assert "--yes" in refused.err
    removed = run("plan", "rm", "nightly", "--yes")
    assert removed.code == 0
    assert "3 tasks unfinished" in removed.err
    left = run("plan", "ls", "-o", "json")
    assert left.data == []
    assert f"no plan under {plan.client.root}" in left.err


def test_an_operator_marks_a_plan_ready_that_its_author_left(
    run: Run, zkplan_client: zkplan.Client
) -> None:
    plan = zkplan_client.create_plan("left")
    plan.add_task(int)
    ran = run("plan", "resume", "left")
    assert ran.code == 2
    assert "mark-ready" in ran.err
    assert plan.status().state == "defining"
    ran = run("plan", "mark-ready", "left")
    assert (ran.code, ran.err) == (0, f"{plan.path} (left) is ready: workers can claim its tasks\n")
    assert plan.status().state == "running"


@pytest.mark.parametrize("name", ["\x1b[31mred", "two\nlines"])
def test_the_name_of_a_plan_is_printed_as_one_line_of_text(
    run: Run, zkplan_client: zkplan.Client, name: str
) -> None:
    """Whoever writes the tree can give any name: it must not reach into the terminal."""
    plan = zkplan_client.create_plan("hostile")
    node = plan.client.transport.client
    node.set(plan.path, json.dumps({"name": name}).encode())
    ran = run("plan", "cancel", str(int(plan.number)))
    said = name.replace("\x1b", "\\x1b").replace("\n", "\\n")
    assert (ran.code, ran.err) == (0, f"{plan.path} ({said}) cancelled\n")


def test_marking_a_plan_ready_says_why_it_still_does_not_run(
    run: Run, plan: zkplan.Plan, zkplan_client: zkplan.Client
) -> None:
    plan.pause()
    ran = run("plan", "mark-ready", "nightly")
    assert ran.code == 0
    assert "is ready" not in ran.err
    assert f"{plan.path} (nightly) was marked ready before, and is paused" in ran.err
    hosts = zkplan_client.transport.hosts
    assert f"zkplan plan resume {int(plan.number)} --hosts {hosts} --root " in ran.err
    empty = zkplan_client.create_plan("empty")
    empty.mark_ready()
    assert empty.is_drained()
    ran = run("plan", "mark-ready", "empty")
    assert (ran.code, ran.err) == (0, f"{empty.path} (empty) is done\n")


def test_a_plan_is_checked(run: Run, plan: zkplan.Plan) -> None:
    checked = run("plan", "check", "nightly", "-o", "json")
    assert checked.code == 0
    assert (checked.data["tasks"], checked.data["problems"]) == (3, [])
    table = run("plan", "check", "nightly").out
    assert [line.split() for line in table.splitlines()] == [["tasks", "3"], ["found", "nothing"]]
    plan.client.transport.client.delete(f"{plan.path}/task-{int(number_of(plan, 0)):010d}/ready")
    damaged = run("plan", "check", "nightly", "--no-repair", "-o", "json")
    assert damaged.code == 1
    assert "/ready: was gone" in damaged.data["problems"][0]
    table = run("plan", "check", "nightly").out
    assert [line.split()[0] for line in table.splitlines()] == ["tasks", "mended"]


def test_unfinished_tasks_are_listed(run: Run, plan: zkplan.Plan) -> None:
    listed = run("task", "ls", "nightly", "-o", "json").data
    assert [(row["name"], row["state"]) for row in listed] == [
        ("first", "runnable"),
        ("second", "waiting"),
        ("divide", "waiting"),
    ]
    table = run("task", "ls", "nightly", "--limit", "1").out.splitlines()
    assert table[0].split() == ["number", "name", "state", "attempts", "worker", "due"]
    assert (len(table), table[-1]) == (3, "… and 2 more")
    cut = run("task", "ls", "nightly", "--limit", "1", "-o", "json")
    assert (len(cut.data), cut.err) == (1, "… and 2 more\n")
    whole = run("task", "ls", "nightly", "--limit", "3", "-o", "json")
    assert (len(whole.data), whole.err) == (3, "")


def test_a_delayed_task_is_listed_and_shown_with_its_due_time(
    run: Run, zkplan_client: Client, here: Here
) -> None:
    with zkplan_client.create_plan("delayed", retry_delay=3600) as plan:
        task = plan.add_task(lambda: 1 // 0, name="late")
        plan.add_task(str, [task], name="last")
    with working(*here):
        wait_until(lambda: next(plan.tasks()).state == "delayed", "it is delayed")
        row, other = run("task", "ls", "delayed", "-o", "json").data
        assert datetime.fromisoformat(row["due"]).tzinfo is not None
        assert other["due"] is None
        due = str(datetime.fromisoformat(row["due"]).replace(tzinfo=None))
        shown = run("task", "ls", "delayed").out.splitlines()[1]
        assert re.search(rf"  {due} \(in [345]\d min\)$", shown)
        assert run("task", "show", "delayed", "late", "-o", "json").data["due"] == row["due"]
        shown = run("task", "show", "delayed", "last").out
        assert f"waits_for      task-{task.number} late delayed (due {due} (in " in shown


def test_kept_outcomes_are_listed(run: Run, plan: zkplan.Plan, here: Here) -> None:
    with working(*here):
        assert run("plan", "wait", "nightly", "--timeout", "30").code == 1
    rows = run("task", "ls", "nightly", "--outcomes", "-o", "json").data
    assert [(row["kind"], row["name"]) for row in rows] == [
        ("result", "first"),
        ("result", "second"),
        ("failure", "divide"),
    ]
    assert all(datetime.fromisoformat(row["when"]).tzinfo is not None for row in rows)
    table = run("task", "ls", "nightly", "--outcomes", "--limit", "1").out.splitlines()
    assert table[0].split() == ["number", "kind", "size", "name", "when"]
    assert [line.split()[:2] for line in table[1:-1]] == [[rows[0]["number"], "result"]]
    assert table[-1] == "… and 2 more"
    shown = run("task", "show", "nightly", rows[1]["number"], "--values", "-o", "json").data
    assert shown["value"] == "2"
    assert run("task", "show", "nightly", "second").code == 0
    assert run("plan", "show", "nightly", "-o", "json").data["state"] == "failed"
    assert run("plan", "ls", "-o", "json").data[0]["state"] == "failed"
    assert run("plan", "retry", "nightly").code == 0
    assert run("plan", "show", "nightly", "-o", "json").data["state"] == "running"


def test_workers_are_listed(run: Run, here: Here) -> None:
    with working(*here, threads=3) as worker:
        listed = run("worker", "ls", "-o", "json")
        assert listed.code == 0
        (row,) = listed.data
        assert (row["id"], row["pid"], row["slots"]) == (worker.id, os.getpid(), 3)
        started = datetime.fromisoformat(row["started"])
        assert (started.year >= 2025, started.tzinfo is None) == (True, False)
        assert worker.id in run("worker", "ls").out


@pytest.mark.parametrize(
    "arguments",
    [
        ("plan", "show", "missing"),
        ("plan", "show"),
        ("plan", "show", "/elsewhere/plan-0000000001"),
        ("task", "show", "missing", "1"),
        ("plan", "dance"),
        ("--what",),
        ("plan", "ls", "-o", "xml"),
        ("worker", "--threads", "0"),
        ("worker", "--threads", "many"),
        ("worker", "--threads", "501"),
        ("worker", "--processes", "0"),
        ("worker", "--session-timeout", "0"),
        ("worker", "--grace", "-1"),
        ("plan", "ls", "--hosts", ""),
        ("plan", "ls", "--hosts", "zk1:port"),
        ("task", "show", "missing", "--limit"),
        ("plan", "ls", "--root", "relative"),
    ],
)
def test_wrong_usage_exits_with_two_and_says_what_is_wrong(
    arguments: tuple[str, ...], run: Run
) -> None:
    ran = run(*arguments)
    assert ran.code == 2, ran
    assert ran.out == ""
    assert len(ran.err) > 10
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    "arguments", [("plan", "ls"), ("worker",), ("worker", "ls"), ("plan", "wait", "x")]
)
def test_an_unreachable_zookeeper_exits_with_three(
    arguments: tuple[str, ...], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZKPLAN_HOSTS", f"127.0.0.1:{free_port()}")
    monkeypatch.setenv("ZKPLAN_CONNECT_TIMEOUT", "0.3")
    ran = run(*arguments)
    assert ran.code == 3
    assert "is it running" in ran.err
    assert "Traceback" not in ran.err
