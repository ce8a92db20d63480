"""`embedded:` and `embedded:FOLDER`: one server for an address, however many clients."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import zkplan
from zkplan import KeeperUnavailable
from zkplan.testing.process import WatchedProcess

from .support import IN_CHECKOUT, TOP, WorkerProcess, plain_client, wait_until, working


def listens(hosts: str) -> bool:
    host, _, port = hosts.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except ConnectionRefusedError:
        return False
    return True


def zkplan_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*IN_CHECKOUT, sys.executable, "-m", "zkplan", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_same_address_is_the_same_server_within_a_process(tmp_path: Path) -> None:
    address = f"embedded:{tmp_path}/data"
    with zkplan.connect(address) as one, zkplan.connect(f"{address}/../data") as other:
        assert one.keeper.hosts == other.keeper.hosts
        one.create_plan("shared")
        assert [plan.name for plan in other.plans()] == ["shared"]


def test_the_server_of_a_folder_ends_with_its_last_client_and_keeps_the_data(
    tmp_path: Path,
) -> None:
    address = f"embedded:{tmp_path}"
    with zkplan.connect(address) as client:
        first = client.keeper.hosts
        with zkplan.connect(address):
            pass
        client.create_plan("kept")
        assert listens(first)
    assert not listens(first)
    with zkplan.connect(address) as client:
        assert [plan.name for plan in client.plans()] == ["kept"]


def test_a_server_in_memory_outlives_its_clients() -> None:
    root = "/outlives"
    with zkplan.connect("embedded:", root) as client:
        client.create_plan("still there")
    with zkplan.connect("embedded:", root) as client:
        assert [plan.name for plan in client.plans()] == ["still there"]


def test_a_client_that_cannot_be_made_leaves_no_server(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="sesion_timeout"):
        zkplan.connect(f"embedded:{tmp_path}", sesion_timeout=5)
    done = zkplan_command("plan", "ls", "--hosts", f"embedded:{tmp_path}")
    assert done.returncode == 0, done.stderr
    assert "another process" not in done.stderr


def test_a_plan_runs_on_an_embedded_server() -> None:
    with working("embedded:", "/runs"), zkplan.connect("embedded:", "/runs") as client:
        with client.create_plan() as plan:
            answer = plan.add_task(lambda: 42)
        assert answer.result(timeout=30) == 42


def test_a_folder_that_another_process_serves_leads_to_that_process(tmp_path: Path) -> None:
    address = f"embedded:{tmp_path}/data"
    with WorkerProcess(address, "/zkplan", tmp_path / "worker") as worker:
        worker.wait_ready()
        with zkplan.connect(address) as client:
            with client.create_plan("from here") as plan:
                pid = plan.add_task(os.getpid)
            assert pid.result(timeout=30) == worker.pid
        listed = zkplan_command("plan", "ls", "--hosts", address)
        assert listed.returncode == 0, listed.stderr
        assert "from here" in listed.stdout
        assert worker.process.is_running()


def test_several_worker_processes_share_the_server_of_their_supervisor(tmp_path: Path) -> None:
    address = f"embedded:{tmp_path}/data"
    with WorkerProcess(address, "/zkplan", tmp_path / "worker", "--processes", "2") as supervisor:
        supervisor.wait_ready()
        with zkplan.connect(address) as client:
            wait_until(lambda: len(client.workers()) == 2, "two workers are registered")
            assert supervisor.pid not in {worker.pid for worker in client.workers()}
        supervisor.process.send(signal.SIGTERM)
        assert supervisor.process.wait_ended(30)
    with zkplan.connect(address) as client:
        assert client.workers() == []


def test_a_worker_in_memory_says_that_its_data_end_with_it(tmp_path: Path) -> None:
    with WorkerProcess("embedded:", "/zkplan", tmp_path) as worker:
        worker.wait_ready()
        assert worker.said(f"in memory only: its data end with process {worker.pid}")


FORKS = """
import os, sys, zkplan
client = zkplan.connect(sys.argv[1])
client.create_plan("of the parent")
child = os.fork()
if child == 0:
    try:
        client.close()
        with zkplan.connect(sys.argv[1]) as anew:
            assert [plan.name for plan in anew.plans()] == ["of the parent"]
        os._exit(0)
    finally:
        os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert [plan.name for plan in client.plans()] == ["of the parent"]
client.close()
"""


def test_a_forked_child_connects_to_the_server_of_its_parent(tmp_path: Path) -> None:
    log = tmp_path / "log"
    program = WatchedProcess(
        [*IN_CHECKOUT, sys.executable, "-c", FORKS, f"embedded:{tmp_path}/data"], log
    )
    try:
        assert program.wait_ended(30)
        assert log.read_text() == ""
    finally:
        program.end(0)


def test_a_program_that_closes_nothing_ends_and_lets_the_folder_go(tmp_path: Path) -> None:
    source = "import sys, zkplan; zkplan.connect(sys.argv[1]).create_plan('kept')"
    address = f"embedded:{tmp_path}"
    ran = subprocess.run(
        [sys.executable, "-c", source, address],
        cwd=TOP,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    with zkplan.connect(address) as client:
        assert [plan.name for plan in client.plans()] == ["kept"]


def test_a_folder_that_cannot_be_used_is_no_server(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(KeeperUnavailable, match="no server for embedded:"):
        zkplan.connect(f"embedded:{tmp_path}/file")
    done = zkplan_command("plan", "ls", "--hosts", f"embedded:{tmp_path}/file")
    assert done.returncode == 3
    assert "Traceback" not in done.stderr


def test_any_client_may_use_the_server_beside(tmp_path: Path) -> None:
    with zkplan.connect(f"embedded:{tmp_path}") as client:
        client.prepare()
        with plain_client(client.keeper.hosts) as znodes:
            assert "worker" in znodes.get_children("/zkplan")
