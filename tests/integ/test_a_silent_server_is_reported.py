"""A worker says when ZooKeeper falls silent and when it is back, and can be stopped meanwhile."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import zkplan
from zkplan.testing.server_process import ServerProcess

from .support import WorkerProcess, note, notes, wait_until

ROOT = "/silent"


def run_until_told(file: str) -> None:
    """The second attempt finds that there was a first, and ends."""
    is_first = not notes(file)
    note(file, "here")
    while is_first:
        zkplan.current().check()
        threading.Event().wait(0.01)


def test_a_worker_tells_that_its_server_is_silent_and_that_it_answers_again(
    zookeeper_server: ServerProcess, tmp_path: Path
) -> None:
    with WorkerProcess(zookeeper_server.hosts, ROOT, tmp_path, "--session-timeout", "2") as worker:
        worker.wait_ready()
        zookeeper_server.kill()
        wait_until(lambda: worker.said("no answer from ZooKeeper at"), "it says so")
        wait_until(lambda: worker.said("Connection refused"), "and why")
        zookeeper_server.start()
        wait_until(lambda: worker.said("answers again"), "it says that, too")


def test_an_idle_worker_whose_server_is_gone_can_be_stopped(
    zookeeper_server: ServerProcess, tmp_path: Path
) -> None:
    """It holds nothing, so it neither waits for its grace nor for the end of its session."""
    with WorkerProcess(
        zookeeper_server.hosts, ROOT, tmp_path, "--session-timeout", "20", "--grace", "60"
    ) as worker:
        worker.wait_ready()
        zookeeper_server.kill()
        worker.process.send(signal.SIGTERM)
        assert worker.process.wait_ended(30)


def test_a_worker_tells_of_a_task_that_ended_early_because_its_server_was_silent(
    zookeeper_server: ServerProcess, tmp_path: Path
) -> None:
    """Its work was in vain, and no claim was lost that could tell of it."""
    file = tmp_path / "runs"
    with (
        zkplan.connect(zookeeper_server.hosts, ROOT) as client,
        WorkerProcess(zookeeper_server.hosts, ROOT, tmp_path, "--session-timeout", "6") as worker,
    ):
        worker.wait_ready()
        with client.create_plan() as plan:
            plan.add_task(run_until_told, [str(file)], name="long")
        wait_until(lambda: notes(file), "it runs")
        zookeeper_server.kill()
        wait_until(
            lambda: worker.said(f"long of {plan.path} ended early, as it was told to (ZooKeeper"),
            "it says which task ended for what",
        )
        zookeeper_server.start()
        plan.wait(30)
