"""A worker says when ZooKeeper falls silent and when it is back, and can be stopped meanwhile."""

from __future__ import annotations

import signal
from pathlib import Path

from zkplan.testing.server_process import ServerProcess

from .support import WorkerProcess, wait_until

ROOT = "/silent"


def test_a_worker_tells_that_its_server_is_silent_and_that_it_answers_again(
    zookeeper_server: ServerProcess, tmp_path: Path
) -> None:
    with WorkerProcess(zookeeper_server.hosts, ROOT, tmp_path, "--session-timeout", "2") as worker:
        worker.wait_ready()
        zookeeper_server.kill()
        wait_until(lambda: worker.said("no answer from ZooKeeper at"), "it says so")
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
