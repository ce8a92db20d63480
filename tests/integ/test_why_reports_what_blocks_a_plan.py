"""`why` names the exact cause of what does not run, for a plan and for a task, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.tools.support import (
    WAIT_S,
    Here,
    Run,
    blocked_plan,
    fail,
    pass_gate,
    secret_of,
    wait_for_delayed,
    wait_until,
    working,
)
from zkplan import Client, InvalidTask, Plan, TaskSpec, WaitTimeout, Why, Worker
from zkplan.views import dependencies as chain

pytestmark = pytest.mark.usefixtures("nothing_stalls")


def codes(found: Why) -> list[str]:
    return [cause.code for cause in found.causes]


def count_reads(client: Client, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The requests that the client sends from now on."""
    asked: list[Any] = []
    ask, run = client.transport.ask, client.transport.run

    def counted(step: Any) -> Any:
        def relay() -> Any:
            answer = None
            while True:
                try:
                    request = step.send(answer)
                except StopIteration as stop:
                    return stop.value
                asked.append(request)
                answer = yield request

        return run(relay())

    def counted_ask(request: Any) -> Any:
        asked.append(request)
        return ask(request)

    monkeypatch.setattr(client.transport, "ask", counted_ask)
    monkeypatch.setattr(client.transport, "run", counted)
    return asked


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "gate"
    (tmp_path / "gate").touch()


def test_why_names_the_control_that_holds_a_plan(zkplan_client: Client) -> None:
    plan = zkplan_client.create_plan("held")
    task = plan.add_task(int)
    found = plan.why()
    assert codes(found) == ["not_marked_ready"]
    assert f"zkplan plan mark-ready {int(plan.number)} --hosts" in found.causes[0].advice
    plan.mark_ready()
    plan.pause()
    assert codes(task.why()) == codes(plan.why()) == ["paused"]
    plan.cancel()
    assert codes(task.why()) == codes(plan.why()) == ["cancelled"]


def test_why_reports_a_missing_worker_and_how_to_start_one(zkplan_client: Client) -> None:
    with zkplan_client.create_plan() as plan:
        first = plan.add_task(int)
        second = plan.add_task(str, [first], name="later")
    assert codes(plan.why()) == codes(first.why()) == ["no_worker"]
    found = second.why()
    assert (found.state, codes(found)) == ("waiting", ["waits", "no_worker"])
    assert found.causes[0].text == (
        f"Task {int(second.number)} (later) waits for 1 result, of task {int(first.number)} "
        "(int), runnable."
    )
    assert "zkplan worker --hosts" in str(found)


def test_why_follows_a_chain_to_the_dead_task_at_its_end(
    zkplan_client: Client, worker: Worker, run: Run
) -> None:
    with zkplan_client.create_plan() as plan:
        last = dead = plan.add_task(fail, name="breaks", attempts=1)
        for index in range(5):
            last = plan.add_task(str, [last], name=f"step-{index}")
    wait_until(lambda: plan.status().dead, "the first one is dead")
    found = last.why()
    assert codes(found) == ["waits", "dead"]
    assert found.causes[1].task == dead.number
    assert "(breaks) is out of attempts (1 used), and blocks 5 other tasks" in found.causes[1].text
    assert "ValueError: on purpose" in found.causes[1].text
    assert f"task retry {int(plan.number)} {int(dead.number)}" in found.causes[1].advice
    whole = plan.why()
    assert (whole.state, codes(whole)) == ("failed", ["dead"])
    assert "1 of 6 unfinished tasks is out of attempts, and nothing else can run" in str(whole)
    told = run("task", "why", plan.number, last.number, "-o", "json")
    assert [cause["code"] for cause in told.data["causes"]] == ["waits", "dead"]
    assert "nothing else can run" in run("plan", "why", plan.number).out
    plan.cancel()
    # Nothing of it can be retried any more.
    assert codes(dead.why()) == codes(last.why()) == codes(plan.why()) == ["cancelled"]


def test_why_says_until_when_a_task_is_delayed_and_after_which_error(
    zkplan_client: Client, worker: Worker, run: Run
) -> None:
    with zkplan_client.create_plan() as plan:
        task = plan.add_task(fail, retry_delay=3600)
    wait_for_delayed(zkplan_client, 1)
    (cause,) = task.why().causes
    assert (cause.code, cause.when) == ("delayed", task.info().due)
    assert "next attempt may begin (1 of 3 used), after ValueError: on purpose." in cause.text
    assert codes(plan.why()) == ["delayed"]
    assert run("plan", "why", plan.number, "-o", "json").data["causes"][0]["when"].startswith("20")


def test_why_reports_busy_slots_and_the_worker_of_a_task(
    zkplan_client: Client, here: Here, gate: Path
) -> None:
    with working(*here, threads=1) as worker:
        with zkplan_client.create_plan() as plan:
            runs = plan.add_task(pass_gate, [str(gate)])
        wait_until(Path(f"{gate}-reached").exists, "the task runs")
        (cause,) = runs.why().causes
        assert (cause.code, cause.worker, cause.when) == (
            *("running", worker.id),
            runs.info().since,
        )
        assert codes(plan.why()) == ["running"]
        with zkplan_client.create_plan() as other:
            other.add_tasks([TaskSpec(pass_gate, [str(gate)]) for _ in range(500)])
        wait_until(lambda: other.why().causes[0].code == "slots_busy", "claims ahead are taken")
        gate.touch()
        other.wait(WAIT_S)
        assert (codes(other.why()), codes(runs.why())) == (["done"], ["finished"])


def test_why_reports_paused_workers_and_how_to_resume_one(
    zkplan_client: Client, here: Here, caplog: pytest.LogCaptureFixture
) -> None:
    with working(*here) as worker:
        zkplan_client.pause_worker(worker.id)
        zkplan_client.set_limit("room", 0)
        with zkplan_client.create_plan() as plan:
            task = plan.add_task(int, limits=["room"])
        for found in (task.why(), plan.why()):
            assert codes(found) == ["workers_paused", "limit_full"]
            assert f"The only worker of the queue default ({worker.id}) is paused" in str(found)
            assert f"zkplan worker resume {worker.id}" in found.causes[0].advice
        with pytest.raises(WaitTimeout, match=f"is paused, so nothing .*resume {worker.id}"):
            plan.wait(timeout=4.5)
        assert "is paused, so nothing takes its tasks" in caplog.text
        # A decided outcome waits for the same permit, and for the same worker.
        assert task.cancel()
        assert codes(task.why()) == ["decided", "workers_paused", "limit_full"]
        zkplan_client.set_limit("room", 1)
        zkplan_client.resume_worker(worker.id)
        wait_until(lambda: plan.status().dead, "the worker takes it")


def test_why_advises_to_skip_a_task_cancelled_before_its_arguments_came(
    zkplan_client: Client, here: Here
) -> None:
    with zkplan_client.create_plan() as plan:
        last = plan.add_task(str, [plan.add_task(int)])
    assert last.cancel()
    with working(*here):
        wait_until(lambda: plan.status().state == "failed", "nothing else can run")
    for found in (last.why(), plan.why()):
        (cause,) = found.causes
        assert f"task skip {int(plan.number)} {int(last.number)}" in cause.advice
        assert "retry" not in cause.advice


def test_why_does_not_call_a_task_cancelled_by_an_operator_out_of_attempts(
    zkplan_client: Client, here: Here
) -> None:
    with zkplan_client.create_plan() as plan:
        task = plan.add_task(int, ["7"], name="unwanted")
        plan.add_task(str, [task])
    assert task.cancel()
    with working(*here):
        wait_until(lambda: task.state() == "dead", "it is dead")
    (cause,) = task.why().causes
    (who,) = {event.by for event in plan.history(task) if event.kind == "decided"}
    told = f"(unwanted) was cancelled by an operator ({who}), and blocks 1 other task."
    assert cause.text.endswith(told)
    assert "out of attempts" not in cause.text
    assert f"task retry {int(plan.number)} {int(task.number)}" in cause.advice
    assert task.info().last_error.startswith("TaskCancelled: cancelled by an operator on ")
    assert "1 of 2 unfinished tasks is out of attempts or cancelled" in plan.why().causes[0].text


def test_a_claim_whose_worker_has_vanished_is_reported(
    zkplan_client: Client, znodes: KazooClient
) -> None:
    with zkplan_client.create_plan() as plan:
        task = plan.add_task(int)
    (entry,) = znodes.get_children(f"{plan.path}/runnable")
    znodes.delete(f"{plan.path}/runnable/{entry}")
    claim = f"{plan.number}-{task.number}.0.ab"
    znodes.create(f"{zkplan_client.root}/claims/gone/{claim}", b"5000.0", makepath=True)
    (cause,) = task.why().causes
    assert (cause.code, cause.worker) == ("worker_gone", "gone")
    assert "whose session has ended" in cause.text
    assert "no worker is registered" in cause.advice.lower()
    assert codes(plan.why()) == ["worker_gone"]


def test_a_task_that_no_worker_can_decode_says_what_it_lacks(
    zkplan_client: Client, here: Here
) -> None:
    with zkplan_client.create_plan() as plan:
        task = plan.add_task(int)
    with working(*here, secret=secret_of("another")):
        wait_until(lambda: "undecodable" in codes(task.why()), "a worker has handed it back")
        assert "undecodable" in codes(plan.why())


def test_why_reports_a_broken_edge(zkplan_client: Client, znodes: KazooClient) -> None:
    plan: Plan = blocked_plan(zkplan_client, znodes)
    (task,) = plan.tasks()
    assert codes(plan.task(task.number).why()) == ["waits", "broken_edge"]
    assert codes(plan.why()) == ["stuck"]
    with pytest.raises(InvalidTask):
        plan.task(99).why()


def test_the_reads_of_why_are_bounded_for_a_chain_of_any_length(
    zkplan_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain, "LEVELS_MAX", 10)
    with zkplan_client.create_plan() as plan:
        last = first = plan.add_task(int)
        for _ in range(40):
            last = plan.add_task(str, [last])
    asked = count_reads(zkplan_client, monkeypatch)
    # The only task of the plan that does not wait is what all others wait for.
    assert codes(last.why()) == ["waits", "no_worker"]
    assert len(asked) < 60
    plan.add_task(int)
    assert codes(last.why()) == ["waits", "far"]
    assert first.number
