"""`task ls --all-plans` and overviews show the tasks that run, wait or failed in any plan."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from kazoo.security import CREATOR_ALL_ACL

import zkplan
from tests.tools.support import Here, Run, fail, pass_gate, wait_for_delayed, wait_until, working
from zkplan import Client, InvalidTask, Plan, TaskSpec, Worker
from zkplan.protocol.core.claim import claim
from zkplan.protocol.core.plan_life import status
from zkplan.protocol.core.plans_and_queues import look
from zkplan.protocol.core.workers import WorkerRecord, register, sign_off
from zkplan.protocol.transactions import Registration
from zkplan.values.connection import together
from zkplan.views import attention as unattended
from zkplan.views import find as across
from zkplan.views import overview, root_look

pytestmark = pytest.mark.usefixtures("nothing_stalls")


@pytest.fixture
def plans(zkplan_client: Client, worker: Worker, tmp_path: Path) -> Iterator[list[Plan]]:
    """Two plans, with a task in each state that lasts."""
    gate = tmp_path / "gate"
    with zkplan_client.create_plan("first") as first:
        held = first.add_task(pass_gate, [str(gate)], name="held")
        first.add_task(str, [held], name="waits")
    with zkplan_client.create_plan("second") as second:
        second.add_task(fail, name="dies", attempts=1)
        second.add_task(fail, name="comes later", retry_delay=3600)
    wait_until(Path(f"{gate}-reached").exists, "the first one runs")
    wait_until(lambda: second.status().dead, "another one is dead")
    wait_for_delayed(zkplan_client, 1)
    third = zkplan_client.create_plan("third")
    third.add_tasks([TaskSpec(int, name=f"part-{at}") for at in range(2)])
    yield [first, second, third]
    gate.touch()


def test_each_filter_finds_tasks_of_all_plans(
    plans: list[Plan], worker: Worker, zkplan_client: Client, run: Run
) -> None:
    def found(**wanted: Any) -> list[str | None]:
        return [task.name for task in zkplan_client.tasks(**wanted)]

    everything = ["held", "waits", "dies", "comes later", "part-0", "part-1"]
    assert found() == everything
    states = {task.name: task.state for task in zkplan_client.tasks()}
    for state in across.STATES:
        named = [name for name in everything if states[name] == state]
        assert found(state=state) == named, state
    assert sorted(set(states.values())) == ["dead", "delayed", "runnable", "running", "waiting"]
    assert found(worker=worker.id[:8]) == ["held"]
    assert found(worker="nobody") == []
    assert found(name="part-*") == ["part-0", "part-1"]
    assert found(error="Value*") == ["dies", "comes later"]
    assert found(error="Value*", state="delayed") == ["comes later"]
    assert found(longer_than=3600) == []
    with pytest.raises(InvalidTask, match="state must be one of"):
        zkplan_client.tasks(state="claimed")  # a claimed task is called `running` everywhere
    (held, *_) = run("task", "ls", "first", "-o", "json").data
    assert (held["name"], held["state"]) == ("held", "running")

    def listed(*words: str) -> list[str]:
        return [row["name"] for row in run("task", "ls", *words, "-o", "json").data]

    assert listed("--all-plans", "--state", "running", "--worker", worker.id) == ["held"]
    assert listed("second", "--error", "ValueError") == ["dies", "comes later"]
    assert listed("--all-plans", "--longer-than", "10m") == []
    cut = run("task", "ls", "--all-plans", "--limit", "2")
    assert cut.out.endswith("… and more: --limit leaves them out\n")
    assert run("task", "ls").code == 2
    assert run("task", "ls", "first", "--all-plans").code == 2
    assert run("task", "ls", "first", "--outcomes", "--state", "dead").code == 2
    (row,) = run("task", "ls", "--all-plans", "--state", "dead", "-o", "json").data
    assert (row["plan"], row["plan_name"], row["attempts"]) == (plans[1].number, "second", 1)
    assert row["error"].startswith("ValueError")


def registered(client: Client, name: str, slots: int) -> Registration:
    record = WorkerRecord(name, "there", 1, slots, 0.0)
    uids = (f"{number:x}" for number in count())
    made = client.transport.run(register(client.paths, name, record.to_bytes(), uids))
    assert made is not None
    return made


def test_running_tasks_are_distinguished_from_tasks_claimed_ahead(
    zkplan_client: Client, run: Run
) -> None:
    """The steps of a worker, one claim after the other: the first fills its only slot."""
    with zkplan_client.create_plan("one") as plan:
        tasks = plan.add_tasks([TaskSpec(int, name=name) for name in "abc"])
    go = zkplan_client.transport.run
    me = registered(zkplan_client, "narrow", slots=1)
    for _ in tasks:
        seen = go(look(plan.path))
        name = min(seen.names or ())
        assert len(go(claim(me, plan.number, seen.version, [name])).claims) == 1
    told = [(task.name, task.state) for task in zkplan_client.tasks()]
    assert told == [("a", "running"), ("b", "claimed ahead"), ("c", "claimed ahead")]
    (running,) = zkplan_client.tasks(state="running")
    raw = zkplan_client.transport.client
    claims = sorted(raw.get_children(me.claims_path), key=lambda name: name.rpartition(".")[2])
    assert running.since == raw.exists(f"{me.claims_path}/{claims[0]}").created
    (row,) = run("worker", "ls", "-o", "json").data
    assert (row["claims"], row["busy"], row["ahead"]) == (3, 1, 2)
    assert [(each["number"], each["name"]) for each in row["runs"]] == [(tasks[0].number, "a")]
    assert f"{int(plan.number)}/{int(tasks[0].number)} a " in run("worker", "ls").out
    go(sign_off(zkplan_client.paths, "narrow"))
    assert {task.state for task in zkplan_client.tasks(worker="narrow")} == {"left behind"}
    overview_now = zkplan_client.observer().look()
    assert (overview_now.late[-1].code, overview_now.held) == ("left_behind", 3)


def test_an_overview_counts_ended_tasks_and_forecasts_the_end_of_the_rest(
    here: Here, zkplan_client: Client, tmp_path: Path, run: Run
) -> None:
    gate = tmp_path / "gate"
    with zkplan_client.create_plan("rated") as plan:
        plan.add_tasks([TaskSpec(int, name="quick", priority=1) for _ in range(3)])
        plan.add_task(pass_gate, [str(gate)], name="held")
    observer = zkplan_client.observer()
    first = observer.look()
    assert (first.rate, first.plans[0].rate, first.plans[0].left) == (None, None, None)
    assert [late.code for late in first.late] == ["unserved"]
    with working(*here) as worker:
        wait_until(Path(f"{gate}-reached").exists, "it runs")
        wait_until(lambda: plan.status().finished == 3, "the others have finished")
        seen = observer.look()
        rate, left = seen.plans[0].rate, seen.plans[0].left
        assert rate
        assert left == pytest.approx(1 / rate)
        assert (seen.rate, seen.late) == (rate, [])
        assert [(task.name, task.held.worker) for task in seen.tasks] == [("held", worker.id)]
        assert (seen.workers[0].running, seen.workers[0].ahead) == (1, 0)
        drawn = run("top", "--once").out
        assert "held" in drawn
        assert max(map(len, drawn.splitlines())) <= 80
        told = run("top", "-o", "json", "--over", "0.1").data
        assert told["plans"][0]["running"] == told["queues"][0]["running"] == 1
        assert told["tasks"][0]["worker"] == worker.id
        gate.touch()
    refused = run("top")
    assert (refused.code, "--once" in refused.err) == (2, True)


def test_an_overview_takes_few_requests_for_any_number_of_plans_and_tasks(
    zkplan_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """200 plans took 10: about one more for each 50."""
    requests = zkplan_client.transport._requests
    asked: list[Any] = []
    submit = requests.submit

    def noted(request: Any, done: Any) -> Any:
        asked.append(request)
        return submit(request, done)

    monkeypatch.setattr(requests, "submit", noted)

    def cost() -> int:
        asked.clear()
        observer.look()
        return len(asked)

    observer = zkplan_client.observer()
    with zkplan_client.create_plan() as plan:
        plan.add_task(int, queue="special")
    few = cost()
    plan.add_tasks([TaskSpec(int) for _ in range(500)])
    assert cost() == few
    for _ in range(40):
        zkplan_client.create_plan().mark_ready()
    assert cost() <= few + 1 <= 12


def test_an_overview_calls_a_plan_failed_as_its_status_does(
    here: Here, zkplan_client: Client, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zkplan_client.create_plan("fails") as plan:
        plan.add_task(str, [plan.add_task(fail, attempts=1)])
    observer = zkplan_client.observer()
    assert [each.status.state for each in observer.look().plans] == ["running"]
    with working(*here):
        wait_until(lambda: plan.status().state == "failed", "it has failed")
    assert [each.status for each in observer.look().plans] == [plan.status()]
    (row,) = (line for line in run("top", "--once").out.splitlines() if " fails " in line)
    assert " failed " in row
    with monkeypatch.context() as proved:  # it is proved once, and not at each look
        proved.setattr(overview, "status_of", None)
        assert [each.status.state for each in observer.look().plans] == ["failed"]
    assert plan.retry() == 1
    assert [each.status.state for each in observer.look().plans] == ["running"]


def test_a_plan_that_its_author_left_half_defined_needs_attention(
    zkplan_client: Client, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unattended, "GRACE_S", -10.0)
    observer = zkplan_client.observer()
    kept = zkplan_client.create_plan("kept", key="order-1")
    zkplan_client.create_plan("left", key="order-2")
    zkplan_client.create_plan("no key")
    left = zkplan_client.plan("left")

    def told() -> list[str]:
        return [late.text for late in observer.look().late]

    wait_until(told, "it is told")
    gone = f"plan {int(left.number)} (left) is not marked ready, and its author is gone"
    assert told() == [gone]
    listed = run("plan", "ls")
    assert listed.err == f"needs attention: {gone}\n"
    assert [line.split()[-1] for line in listed.out.splitlines()[:3]] == [
        "key",
        "order-1",
        "order-2",
    ]
    assert gone in run("top", "--once").out
    left.mark_ready()
    kept.mark_ready()
    monkeypatch.setattr(unattended, "IDLE_S", -10.0)
    (late,) = told()
    assert late.startswith(
        f"plan {int(kept.number) + 2} (no key) is not marked ready, and got no task"
    )


def test_indexes_that_are_too_long_are_counted_and_not_read(
    zkplan_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zkplan_client.create_plan() as plan:
        plan.add_tasks([TaskSpec(int, not_before=3600) for _ in range(3)])
    observer = zkplan_client.observer()
    assert observer.look().plans[0].delayed == 3
    monkeypatch.setattr(root_look, "LISTED_MAX", 2)
    assert observer.look().plans[0].delayed is None


def test_a_hidden_plan_is_reported_and_hides_no_other(
    zkplan_client: Client, zookeeper_hosts: str, run: Run
) -> None:
    with zkplan_client.create_plan("open") as plan:
        plan.add_task(int, name="seen")
    closed = {"auth_data": [("digest", "owner:its-password")], "default_acl": CREATOR_ALL_ACL}
    with zkplan.connect(zookeeper_hosts, zkplan_client.root, **closed) as other:
        with other.create_plan("closed") as shut:
            shut.add_task(int)
        said = run("task", "ls", "--all-plans", "--state", "runnable")
        assert said.code == 2
        assert "seen" in said.out
        assert f"the right `read` is missing on {shut.path}:" in said.err
        with pytest.raises(zkplan.AccessDenied):
            list(zkplan_client.tasks())
        assert "1 active plan may not be read here" in run("top", "--once").out
        steps = [status(plan.path), status(shut.path)]
        mine, theirs = zkplan_client.transport.run(together(steps))
        assert (mine, isinstance(theirs, zkplan.PlanNotFound)) == (plan.status(), True)
        shut.remove()
