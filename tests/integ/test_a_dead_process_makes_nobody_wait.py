"""A supervisor signs off a dead worker process, so its tasks do not wait for its session to end."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import zkplan
from tests.tools.support import WAIT_S, Here, WorkerProcess, note, notes, plain_client, wait_until
from zkplan import Client
from zkplan.testing.server_process import ServerProcess

#: Longer than anything here is waited for. A worker asks six times as often whether it is
#: registered.
SESSION_S = 32.0
OPTIONS = ("--processes", "2", "--session-timeout", f"{SESSION_S:g}")
assert WAIT_S < SESSION_S


def hold_at_first(file: str) -> int:
    """The first time it runs until its process ends; then it gives the number of its claim."""
    attempt = zkplan.current().attempt
    note(file, f"{os.getpid()} {attempt}")
    if len(notes(file)) == 1:
        threading.Event().wait()
    return attempt


def require_taken_over(file: Path, result: int) -> None:
    """It ran twice: at its first process, and under a later claim at another one, which ended."""
    (victim, first), (other, second) = [map(int, line.split()) for line in notes(file)]
    assert other != victim
    assert result == second > first


def test_the_tasks_of_a_killed_process_are_taken_over_before_its_session_ends(
    here: Here, zkplan_client: Client, tmp_path: Path
) -> None:
    file = tmp_path / "runs"
    with WorkerProcess(*here, tmp_path, *OPTIONS) as worker:
        worker.wait_ready(2)
        first = zkplan_client.workers()
        with zkplan_client.create_plan() as plan:
            task = plan.add_task(hold_at_first, [str(file)])
        [victim] = [int(line.split()[0]) for line in wait_until(lambda: notes(file), "it runs")]
        [lost] = [found.id for found in first if found.pid == victim]
        os.kill(victim, signal.SIGKILL)
        require_taken_over(file, task.result(WAIT_S))
        wait_until(lambda: worker.said(f"worker {lost} is signed off"), "it tells of that")
        assert worker.said(f"process {victim} was ended by SIGKILL; it is replaced")
        wait_until(lambda: len(zkplan_client.workers()) == 2, "it is replaced")


def test_a_worker_that_registered_again_is_signed_off_under_its_new_id(
    zookeeper_hosts: str, zkplan_client: Client, tmp_path: Path
) -> None:
    with WorkerProcess(zookeeper_hosts, zkplan_client.root, tmp_path, *OPTIONS) as worker:
        worker.wait_ready(2)
        first = zkplan_client.workers()
        with plain_client(zookeeper_hosts) as znodes:
            znodes.delete(f"{zkplan_client.root}/workers/{first[0].id}")
        wait_until(lambda: worker.said(f"worker {first[0].id}-2 ready"), "it registers anew")
        os.kill(first[0].pid, signal.SIGKILL)
        wait_until(lambda: worker.said(f"worker {first[0].id}-2 is signed off"), "it is signed off")


def test_a_process_that_dies_while_the_others_drain_is_signed_off(
    here: Here, zkplan_client: Client, tmp_path: Path
) -> None:
    file = tmp_path / "runs"
    with WorkerProcess(*here, tmp_path, *OPTIONS, "--grace", "600") as worker:
        worker.wait_ready(2)
        with zkplan_client.create_plan() as plan:
            task = plan.add_task(hold_at_first, [str(file)])
        [victim] = [int(line.split()[0]) for line in wait_until(lambda: notes(file), "it runs")]
        worker.process.send(signal.SIGTERM)
        wait_until(lambda: worker.said("draining: 1 task running"), "it drains")
        os.kill(victim, signal.SIGKILL)
        assert worker.process.wait_ended(WAIT_S)
        assert zkplan_client.workers() == []
    with WorkerProcess(*here, tmp_path):
        require_taken_over(file, task.result(WAIT_S))


def test_a_supervisor_that_cannot_sign_a_worker_off_tries_again(
    zookeeper_server: ServerProcess, tmp_path: Path
) -> None:
    hosts = zookeeper_server.hosts
    with (
        zkplan.connect(hosts, session_timeout=SESSION_S, patience=WAIT_S) as client,
        WorkerProcess(hosts, "/zkplan", tmp_path, *OPTIONS, "--connect-timeout", "3") as worker,
    ):
        worker.wait_ready(2)
        dead = client.workers()[0]
        zookeeper_server.kill()
        os.kill(dead.pid, signal.SIGKILL)
        wait_until(lambda: worker.said(f"worker {dead.id} cannot be signed off yet"), "it says so")
        zookeeper_server.start()
        wait_until(lambda: worker.said(f"worker {dead.id} is signed off"), "it tries again")
        wait_until(lambda: dead.id not in [each.id for each in client.workers()], "it is gone")
    assert not worker.said("Traceback")
