"""Ctrl-C and SIGTERM: what a command does when it must stop, and its exit code."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from pathlib import Path

import pytest

from tests.tools.support import (
    IN_CHECKOUT,
    WAIT_S,
    Here,
    WorkerProcess,
    note,
    notes,
    pass_gate,
    wait_until,
)
from zkplan import Client
from zkplan.processes import WatchedProcess


def exit_code(process: WatchedProcess) -> int | None:
    assert process.wait_ended(WAIT_S)
    return process._process.returncode


COMMAND = ["-m", "zkplan", "plan", "wait", "idle", "--hosts", "{hosts}", "--root", "{root}"]
SCRIPT = ["-c", "import zkplan; zkplan.connect('{hosts}', root='{root}').plan('idle').wait()"]


@pytest.mark.parametrize(("words", "code"), [(COMMAND, 130), (SCRIPT, -signal.SIGINT)])
def test_ctrl_c_during_a_wait_is_not_reported_as_a_failed_plan(
    words: list[str],
    code: int,
    zkplan_client: Client,
    zookeeper_hosts: str,
    tmp_path: Path,
) -> None:
    plan = zkplan_client.create_plan("idle")
    log = tmp_path / "log"
    told = [word.format(hosts=zookeeper_hosts, root=zkplan_client.root) for word in words]
    process = WatchedProcess([*IN_CHECKOUT, sys.executable, *told], log)
    try:
        # It warns once it waits.
        wait_until(lambda: "not marked ready" in log.read_text(), "the command waits")
        process.send(signal.SIGINT)
        assert exit_code(process) == code
    finally:
        process.end(0)
    said = log.read_text()
    assert ("Traceback" in said) == (words is SCRIPT)
    look = f"zkplan plan show {int(plan.number)} --hosts"
    assert f"(idle) goes on; only this wait has ended. To look at the plan: {look}" in said


MAIN = """
import asyncio, zkplan
async def each(tasks):
    async for task in zkplan.as_completed(tasks): pass
with zkplan.connect('{hosts}', root='{root}') as client:
    plan = client.plan('idle')
    task = plan.task('int')
    print('waits', flush=True)
    {wait}
"""
WAITS = {
    "result": "task.result()",
    "exception": "task.exception()",
    "results": "plan.results([task])",
    "all results": "plan.results()",
    "as completed": "list(zkplan.as_completed([task]))",
    "wait": "zkplan.wait([task])",
    "await": "asyncio.run(task._awaited())",
    "await each": "asyncio.run(each([task]))",
    "await plan": "asyncio.run(plan.wait_async())",
}


@pytest.mark.parametrize("wait", WAITS.values(), ids=list(WAITS))
def test_ctrl_c_ends_each_of_the_waits_in_python(
    wait: str, zkplan_client: Client, zookeeper_hosts: str, tmp_path: Path
) -> None:
    with zkplan_client.create_plan("idle") as plan:
        plan.add_task(int)
    log = tmp_path / "log"
    main = MAIN.format(hosts=zookeeper_hosts, root=zkplan_client.root, wait=wait)
    process = WatchedProcess([*IN_CHECKOUT, sys.executable, "-c", main], log)
    try:
        # It warns once it waits.
        wait_until(lambda: "no worker is registered" in log.read_text(), "it waits")
        process.send(signal.SIGINT)
        assert exit_code(process) == -signal.SIGINT
    finally:
        process.end(0)
    said = log.read_text()
    assert "KeyboardInterrupt" in said
    is_async = "asyncio" in wait  # there the coroutine is cancelled
    assert is_async or said.count("goes on; only this wait has ended. To look at the plan:") == 1
    assert plan.status().state == "running"


def test_ctrl_c_ends_a_worker_that_is_still_connecting(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host = f"127.0.0.1:{silent.getsockname()[1]}"
        with WorkerProcess(host, "/zkplan", tmp_path, "--connect-timeout", "60") as worker:
            silent.settimeout(WAIT_S)
            connection, _ = silent.accept()
            with connection:
                worker.process.send(signal.SIGINT)
                assert exit_code(worker.process) == 130
            assert not worker.said("Traceback")


def hold(file: str, tries: int) -> int:
    """Runs until its process ends, the first `tries` times; then it gives how often it ran."""
    note(file, str(os.getpid()))
    count = len(notes(file))
    if count <= tries:
        threading.Event().wait()
    return count


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_second_signal_hands_the_tasks_back_at_once(
    processes: str, zkplan_client: Client, here: Here, tmp_path: Path
) -> None:
    file = tmp_path / "runs"
    with zkplan_client.create_plan() as plan:
        task = plan.add_task(hold, [str(file), 1], attempts=1)
    options = ("--grace", "600", "--processes", processes)
    with WorkerProcess(*here, tmp_path, *options) as worker:
        wait_until(lambda: notes(file), "the task runs")
        worker.process.send(signal.SIGINT)
        wait_until(
            lambda: worker.said(
                "draining: 1 task running, 600 s to end; a second signal hands them back"
            ),
            "the worker drains",
        )
        assert worker.process.is_running()
        worker.process.send(signal.SIGINT)
        assert exit_code(worker.process) == 0
    with WorkerProcess(*here, tmp_path):
        # It had one attempt, and still has it: a hand-back costs none.
        assert task.result(WAIT_S) == 2


@pytest.mark.parametrize("drains", [False, True])
def test_worker_processes_whose_supervisor_is_killed_end_their_tasks_and_leave(
    drains: bool, zkplan_client: Client, here: Here, tmp_path: Path
) -> None:
    """Also those that drain already: the grace that they were given stays theirs."""
    gate = tmp_path / "gate"
    with zkplan_client.create_plan() as plan:
        task = plan.add_task(pass_gate, [str(gate)], keep=True)
    options = ("--processes", "2", "--grace", "60")
    with WorkerProcess(*here, tmp_path, *options) as worker:
        worker.wait_ready(2)
        wait_until(Path(f"{gate}-reached").exists, "the task runs")
        if drains:
            worker.process.send(signal.SIGTERM)
            wait_until(lambda: worker.said("draining: 1 task running"), "its process drains")
        worker.process.end(0)
        wait_until(lambda: worker.said("the supervisor of this"), "its end is noticed")
        wait_until(lambda: worker.said("draining: 1 task running"), "its process drains")
        wait_until(lambda: len(zkplan_client.workers()) == 1, "the idle process has left")
        gate.touch()
        assert task.result(WAIT_S) == "open"
        wait_until(lambda: not zkplan_client.workers(), "the other one leaves")


def test_one_signal_hurries_a_draining_worker_that_lost_its_supervisor(
    zkplan_client: Client, here: Here, tmp_path: Path
) -> None:
    """It says `again to hand them back at once`, and was not told by a signal before."""
    gate = tmp_path / "gate"
    with zkplan_client.create_plan() as plan:
        plan.add_task(pass_gate, [str(gate)])
    options = ("--processes", "2", "--grace", "60")
    with WorkerProcess(*here, tmp_path, *options) as worker:
        worker.wait_ready(2)
        wait_until(Path(f"{gate}-reached").exists, "the task runs")
        worker.process.end(0)
        wait_until(lambda: worker.said("draining: 1 task running"), "its process drains")
        [left] = wait_until(
            lambda: len(found := zkplan_client.workers()) == 1 and found, "the idle one has left"
        )
        os.kill(left.pid, signal.SIGTERM)
        wait_until(lambda: not zkplan_client.workers(), "it leaves", 20)
        assert plan.status().runnable == 1
        gate.touch()
