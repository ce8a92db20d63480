"""`zkplan worker`: its options from the environment, the folder it imports from, how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import zkplan
from tests.tools.support import (
    TOP,
    Here,
    WorkerProcess,
    is_running,
    key_file,
    secret_of,
    started,
    wait_until,
)
from zkplan import Client
from zkplan.testing.server_process import free_port


def test_every_option_of_a_worker_can_come_from_the_environment(
    zookeeper_hosts: str, zkplan_client: Client, tmp_path: Path
) -> None:
    """As in a container: no arguments at all."""
    environment = {
        **os.environ,
        "ZKPLAN_HOSTS": zookeeper_hosts,
        "ZKPLAN_ROOT": zkplan_client.root,
        "ZKPLAN_SECRET_FILES": str(key_file(tmp_path, "shh")),
        "ZKPLAN_WORKER_THREADS": "5",
        "ZKPLAN_WORKER_GRACE": "3",
        "ZKPLAN_WORKER_SESSION_TIMEOUT": "4",
    }
    with started(sys.executable, "-m", "zkplan", "worker", env=environment) as process:
        (found,) = wait_until(zkplan_client.workers, "the worker is registered")
        assert (found.slots, found.pid) == (5, process.pid)
        with zkplan.connect(
            zookeeper_hosts, root=zkplan_client.root, secret=secret_of("shh")
        ) as client:
            with client.create_plan() as plan:
                task = plan.add_task(lambda: "signed")
            assert task.result(30) == "signed"
        process.terminate()
        out, err = process.communicate(timeout=30)
    assert process.returncode == 0
    assert out == ""
    assert f"worker {found.id} ready" in err


def test_a_worker_finds_functions_in_its_current_folder(
    zookeeper_hosts: str, zkplan_client: Client, tmp_path: Path
) -> None:
    name = f"here_{os.getpid()}"
    (tmp_path / f"{name}.py").write_text("def work(x):\n    return x * 2\n")
    sys.path.insert(0, str(tmp_path))
    try:
        function = __import__(name).work
    finally:
        sys.path.remove(str(tmp_path))
    with zkplan_client.create_plan() as plan:
        task = plan.add_task(function, [21])
    in_folder = ("/usr/bin/env", "-C", str(tmp_path), f"PYTHONPATH={TOP}")
    options = ("--hosts", zookeeper_hosts, "--root", zkplan_client.root)
    command = (sys.executable, "-m", "zkplan", "worker", *options)
    with started(*in_folder, *command, stderr=subprocess.DEVNULL):
        assert task.result(30) == 42


def test_a_worker_process_that_stays_paused_is_replaced(
    zkplan_client: Client, here: Here, tmp_path: Path
) -> None:
    options = ("--processes", "2", "--threads", "1", "--session-timeout", "2")
    with WorkerProcess(*here, tmp_path, *options) as command:
        command.wait_ready(2)
        stopped, other = zkplan_client.workers()
        os.kill(stopped.pid, signal.SIGSTOP)
        wait_until(
            lambda: len({each.id for each in zkplan_client.workers()} - {stopped.id}) == 2,
            "another process has taken its place",
        )
        assert command.said(f"worker process {stopped.pid} has been stopped (SIGSTOP)")
        assert not is_running(stopped.pid)
        assert is_running(other.pid)


def test_a_worker_whose_processes_cannot_connect_ends_with_three(tmp_path: Path) -> None:
    options = ("--processes", "2", "--connect-timeout", "0.3")
    with WorkerProcess(f"127.0.0.1:{free_port()}", "/zkplan", tmp_path, *options) as worker:
        assert worker.process.wait_ended(30)
        assert worker.process._process.returncode == 3
        assert worker.said("is it running")
