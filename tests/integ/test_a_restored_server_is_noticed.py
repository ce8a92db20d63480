"""A client reports a server that was restored, and goes on after a server that was away."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import zkplan
from tests.tools.support import WorkerProcess, wait_until
from zkplan import TaskSpec
from zkplan.testing.server_process import ServerProcess

ROOT = "/restored"
SESSION_S = 1.0
#: More transactions than a restored server makes by itself: once it has caught up, no client can
#: see that it went back.
LOST = 50


def go_back(server: ServerProcess, folder: Path, lose: Callable[[int], object]) -> None:
    """Restore the server to what it is now, after `lose` was done on it often."""
    data, kept = server.data / "data", folder / "kept"
    server.stop()
    shutil.copytree(data, kept)
    server.start()
    for number in range(LOST):
        lose(number)
    server.stop()
    shutil.rmtree(data)
    shutil.copytree(kept, data)
    server.start()


def test_a_client_that_has_seen_newer_data_than_the_server_reports_a_restore(
    zookeeper_server: ServerProcess, tmp_path: Path
) -> None:
    """The server just closes its connection; without asking anew it would wait for ever."""
    with zkplan.connect(zookeeper_server.hosts, ROOT, session_timeout=SESSION_S) as client:
        client.create_plan("stands in the snapshot")
        go_back(zookeeper_server, tmp_path, lambda number: client.create_plan(f"lost {number}"))
        with pytest.raises(zkplan.ServerRolledBack, match="restored from an older state"):
            client.plans()
        with pytest.raises(zkplan.ServerRolledBack):
            client.create_plan("at once, too")
    with zkplan.connect(zookeeper_server.hosts, ROOT, session_timeout=SESSION_S) as client:
        assert [plan.name for plan in client.plans()] == ["stands in the snapshot"]


def test_a_client_goes_on_after_its_server_was_away_for_several_sessions(
    zookeeper_server: ServerProcess,
) -> None:
    with zkplan.connect(zookeeper_server.hosts, ROOT, session_timeout=SESSION_S) as client:
        client.create_plan("before")
        zookeeper_server.kill()
        with pytest.raises(zkplan.ZooKeeperUnavailable):
            zkplan.connect(zookeeper_server.hosts, ROOT, connect_timeout=4 * SESSION_S)
        zookeeper_server.start()
        client.create_plan("after")
        assert sorted(plan.name for plan in client.plans()) == ["after", "before"]


def meet(folder: str, others: int) -> None:
    """Ends when so many have begun: each of them on a thread of another worker."""
    Path(folder, f"{os.getpid()}").touch()
    wait_until(lambda: len(list(Path(folder).iterdir())) == others, "the others have begun")


def test_worker_processes_just_started_are_replaced_when_the_server_is_restored(
    zookeeper_server: ServerProcess, tmp_path: Path
) -> None:
    """Not taken for wrong usage or an unreachable server, for which a new one would fail alike."""
    hosts = zookeeper_server.hosts
    options = ("--session-timeout", f"{SESSION_S:g}", "--processes", "2", "--threads", "1")
    met = tmp_path / "met"
    met.mkdir()
    with (
        zkplan.connect(hosts, ROOT, session_timeout=SESSION_S) as client,
        WorkerProcess(hosts, ROOT, tmp_path, *options) as worker,
    ):
        worker.wait_ready(2)

        def lose(number: int) -> None:
            with client.create_plan(f"lost {number}") as plan:
                # A worker that was not connected has lost nothing; the last plan needs both.
                if number == LOST - 1:
                    plan.add_tasks([TaskSpec(meet, [str(met), 2]) for _ in range(2)])
            if number == LOST - 1:
                plan.wait(30)

        go_back(zookeeper_server, tmp_path, lose)
        ended = r"worker process \d+ ended with 3; it is replaced"
        wait_until(lambda: len(re.findall(ended, worker.log.read_text())) == 2, "both end")
        with zkplan.connect(hosts, ROOT) as anew, anew.create_plan("new") as plan:
            task = plan.add_task(abs, [-7], keep=True)
            plan.mark_ready()
            assert task.result(30) == 7
        assert worker.process.is_running()
    assert worker.said(" ends: ZooKeeper at ")
    assert not worker.said("Traceback")
