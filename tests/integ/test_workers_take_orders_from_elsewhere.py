"""Workers are drained, paused and resumed from another machine."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import cast

import pytest

import zkplan
from tests.tools.support import (
    Here,
    Run,
    WorkerProcess,
    note,
    notes,
    pass_gate,
    wait_until,
    working,
)
from zkplan import Client, WaitTimeout, WorkerNotFound
from zkplan.protocol.core.workers import report
from zkplan.protocol.requests import ReadData, Step

QUICK = ("--session-timeout", "2")


def test_a_drained_worker_finishes_running_tasks_and_leaves_the_rest(
    here: Here, zkplan_client: Client, run: Run, tmp_path: Path
) -> None:
    file, gate = tmp_path / "ran", tmp_path / "gate"
    with WorkerProcess(*here, tmp_path, "--threads", "1", *QUICK) as process:
        process.wait_ready()
        (worker,) = zkplan_client.workers()
        assert (worker.version, worker.isolation, worker.state) == (
            zkplan.__version__,
            "thread",
            "running",
        )
        with zkplan_client.create_plan() as plan:
            first = plan.add_task(pass_gate, [str(gate)], keep=True)
            others = [plan.add_task(note, [str(file), str(n)], priority=-1) for n in range(5)]
        wait_until(Path(f"{gate}-reached").exists, "the first task runs")
        told = run("worker", "drain", worker.id[:-2], "-o", "json")
        assert told.code == 0, told.err
        assert zkplan_client.drain_worker(worker.id).state == "draining"  # twice does no harm
        with pytest.raises(WaitTimeout, match="these workers still drain, with 1 tasks"):
            zkplan_client.drain_worker(worker.id, wait=True, timeout=1.0)
        with pytest.raises(zkplan.ZkplanError, match="drains, and takes no other order"):
            zkplan_client.pause_worker(worker.id)
        gate.touch()
        wait_until(lambda: not zkplan_client.workers(), "it has signed off")
        wait_until(lambda: not process.process.is_running(), "its process has ended")
        assert process.process.exit_code == 0
    assert first.result(5) == "open"
    assert notes(file) == []
    with working(*here):
        for task in others:
            task.result(30)
    assert sorted(notes(file)) == [str(n) for n in range(5)]


def test_a_paused_worker_claims_nothing_until_it_is_resumed(
    here: Here, zkplan_client: Client, run: Run, tmp_path: Path
) -> None:
    with working(*here, threads=2, session_timeout=2.0) as worker:
        host = zkplan_client.workers()[0].host
        assert run("worker", "pause", "--host", host).code == 0
        wait_until(lambda: worker._loop.claims.paused, "it has heard of it")
        assert run("worker", "ls", "-o", "json").data[0]["state"] == "paused"
        with zkplan_client.create_plan() as plan:
            task = plan.add_task(lambda: "ran")
        with working(*here, session_timeout=2.0):
            assert plan.wait(30).finished == 1  # the other one runs it
        with zkplan_client.create_plan() as plan:
            task = plan.add_task(lambda: "ran")
        with pytest.raises(zkplan.WaitTimeout):
            task.result(0.5)  # nothing else tells that nothing will happen
        assert (plan.status().runnable, worker.statistics().executed) == (1, 0)
        zkplan_client.resume_worker(worker.id)
        assert task.result(30) == "ran"


def test_an_order_that_arrives_while_a_worker_reports_is_kept(
    here: Here, zkplan_client: Client
) -> None:
    """The report would say `running` over it, and the worker would never hear of it."""
    transport = zkplan_client.transport
    with working(*here, session_timeout=2.0) as worker:
        step = report(zkplan_client.paths, zkplan_client.workers()[0]._replace(abandoned=3))
        node = transport.ask(cast("ReadData", next(step)))
        write = step.send(node)
        zkplan_client.pause_worker(worker.id)

        def rest() -> Step[bool]:
            answer = yield write
            while True:
                try:
                    answer = yield step.send(answer)
                except StopIteration as end:
                    return bool(end.value)

        assert transport.run(rest())
        (seen,) = zkplan_client.workers()
        assert (seen.state, seen.abandoned) == ("paused", 3)
        wait_until(lambda: worker._loop.claims.paused, "it has heard of it")


def test_an_unknown_or_ambiguous_worker_is_refused_with_a_list_of_workers(
    here: Here, zkplan_client: Client, run: Run
) -> None:
    with pytest.raises(WorkerNotFound, match=r"no worker 'x'; there is none under"):
        zkplan_client.drain_worker("x")
    with working(*here) as one, working(*here) as two:
        with pytest.raises(WorkerNotFound, match="2 workers have an ID that begins with") as found:
            zkplan_client.pause_worker(one.id[:3])
        assert one.id in str(found.value)
        assert two.id in str(found.value)
        with pytest.raises(WorkerNotFound, match=f"workers under {here[1]}: .*{one.id}"):
            zkplan_client.pause_worker("nobody")
        said = run("worker", "drain", "--host", "nowhere")
        assert (said.code, "there are workers on: " in said.err) == (2, True)
        assert run("worker", "drain").code == 2


def test_a_supervisor_ends_with_the_last_worker_that_was_drained(
    here: Here, zkplan_client: Client, tmp_path: Path
) -> None:
    with WorkerProcess(*here, tmp_path, "--processes", "2", *QUICK) as process:
        process.wait_ready(2)
        first, second = zkplan_client.workers()
        zkplan_client.drain_worker(first.id, wait=True, timeout=30)
        wait_until(lambda: process.said("was drained, and is not replaced"), "it is not replaced")
        assert [each.id for each in zkplan_client.workers()] == [second.id]
        zkplan_client.drain_worker(second.id, wait=True, timeout=30)
        wait_until(lambda: not process.process.is_running(), "the supervisor has ended")
        assert process.process.exit_code == 0


@pytest.mark.chaos  # ten seconds: four processes start
@pytest.mark.timeout(120)
def test_sighup_takes_new_code_and_loses_no_task(
    here: Here, zkplan_client: Client, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    with WorkerProcess(*here, tmp_path, "--processes", "2", "--threads", "1", *QUICK) as process:
        process.wait_ready(2)
        old = {each.id for each in zkplan_client.workers()}
        with zkplan_client.create_plan() as plan:
            running = plan.add_task(pass_gate, [str(gate)])
        wait_until(Path(f"{gate}-reached").exists, "a task runs")
        os.kill(process.pid, signal.SIGHUP)
        wait_until(
            lambda: len({each.id for each in zkplan_client.workers()} - old) >= 1, "new ones"
        )
        gate.touch()
        assert running.result(30) == "open"
        assert running.info().failed is False
        wait_until(lambda: process.said("have been replaced by new ones"), "all were replaced")
        assert not {each.id for each in zkplan_client.workers()} & old
        assert len(zkplan_client.workers()) == 2
        assert plan.status().outcomes == 1
