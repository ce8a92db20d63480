"""`embedded:` and `embedded:FOLDER` address one server each, for any number of clients."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

import zkplan
from tests.tools.support import (
    WAIT_S,
    WorkerProcess,
    first_line,
    note,
    notes,
    run_python,
    started,
    wait_until,
    working,
    zkplan_command,
)
from zkplan import ZooKeeperUnavailable
from zkplan.embedded import address_of
from zkplan.embedded.database import FolderLock
from zkplan.transport import addresses


def listens(hosts: str) -> bool:
    host, _, port = hosts.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except ConnectionRefusedError:
        return False
    return True


def test_the_same_address_is_the_same_server_within_a_process(tmp_path: Path) -> None:
    address = f"embedded:{tmp_path}/data"
    with zkplan.connect(address) as one, zkplan.connect(f"{address}/../data") as other:
        assert one.transport.hosts == other.transport.hosts
        one.create_plan("shared")
        assert [plan.name for plan in other.plans()] == ["shared"]


def test_the_server_of_a_folder_ends_with_its_last_client_and_keeps_the_data(
    tmp_path: Path,
) -> None:
    address = f"embedded:{tmp_path}"
    with zkplan.connect(address) as client:
        first = client.transport.hosts
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


def test_a_client_that_cannot_be_created_leaves_no_server(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="sesion_timeout"):
        zkplan.connect(f"embedded:{tmp_path}", sesion_timeout=5)
    done = zkplan_command("plan", "ls", "--hosts", f"embedded:{tmp_path}")
    assert "there are no plans under /zkplan" in done.stderr
    assert "another process" not in done.stderr


@pytest.mark.parametrize(
    "command", [["plan", "ls"], ["plan", "wait", "1"], ["worker", "ls"], ["task", "ls", "1"]]
)
def test_a_read_only_command_refuses_a_folder_without_data(
    command: list[str], tmp_path: Path
) -> None:
    missing = tmp_path / "missing"
    done = zkplan_command(*command, "--hosts", f"embedded:{missing}")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"the folder {missing} does not exist" in done.stderr
    assert not missing.exists()
    done = zkplan_command(*command, "--hosts", f"embedded:{tmp_path}")
    assert done.returncode == 2
    assert "holds no data of zkplan" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_plan_is_not_imported_into_a_server_in_memory(tmp_path: Path) -> None:
    file = tmp_path / "file.plan"
    with zkplan.connect(f"embedded:{tmp_path}/one") as client:
        plan = client.create_plan("moved")
        plan.add_task(os.getpid)
        plan.mark_ready()
        client.export_plan(plan, file, pause=True)
    done = zkplan_command("plan", "import", str(file), "--hosts", "embedded:")
    assert done.returncode == 2
    assert "in the memory of this process" in done.stderr
    done = zkplan_command("plan", "import", str(file), "--hosts", f"embedded:{tmp_path}/new")
    assert done.returncode == 0, done.stderr


def test_the_address_of_a_served_folder_connects_to_its_serving_process(tmp_path: Path) -> None:
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
        supervisor.wait_ready(2)
        with zkplan.connect(address) as client:
            assert len(client.workers()) == 2
            assert supervisor.pid not in {worker.pid for worker in client.workers()}
        supervisor.process.send(signal.SIGTERM)
        assert supervisor.process.wait_ended(30)
    with zkplan.connect(address) as client:
        assert client.workers() == []


def test_a_worker_with_a_server_in_memory_says_that_its_data_end_with_it(tmp_path: Path) -> None:
    with WorkerProcess("embedded:", "/zkplan", tmp_path) as worker:
        worker.wait_ready()
        assert worker.said(f"in memory only: its data ends with process {worker.pid}")


SERVES = """
import select, sys, zkplan
with zkplan.connect(sys.argv[1]) as client:
    client.prepare()
    print(client.transport.hosts, flush=True)
    # Not one blocking read: a signal that comes just before it is noticed only after it.
    while not select.select([sys.stdin], [], [], 0.1)[0]:
        pass
"""


@contextmanager
def serving(address: str) -> Iterator[subprocess.Popen[str]]:
    """A process that serves the folder, as any program does that was the first to use it."""
    command = (sys.executable, "-c", SERVES, address)
    with started(*command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert first_line(process).startswith("127.0.0.1:")
        yield process


def end(process: subprocess.Popen[str], number: signal.Signals) -> None:
    process.send_signal(number)
    process.wait(30)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_clients_go_on_when_the_process_that_served_their_folder_has_ended(
    number: signal.Signals, tmp_path: Path
) -> None:
    address = f"embedded:{tmp_path}/data"
    with serving(address) as other:
        one, two = zkplan.connect(address), zkplan.connect(address)
        session = one.transport.client.client_id
        one.create_plan("before")
        end(other, number)
        one.create_plan("after")
        assert [plan.name for plan in two.plans()] == ["before", "after"]
        # The server is here now, in the same session, and others find it.
        assert one.transport.client.client_id == session
        assert one.transport.hosts == two.transport.hosts == address_of(tmp_path / "data")
        listed = zkplan_command("plan", "ls", "--hosts", address)
        assert "after" in listed.stdout, listed.stderr
        hosts = one.transport.hosts
        one.close()
        assert listens(hosts)
        two.close()
        assert not listens(hosts)


def wait_for_a_writer(started: str, fifo: str) -> str:
    note(started, "once")
    return Path(fifo).read_text()


def test_a_running_task_outlives_the_process_that_served_its_plan(tmp_path: Path) -> None:
    address, started, fifo = f"embedded:{tmp_path}/data", tmp_path / "started", tmp_path / "fifo"
    os.mkfifo(fifo)
    with serving(address) as other, working(address, "/zkplan"), zkplan.connect(address) as client:
        with client.create_plan() as plan:
            task = plan.add_task(wait_for_a_writer, (str(started), str(fifo)))
        wait_until(lambda: notes(started), "the task runs")
        end(other, signal.SIGKILL)
        client.plans()
        fifo.write_text("done")
        assert task.result(timeout=30) == "done"
    assert notes(started) == ["once"]


@pytest.mark.slow
def test_other_processes_find_the_process_that_takes_over_the_folder(tmp_path: Path) -> None:
    address = f"embedded:{tmp_path}/data"
    with (
        serving(address) as other,
        WorkerProcess(address, "/zkplan", tmp_path / "worker") as worker,
        WorkerProcess(address, "/zkplan", tmp_path / "two", "--processes", "2") as supervisor,
        zkplan.connect(address) as client,
    ):
        worker.wait_ready()
        supervisor.wait_ready(2)
        before = {found.id for found in client.workers()}
        end(other, signal.SIGKILL)
        with client.create_plan() as plan:
            answer = plan.add_task(os.getppid)
        assert answer.result(timeout=30) > 0
        assert {found.id for found in client.workers()} == before
        # Its processes would outlive a supervisor that is killed.
        supervisor.process.send(signal.SIGTERM)
        assert supervisor.process.wait_ended(60)


@pytest.mark.slow
def test_a_supervisor_does_not_serve_the_folder_to_sign_a_dead_worker_off(tmp_path: Path) -> None:
    """It would stop that server again, under those who have gone over to it."""
    address = f"embedded:{tmp_path}/data"
    options = ("--processes", "2", "--session-timeout", "60")
    with (
        serving(address) as other,
        WorkerProcess(address, "/zkplan", tmp_path / "worker", *options) as supervisor,
        zkplan.connect(address) as client,
    ):
        supervisor.wait_ready(2)
        dead = client.workers()[0]
        # Stopped before, so that it does not take the folder itself, to leave it to another taker.
        os.kill(dead.pid, signal.SIGSTOP)
        end(other, signal.SIGKILL)
        os.kill(dead.pid, signal.SIGKILL)
        wait_until(lambda: supervisor.said(f"{dead.id} is signed off"), "it is signed off")
        log = supervisor.log.read_text().splitlines()
        takers = [line for line in log if "serving" in line]
        assert len(takers) <= 1  # where it is this process, there is none
        assert (tmp_path / "data" / "lock").read_text() != f"{supervisor.pid}\n"


def test_a_restarted_process_serves_its_folder_again_and_clients_follow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(addresses, "_RETURN_S", 60.0)
    address = f"embedded:{tmp_path}/data"
    with serving(address) as first, zkplan.connect(address) as client:
        end(first, signal.SIGKILL)
        with serving(address) as second:
            client.create_plan("on the second")
            assert client.transport.hosts == address_of(tmp_path / "data")
            assert (tmp_path / "data" / "lock").read_text() == f"{second.pid}\n"


def test_waiting_for_a_server_that_loads_slowly_does_not_block_other_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(addresses, "_WARN_AFTER_S", 0.0)
    (tmp_path / "one").mkdir()
    loading = FolderLock(tmp_path / "one")
    with ThreadPoolExecutor() as pool, caplog.at_level(logging.WARNING):
        leased = pool.submit(addresses.server_at, f"embedded:{tmp_path}/one")
        wait_until(lambda: "has loaded" in caplog.text, "it waits")
        addresses.server_at(f"embedded:{tmp_path}/two").release()
        assert not leased.done()
        loading.publish_address("127.0.0.1:1")
        assert leased.result(30).hosts == "127.0.0.1:1"
    loading.release()


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
    ran = run_python("-c", FORKS, f"embedded:{tmp_path}/data", timeout=WAIT_S)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_a_program_that_closes_nothing_still_ends_and_releases_the_folder(tmp_path: Path) -> None:
    source = "import sys, zkplan; zkplan.connect(sys.argv[1]).create_plan('kept')"
    address = f"embedded:{tmp_path}"
    ran = run_python("-c", source, address)
    assert (ran.returncode, ran.stderr) == (0, "")
    with zkplan.connect(address) as client:
        assert [plan.name for plan in client.plans()] == ["kept"]


def test_an_unusable_folder_is_refused_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ZooKeeperUnavailable, match="no server for embedded:"):
        zkplan.connect(f"embedded:{tmp_path}/file")
    done = zkplan_command("worker", "--hosts", f"embedded:{tmp_path}/file")
    assert done.returncode == 3
    assert "Traceback" not in done.stderr
