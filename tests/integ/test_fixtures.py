"""The servers and fixtures of zkplan.testing do what tests rely on."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.support import first_line, plain_client, run_python, started
from zkplan.testing import find_zookeeper
from zkplan.testing.server_process import ServerDidNotStart, ServerProcess
from zkplan.testing.servers import (
    NO_ZOOKEEPER,
    NoZooKeeper,
    ZooKeeperServer,
    provided_zookeeper,
    remove_tree,
)

needs_java = pytest.mark.skipif(find_zookeeper() is None, reason="starts a server with Java")

STARTS_A_SERVER_AND_WAITS = """
import sys
from zkplan.testing.servers import ZooKeeperServer
with ZooKeeperServer() as server:
    print(server.port, server.data, flush=True)
    sys.stdin.read()
"""

USES_THE_CLIENT = """
import pytest


def test_a_plan_runs(zkplan_client):
    with zkplan_client.create_plan() as plan:
        answer = plan.add_task(sum, [[20, 22]])
    assert answer.result(timeout=10) == 42


@pytest.mark.parametrize("zkplan_threads", [0])
def test_nobody_works(zkplan_client):
    assert zkplan_client.workers() == []
"""


def test_removing_a_tree_leaves_its_neighbour(zookeeper_hosts: str, zkplan_root: str) -> None:
    with plain_client(zookeeper_hosts) as client:
        paths = [f"{zkplan_root}/tree/{a}/{b}" for a in range(30) for b in range(30)]
        for a in range(30):
            client.ensure_path(f"{zkplan_root}/tree/{a}")
        for answer in [client.create_async(path) for path in paths]:
            answer.get(timeout=30)
        client.create(f"{zkplan_root}/neighbour")
        remove_tree(client, f"{zkplan_root}/tree")
        remove_tree(client, f"{zkplan_root}/tree")
        assert client.get_children(zkplan_root) == ["neighbour"]


def test_a_paused_server_can_be_stopped(zookeeper_server: ServerProcess) -> None:
    zookeeper_server.pause()
    zookeeper_server.stop()
    assert not zookeeper_server.is_running()


@needs_java
def test_a_server_dies_with_the_process_that_started_it() -> None:
    command = (sys.executable, "-c", STARTS_A_SERVER_AND_WAITS)
    with started(*command, stdin=subprocess.PIPE) as starter:
        port, _, folder = first_line(starter).partition(" ")
        try:
            starter.kill()
            wait_refused(int(port))
        finally:
            shutil.rmtree(folder)


def wait_refused(port: int) -> None:
    """Wait until nobody listens; a server that goes on listening ends the wait with TimeoutError.

    A dying process closes its connections and its listening socket one after the other, so a single
    closed connection is followed by another try.
    """
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=8) as connection:
                connection.recv(1)
        except ConnectionRefusedError:
            return
        except ConnectionResetError:
            continue


@needs_java
def test_a_closed_server_leaves_no_process_and_no_folder() -> None:
    with ZooKeeperServer() as server:
        pid = server.pid
        assert pid is not None
    assert server.pid is None
    assert not server.data.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@needs_java
def test_a_server_that_cannot_start_shows_the_end_of_its_log() -> None:
    with (
        pytest.raises(ServerDidNotStart, match=r"end of its log:\n(.|\n)*Invalid config"),
        ZooKeeperServer(config={"tickTime": "soon"}),
    ):
        pass


@pytest.mark.usefixtures("bare_machine")
def test_without_zookeeper_the_error_lists_every_way_to_get_one() -> None:
    with pytest.raises(NoZooKeeper) as caught, provided_zookeeper():
        pass
    assert str(caught.value) == NO_ZOOKEEPER
    for way in ("libzookeeper-java", "ZOOKEEPER_HOME", "ZKPLAN_TEST_HOSTS", "Docker"):
        assert way in NO_ZOOKEEPER


@needs_java
def test_a_zookeeper_home_without_a_release_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZOOKEEPER_HOME", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="has no lib/zookeeper"):
        find_zookeeper()


@pytest.mark.usefixtures("bare_machine")
@pytest.mark.parametrize(("ci", "outcome"), [(None, "1 skipped"), ("true", "1 error")])
def test_a_missing_zookeeper_skips_locally_and_fails_in_ci(
    ci: str | None, outcome: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if ci:
        monkeypatch.setenv("CI", ci)
    assert outcome in pytest_of_a_user("def test_it(zookeeper_hosts):\n    pass\n", tmp_path)


@pytest.mark.usefixtures("bare_machine")
def test_the_first_test_of_a_user_gets_a_worker(tmp_path: Path) -> None:
    assert "2 passed" in pytest_of_a_user(USES_THE_CLIENT, tmp_path)


def pytest_of_a_user(source: str, folder: Path) -> str:
    """What pytest says of that module in a project that has nothing of ours but the plugin."""
    (folder / "test_user.py").write_text(source)
    command = ("-m", "pytest", "-p", "zkplan.testing.plugin", str(folder))
    return run_python(*command, env={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}).stdout
