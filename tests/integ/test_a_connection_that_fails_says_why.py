"""A process that cannot or must not reach ZooKeeper says so; a worker can be stopped meanwhile."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkplan
from tests.tools.support import WAIT_S, Here, WorkerProcess, note, notes, started, wait_until
from zkplan import Client, ClientClosed, ZooKeeperUnavailable
from zkplan.testing.server_process import ServerProcess, free_port


def test_an_unreachable_zookeeper_is_reported_within_the_connect_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begin = KazooClient.start_async

    def begin_and_be_refused(client: KazooClient) -> Any:
        begun = begin(client)
        # On a busy machine its thread may come to that after the time-out, and has no reason then.
        wait_until(lambda: client.logger.complaint, "it is refused")
        return begun

    monkeypatch.setattr(KazooClient, "start_async", begin_and_be_refused)
    start = time.monotonic()
    told = r"127.0.0.1:.*within 0.5 s \(.*Connection refused\); is it running"
    with pytest.raises(ZooKeeperUnavailable, match=told):
        zkplan.connect(f"127.0.0.1:{free_port()}", connect_timeout=0.5)
    assert time.monotonic() - start < 10  # that would be the time-out of who asks for none


def test_a_command_says_what_it_connects_to_while_no_server_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hosts = f"127.0.0.1:{silent.getsockname()[1]}"
        command = ("plan", "ls", "--hosts", hosts, "--connect-timeout", "600")
        with started(sys.executable, "-m", "zkplan", *command) as process:
            assert process.stderr is not None
            assert process.stderr.readline() == f"connecting to {hosts} …\n"
            assert process.poll() is None


def test_an_unanswered_call_fails_after_the_patience(zookeeper_server: ServerProcess) -> None:
    with zkplan.connect(zookeeper_server.hosts, patience=0.5) as client:
        transport = client.transport
        # A server that has just started, or goes on, may well take longer than that.
        short, transport.patience_s = transport.patience_s, WAIT_S
        plan = client.create_plan()
        plan.add_task(int)
        zookeeper_server.pause()
        transport.patience_s = short
        with pytest.raises(ZooKeeperUnavailable, match=r"for 0\.5 s.*may or may not be applied"):
            plan.add_task(int)
        transport.patience_s = WAIT_S
        zookeeper_server.resume()
        zookeeper_server.wait_serving()
        # The write was under way, and it is applied; the plan can be used as before.
        plan.add_task(int)
        wait_until(lambda: plan.status().added == 3, "all three are there")


def test_a_call_on_a_closed_client_says_that_it_is_closed(here: Here) -> None:
    client = zkplan.connect(*here)
    plan = client.create_plan()
    client.close()
    client.close()
    with pytest.raises(ClientClosed, match="was closed"):
        plan.status()
    with zkplan.connect(*here) as another:
        another.plan(plan.path).remove()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_is_told_to_connect_again(zkplan_client: Client, tmp_path: Path) -> None:
    plan = zkplan_client.create_plan()
    file = tmp_path / "child"
    # As if another thread sent a request during the fork: no thread of the child frees this lock.
    with zkplan_client.transport._requests._lock:
        child = os.fork()
        if child == 0:  # pragma: no cover - in another process
            try:
                plan.status()
            except ClientClosed as error:
                note(file, str(error))
                zkplan_client.close()
                note(file, "closed")
            except BaseException as error:
                note(file, repr(error))
            finally:
                os._exit(0)
    os.waitpid(child, 0)
    refused, closed = notes(file)
    assert "connect anew in the child" in refused
    assert closed == "closed"
    assert plan.status().state == "defining"


ROOT = "/silent"


def run_until_told(file: str) -> None:
    """The second attempt finds that there was a first, and ends."""
    is_first = not notes(file)
    note(file, "here")
    while is_first:
        zkplan.current().check()
        threading.Event().wait(0.01)


def test_a_worker_logs_when_its_server_falls_silent_and_when_it_answers_again(
    zookeeper_server: ServerProcess, tmp_path: Path
) -> None:
    with WorkerProcess(zookeeper_server.hosts, ROOT, tmp_path, "--session-timeout", "2") as worker:
        worker.wait_ready()
        zookeeper_server.kill()
        wait_until(lambda: worker.said("no answer from ZooKeeper at"), "it says so")
        wait_until(lambda: worker.said("Connection refused"), "and why")
        zookeeper_server.start()
        wait_until(lambda: worker.said("answers again"), "it says that, too")


def test_an_idle_worker_whose_server_has_ended_can_be_stopped(
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


def test_a_worker_logs_which_task_ended_early_because_its_server_was_silent(
    zookeeper_server: ServerProcess, tmp_path: Path
) -> None:
    """Its work was in vain, and no claim was lost that could tell of it."""
    file = tmp_path / "runs"
    with (
        zkplan.connect(zookeeper_server.hosts, ROOT) as client,
        WorkerProcess(zookeeper_server.hosts, ROOT, tmp_path, "--session-timeout", "4") as worker,
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
