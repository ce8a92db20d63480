"""Plans are paused, resumed, cancelled, found and waited for, from any process."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from kazoo.client import KazooClient

import zkplan
from tests.tools.support import (
    Here,
    WorkerProcess,
    note,
    notes,
    pass_gate,
    plain_client,
    stall_nothing,
    wait_until,
    working,
)
from zkplan import Client, PlanCancelled, PlanNotFound, TaskSpec, WaitTimeout
from zkplan.protocol.core import plan_life as control
from zkplan.protocol.core.plan_life import PlanStatus
from zkplan.protocol.requests import ReadChildren, ReadData, ReadMany, Step


def test_no_task_of_a_paused_plan_begins_until_it_is_resumed(
    here: Here, zkplan_client: Client, tmp_path: Path
) -> None:
    file, gate = tmp_path / "ran", tmp_path / "gate"
    with zkplan_client.create_plan() as plan:
        first = plan.add_task(pass_gate, [str(gate)], keep=True)
        after = plan.add_task(lambda _: note(str(file), "after"), [first])
        for number in range(20):
            plan.add_task(note, [str(file), str(number)], priority=-1)
    with working(*here, threads=1):
        # Claimed is not enough: what has not begun when the plan is paused is handed back.
        wait_until(Path(f"{gate}-reached").exists, "the first task runs")
        plan.pause()
        # None, but where the claim of the first was handed back once, for want of a thread.
        ran = notes(file)
        gate.touch()
        # What runs goes on, and its result is delivered.
        assert first.result(30) == "open"
        # Another plan shows that the worker is free and looks around.
        with zkplan_client.create_plan() as other:
            proof = other.add_task(lambda: "free")
        assert proof.result(30) == "free"
        assert notes(file) == ran
        status = plan.status()
        assert (status.state, status.tasks) == ("paused", 21 - len(ran))
        with pytest.raises(WaitTimeout):
            plan.wait(0.1)
        plan.resume()
        assert after.result(30) is None
        assert plan.wait(30).finished == 22
    assert len(notes(file)) == 21


def test_running_tasks_of_a_cancelled_plan_are_notified_and_no_others_begin(
    here: Here, zkplan_client: Client, tmp_path: Path
) -> None:
    """Also when the worker has no free slot, and so no reason to look at the plan."""
    file = tmp_path / "ran"

    def watch() -> None:
        here = zkplan.current()
        note(file, "began")
        wait_until(lambda: here.cancelled, "the task is told")
        try:
            here.check()
        except zkplan.TaskCancelled as error:
            note(file, str(error).partition(": ")[2])

    with zkplan_client.create_plan() as plan:
        task = plan.add_task(watch)
        plan.add_task(lambda _: note(file, "after"), [task])
        plan.add_tasks([TaskSpec(note, [str(file), "never"], priority=-1)] * 1)
    with working(*here, threads=1):
        wait_until(lambda: notes(file) == ["began"], "the task begins")
        plan.cancel()
        wait_until(lambda: len(notes(file)) == 2, "the task is told")
        with pytest.raises(PlanCancelled):
            plan.wait(30)
        with zkplan_client.create_plan() as other:
            proof = other.add_task(lambda: "free")
        assert proof.result(30) == "free"
    assert notes(file) == ["began", "its plan was cancelled"]


@pytest.mark.usefixtures("nothing_stalls")
def test_tasks_of_higher_priority_begin_first_then_older_ones(
    here: Here, zkplan_client: Client, tmp_path: Path
) -> None:
    file = tmp_path / "order"
    with zkplan_client.create_plan() as plan:
        for number, priority in enumerate((0, -3, 5, 0, 4999, 5, -4999)):
            plan.add_task(note, [str(file), f"{priority}.{number}"], priority=priority)
    with working(*here, threads=1):
        plan.wait(30)
    assert notes(file) == ["4999.4", "5.2", "5.5", "0.0", "0.3", "-3.1", "-4999.6"]


def test_a_plan_is_found_by_name_path_and_number_from_another_connection(
    here: Here, zkplan_client: Client
) -> None:
    older = zkplan_client.create_plan("daily")
    newer = zkplan_client.create_plan("daily", attempts=7)
    newer.add_task(int)
    with zkplan.connect(*here) as client:
        number = newer.path[-10:]
        for which in (newer.path, number, int(number), "daily", f"plan-{number}"):
            found = client.plan(which)
            assert found.path == newer.path
        assert found.record.defaults.attempts == 7
        assert found.name == "daily"
        assert [plan.path for plan in client.plans()] == [older.path, newer.path]
        added = found.add_task(str)
        found.mark_ready()
        with working(*here):
            assert found.task(added.number).result(30) == ""
            assert found.task(int(added.number)).path == added.path
            found.wait(30)
    assert newer.is_drained()
    assert not older.is_drained()


def test_a_client_may_use_a_connection_of_the_user(zookeeper_hosts: str, zkplan_root: str) -> None:
    with plain_client(zookeeper_hosts) as mine:
        with zkplan.connect(mine, root=zkplan_root) as client:
            with client.create_plan() as plan:
                task = plan.add_task(lambda: "runs")
            with working(zookeeper_hosts, zkplan_root):
                assert task.result(30) == "runs"
                plan.wait(30)
        assert mine.connected, "the connection stays the user's"
        assert mine.exists(plan.path)


def test_the_status_of_a_plan_costs_the_same_for_any_plan_size(zkplan_client: Client) -> None:
    def cost(plan: zkplan.Plan) -> int:
        transport = zkplan_client.transport
        sent = []
        original = transport.submit

        def counted(request: Any, done: Any) -> Any:
            sent.append(request)
            return original(request, done)

        transport.submit = counted  # type: ignore[method-assign]
        try:
            plan.status()
            plan.is_drained()
        finally:
            del transport.submit
        return len(sent)

    small, large = zkplan_client.create_plan(), zkplan_client.create_plan()
    small.add_tasks([TaskSpec(int) for _ in range(10)])
    large.add_tasks([TaskSpec(int) for _ in range(1000)])
    assert cost(small) == cost(large) == 2
    assert large.status().tasks == 1000


def _status_torn(plan: zkplan.Plan, at: int, event: Callable[[], Any]) -> PlanStatus:
    """The status by single reads, with `event` before the read number `at` of the first batch."""
    transport = plan.client.transport

    def one(read: ReadData | ReadChildren) -> Step[Any]:
        return (yield read)

    steps, answers, happened = control.status(plan.path), None, False
    while True:
        try:
            batch = steps.send(answers)
        except StopIteration as end:
            return cast("PlanStatus", end.value)
        assert isinstance(batch, ReadMany)
        answers = []
        for number, read in enumerate(batch.reads):
            if number == at and not happened:
                happened = True
                event()
            answers.append(transport.run(one(read)))


@pytest.mark.parametrize("event", ["becomes ready", "ends", "is removed"])
def test_a_status_counts_right_when_the_plan_changes_between_its_reads(
    zkplan_client: Client, event: str
) -> None:
    """Else a plan that is just being marked done seems to have one more task."""
    for at in range(15):
        plan = zkplan_client.create_plan()
        if event == "becomes ready":
            plan.add_task(int)
            status = _status_torn(plan, at, plan.mark_ready)
            assert (status.tasks, status.added, status.finished) == (1, 1, 0), at
        elif event == "ends":
            plan.mark_ready()
            end = partial(zkplan_client.transport.run, control.finish(plan.path, time.time()))
            status = _status_torn(plan, at, end)
            assert (status.tasks, status.added, status.finished) == (0, 0, 0), at
        else:
            plan.add_task(int)
            plan.mark_ready()
            try:
                status = _status_torn(plan, at, plan.remove)
            except PlanNotFound:
                continue
            assert (status.tasks, status.added) == (1, 1), at


def test_single_reads_are_sent_to_a_server_without_batch_reads(
    here: Here, zkplan_client: Client
) -> None:
    """ZooKeeper before 3.6 and some of its relatives know no multiRead."""
    zkplan_client.transport._requests.server_reads_batches = False
    with zkplan_client.create_plan() as plan:
        tasks = [plan.add_task(lambda i=i: i) for i in range(150)]
        end = plan.add_task(lambda *values: sum(values), tasks)
    with working(*here) as worker:
        worker.client.transport._requests.server_reads_batches = False
        assert end.result(60) == sum(range(150))
        for _ in range(120):
            assert plan.status().tasks == 0
        plan.wait(30)


@pytest.mark.usefixtures("nothing_stalls")
def test_a_stopping_worker_finishes_what_runs_and_leaves_no_trace(
    here: Here, zkplan_client: Client, znodes: KazooClient, tmp_path: Path
) -> None:
    file, gate = tmp_path / "ran", tmp_path / "gate"
    with zkplan_client.create_plan() as plan:
        task = plan.add_task(pass_gate, [str(gate)], keep=True)
        plan.add_task(lambda _: note(file, "after"), [task])
    with zkplan.connect(*here) as client:
        worker = zkplan.Worker(client, threads=2).start()
        wait_until(Path(f"{gate}-reached").exists, "the task runs")
        stopping = threading.Thread(target=worker.stop, args=(60,))
        stopping.start()
        wait_until(lambda: worker._loop.shutdown.begun, "it drains")
        gate.touch()
        stopping.join(30)
        assert not stopping.is_alive()
    assert task.result(10) == "open"
    # A stopping worker would mostly hand a new claim back before a slot begins it.
    handed_back = worker.statistics().handed_back
    assert (notes(file), handed_back) == ([], 0), "a worker that stops claims nothing more"
    assert znodes.get_children(f"{zkplan_client.root}/claims") == []
    assert znodes.get_children(f"{zkplan_client.root}/workers") == []
    with working(*here):
        plan.wait(30)
    assert notes(file) == ["after"]


@pytest.mark.usefixtures("nothing_stalls")
def test_at_the_end_of_the_grace_running_tasks_are_handed_back_unharmed(
    here: Here, zkplan_client: Client, znodes: KazooClient, tmp_path: Path
) -> None:
    """It costs no attempt, and the task is told."""
    file, gate = tmp_path / "ran", tmp_path / "gate"

    def work() -> str:
        here = zkplan.current()
        note(file, f"began {here.attempt}")
        if here.attempt == 0:
            wait_until(lambda: here.cancelled, "the task is told")
            note(file, "told")
            try:
                wait_until(gate.exists, "the gate opens")
            finally:
                note(file, "ends")
        return f"attempt {here.attempt}"

    with zkplan_client.create_plan(attempts=1) as plan:
        task = plan.add_task(work)
    with working(*here, threads=1, grace=0.1):
        wait_until(lambda: notes(file) == ["began 0"], "the task runs")
    assert "ends" not in notes(file), "it was waited for"
    assert znodes.get_children(f"{plan.path}/runnable") == [f"5000-{task.number}.1.0"]
    assert znodes.get_children(f"{zkplan_client.root}/claims") == []
    wait_until(lambda: "told" in notes(file), "the task is told")
    gate.touch()
    with working(*here):
        assert task.result(30) == "attempt 1"
        plan.wait(30)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_a_worker_process(
    number: signal.Signals, here: Here, zkplan_client: Client, znodes: KazooClient, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    with zkplan_client.create_plan() as plan:
        task = plan.add_task(pass_gate, [str(gate), plan.add_task(stall_nothing)])
    with WorkerProcess(*here, tmp_path, "--threads", "2") as worker:
        # Claimed is not enough: a task that has not begun is handed back.
        wait_until(Path(f"{gate}-reached").exists, "the task runs")
        worker.process.send(number)
        gate.touch()
        assert worker.process.wait_ended(30)
        assert worker.process.exit_code == 0
    assert task.result(10) == "open"
    assert znodes.get_children(f"{zkplan_client.root}/claims") == []
    plan.wait(10)


def runs_until_told(file: str, raises: bool) -> None:
    note(file, "runs")
    wait_until(lambda: zkplan.current().cancelled, "the task is told")
    note(file, "told")
    if raises:
        zkplan.current().check()


@pytest.mark.parametrize("raises", [False, True], ids=["returns", "raises"])
def test_a_task_of_a_removed_plan_is_notified_and_its_end_logs_no_warning(
    raises: bool,
    here: Here,
    zkplan_client: Client,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    file = tmp_path / "ran"
    caplog.set_level("INFO", "zkplan")
    with working(*here):
        with zkplan_client.create_plan() as plan:
            plan.add_task(runs_until_told, [str(file), raises])
        wait_until(lambda: notes(file) == ["runs"], "it runs")
        plan.remove()
        wait_until(lambda: notes(file) == ["runs", "told"], "the task is told")
    # The worker has ended, and so it knows that the claim is lost, or has handed it back before.
    assert not [each for each in caplog.records if each.levelname not in ("INFO", "DEBUG")]
