"""A wait says why no result comes: by an error at once, a warning, or the message of a timeout."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkplan
from tests.tools.support import (
    WAIT_S,
    Here,
    blocked_plan,
    fail,
    pass_gate,
    wait_for_delayed,
    wait_until,
    working,
)
from zkplan import Client, PlanError, PlanFailed, PlanStuck, WaitTimeout, Worker, ZkplanError
from zkplan.author import patience
from zkplan.views import deadlock


def test_a_wait_for_a_running_plan_is_allowed_inside_a_with_block(
    zkplan_client: Client, worker: Worker, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    plan = zkplan_client.create_plan()
    # A plan without tasks is done as soon as a worker checks it, and would take no more.
    plan.add_task(pass_gate, [str(gate)])
    plan.mark_ready()
    try:
        with plan:
            assert plan.add_task(lambda: 7).result(WAIT_S) == 7
    finally:
        gate.touch()


def test_another_thread_may_wait_for_a_plan_while_its_with_block_is_open(
    zkplan_client: Client, worker: Worker
) -> None:
    results = []
    with zkplan_client.create_plan() as plan:
        task = plan.add_task(lambda: 7)
        assert task.number
        waiter = threading.Thread(target=lambda: results.append(task.result(WAIT_S)))
        waiter.start()
    waiter.join(WAIT_S)
    assert results == [7]


def test_a_task_cannot_wait_for_a_task_that_it_has_just_added(
    zkplan_client: Client, worker: Worker
) -> None:
    def impatient() -> str:
        added = zkplan.current().plan.add_task(int)
        try:
            added.result(1)
        except PlanError as error:
            return str(error)
        return "no error"

    with zkplan_client.create_plan() as plan:
        task = plan.add_task(impatient)
    assert "give it to another task as an argument" in task.result(WAIT_S)


def build_and_wait(timeout: float) -> str:
    client = zkplan.current().plan.client
    assert isinstance(client, Client)
    with client.create_plan("inner") as inner:
        task = inner.add_task(int)
    try:
        task.result(timeout)
    except WaitTimeout as error:
        return str(error)
    return "it ran"


@pytest.mark.usefixtures("quick_looks")
def test_a_task_that_waits_in_the_last_slot_gets_the_reason(
    zkplan_client: Client, here: Here, caplog: pytest.LogCaptureFixture
) -> None:
    with working(*here, threads=2) as worker:
        with zkplan_client.create_plan() as plan:
            tasks = [plan.add_task(build_and_wait, [1.5], keep=True) for _ in range(2)]
        told = [task.result(WAIT_S) for task in tasks]
    full = f"all slots of {worker.id} (2) are taken by tasks that wait"
    assert any(full in each for each in told)
    assert "what they wait for cannot run" in caplog.text


def test_a_task_may_wait_for_another_if_a_slot_is_free(zkplan_client: Client, here: Here) -> None:
    with working(*here, threads=2):
        with zkplan_client.create_plan() as plan:
            task = plan.add_task(build_and_wait, [WAIT_S])
        assert task.result(WAIT_S) == "it ran"


def test_a_task_whose_result_is_wanted_cannot_return_a_task(
    zkplan_client: Client, worker: Worker
) -> None:
    def returns_a_handle() -> zkplan.Task:
        return zkplan.current().plan.add_task(int)

    with zkplan_client.create_plan(attempts=1) as plan:
        task = plan.add_task(returns_a_handle, keep=True)
    with pytest.raises(zkplan.NotSerialisable, match="A handle cannot be a result"):
        task.result(WAIT_S)


@pytest.mark.usefixtures("quick_looks")
@pytest.mark.parametrize("what", ["plan", "task"])
def test_a_wait_for_a_plan_that_is_not_marked_ready_says_so_once(
    what: str, zkplan_client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    plan = zkplan_client.create_plan()
    task = plan.add_task(int)
    wait = plan.wait if what == "plan" else task.result
    with caplog.at_level(logging.WARNING), pytest.raises(WaitTimeout, match="not marked ready"):
        wait(timeout=0.5)  # several looks
    assert caplog.text.count("not marked ready") == 1


def test_a_wait_for_a_paused_plan_says_that_it_is_paused(zkplan_client: Client) -> None:
    with zkplan_client.create_plan() as plan:
        task = plan.add_task(int)
    plan.pause()
    with pytest.raises(WaitTimeout, match="the plan is paused"):
        task.result(timeout=0.1)


@pytest.mark.parametrize(
    ("failing", "text"),
    [
        (1, "its only unfinished task is out of attempts"),
        (2, "all 2 unfinished tasks are out of attempts"),
    ],
)
def test_the_failure_of_a_plan_with_only_dead_tasks_mentions_no_dependents(
    failing: int, text: str, zkplan_client: Client, worker: Worker
) -> None:
    with zkplan_client.create_plan(attempts=1) as plan:
        for _ in range(failing):
            plan.add_task(fail)
    with pytest.raises(PlanFailed) as caught:
        plan.wait(WAIT_S)
    assert text in str(caught.value)
    assert "depend" not in str(caught.value)


@pytest.mark.parametrize("timeout", [0, 0.5])
def test_a_timeout_distinguishes_a_failed_plan_from_a_running_one(
    timeout: float, zkplan_client: Client, worker: Worker, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    with zkplan_client.create_plan(attempts=1) as plan:
        failed = plan.add_task(fail)
        after = plan.add_task(str, [failed])
        plan.add_task(pass_gate, [str(gate)])
    wait_until(lambda: plan.status().dead == 1, "its task is out of attempts")
    wait_until(Path(f"{gate}-reached").exists, "the other one goes on")
    with pytest.raises(WaitTimeout, match="1 of its tasks out of attempts; it goes on"):
        plan.wait(timeout)
    gate.touch()
    wait_until(lambda: plan.status().tasks == 2, "the other task has ended")
    with pytest.raises(PlanFailed, match="cannot go on"):
        plan.wait(timeout)
    with pytest.raises(PlanFailed, match="cannot go on"):
        after.result(timeout)


def test_a_timeout_reports_a_plan_that_is_stuck(zkplan_client: Client, znodes: KazooClient) -> None:
    plan = blocked_plan(zkplan_client, znodes)
    with pytest.raises(PlanStuck, match="can never drain: one task remains and cannot run"):
        plan.wait(0)


def test_a_plan_with_a_delayed_attempt_has_not_ended(zkplan_client: Client, worker: Worker) -> None:
    with zkplan_client.create_plan(attempts=2, retry_delay=60) as plan:
        plan.add_task(fail)
    wait_for_delayed(zkplan_client, 1)
    with pytest.raises(WaitTimeout, match="it goes on"):
        plan.wait(0)


@pytest.mark.parametrize(
    "ends",
    [None, lambda: zkplan.connect("embedded:"), zkplan.local],
    ids=["elsewhere", "in memory", "local"],
)
def test_ctrl_c_of_a_wait_says_that_a_plan_goes_on_only_if_it_does(
    ends: Callable[[], AbstractContextManager[Client]] | None,
    zkplan_client: Client,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(patience.Patience, "_warn", interrupted)
    with ends() if ends is not None else nullcontext(zkplan_client) as client:
        plan = client.create_plan()
        with pytest.raises(KeyboardInterrupt):
            plan.wait()
    assert ("goes on; only this wait has ended" in caplog.text) == (ends is None)


@pytest.mark.parametrize("timeout", [-1, float("nan")])
def test_a_negative_timeout_is_refused(timeout: float, zkplan_client: Client) -> None:
    with zkplan_client.create_plan() as plan:
        task = plan.add_task(int)
    for wait in (plan.wait, task.result):
        with pytest.raises(ZkplanError, match="0 or more seconds"):
            wait(timeout)


@pytest.fixture
def no_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits looks only when it is woken."""
    monkeypatch.setattr(patience, "LOOK_S", 3600.0)


@pytest.mark.usefixtures("worker", "no_polls")
def test_the_failure_that_ends_a_plan_is_reported_without_polling(
    zkplan_client: Client,
) -> None:
    with zkplan_client.create_plan("fails", attempts=1) as plan:
        plan.add_task(str, [plan.add_task(fail)])
    with pytest.raises(zkplan.PlanFailed, match="on purpose"):
        plan.wait()  # at the end of a time-out it would look without being woken


@pytest.mark.usefixtures("worker", "no_polls")
def test_a_waiter_hears_of_the_last_sibling_of_a_dead_task_without_polling(
    zkplan_client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = tmp_path / "gate"

    def watched(*arguments: Any) -> Any:
        yield from deadlock.watch_a_claim(*arguments)
        gate.touch()  # the sibling ends only after the waiter has looked in vain

    def fail_beside(gate: str) -> None:
        wait_until(Path(f"{gate}-reached").exists, "the sibling runs")
        fail()

    monkeypatch.setattr(patience, "watch_a_claim", watched)
    with zkplan_client.create_plan("fails", attempts=1) as plan:
        plan.add_task(pass_gate, [str(gate)])
        plan.add_task(fail_beside, [str(gate)])
    with pytest.raises(zkplan.PlanFailed, match="cannot go on"):
        plan.wait()
    assert plan.status().dead == 1  # the sibling has not died at its gate


@pytest.mark.parametrize("what", ["the plan", "a result", "the next of some tasks"])
def test_a_long_wait_looks_only_when_it_is_woken(
    what: str, zkplan_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    proved = threading.Event()

    def prove(*arguments: Any) -> Any:
        found = yield from deadlock.dead_if_deadlocked(*arguments)
        proved.set()
        return found

    monkeypatch.setattr(patience, "LOOK_S", 0.1)
    for name in ("LOOK_FACTOR", "LOOK_MAX_S"):
        monkeypatch.setattr(patience, name, 3600.0)
    monkeypatch.setattr(patience, "dead_if_deadlocked", prove)
    with zkplan_client.create_plan() as plan:
        task = plan.add_task(int, keep=True, not_before=time.time() + 3600)
    waits: dict[str, Callable[[], Any]] = {
        "the plan": plan.wait,
        "a result": task.result,
        "the next of some tasks": lambda: next(iter(zkplan.as_completed([task]))).result(),
    }
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(waits[what])
        assert proved.wait(WAIT_S)  # now the next look without a watch is an hour away
        plan.cancel()
        with pytest.raises(zkplan.PlanCancelled):
            waiting.result(WAIT_S)


@pytest.mark.usefixtures("worker", "no_polls")
def test_fail_fast_does_not_wait_for_the_siblings(zkplan_client: Client, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with zkplan_client.create_plan("fails", attempts=1) as plan:
        sibling = plan.add_task(pass_gate, [str(gate)])
        plan.add_task(fail)
    with pytest.raises(zkplan.PlanFailed, match="the others go on"):
        plan.wait(timeout=WAIT_S, fail_fast=True)
    assert plan.status().tasks == 2
    gate.touch()
    assert sibling.result(timeout=WAIT_S) == "open"
