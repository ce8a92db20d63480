"""The servers and fixtures of zkplan.testing do what tests rely on."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError
from kazoo.retry import KazooRetry

from zkplan.testing.java import find_zookeeper
from zkplan.testing.provide import NO_ZOOKEEPER, NoZooKeeper, provided_zookeeper
from zkplan.testing.server_process import ServerProcess
from zkplan.testing.servers import ServerDidNotStart, ZooKeeperEnsemble, ZooKeeperServer
from zkplan.testing.znodes import remove_tree

from .support import wait_until

needs_java = pytest.mark.skipif(find_zookeeper() is None, reason="starts a server with Java")

STARTS_A_SERVER_AND_WAITS = """
import sys
from zkplan.testing.servers import ZooKeeperServer
with ZooKeeperServer() as server:
    print(server.port, server.data, flush=True)
    sys.stdin.read()
"""

HOLDS_AN_EPHEMERAL_NODE = """
import sys, time
from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError
client = KazooClient(hosts=sys.argv[1], timeout=1.0)
client.start(timeout=30)
while True:  # On a busy machine its session may expire though nobody paused it.
    try:
        client.retry(client.create, "/mark", ephemeral=True)
    except NodeExistsError:
        time.sleep(0.05)
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


@contextmanager
def connected(hosts: str) -> Iterator[KazooClient]:
    client = KazooClient(hosts=hosts)
    client.start(timeout=30)
    try:
        yield client
    finally:
        client.stop()
        client.close()


@contextmanager
def script(source: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A Python process that lives as long as the block, or until its input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", source, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_started_server_answers_a_client(zookeeper_hosts: str, zkplan_root: str) -> None:
    with connected(zookeeper_hosts) as client:
        client.create(zkplan_root, b"value")
        assert client.get(zkplan_root)[0] == b"value"


def test_the_root_of_a_test_names_it_and_is_not_created(
    zookeeper_hosts: str, zkplan_root: str
) -> None:
    assert zkplan_root.startswith("/t-test_the_root_of_a_test_names_it_and_is_not_created-")
    with connected(zookeeper_hosts) as client:
        assert client.exists(zkplan_root) is None


def test_a_removed_tree_is_gone_and_its_neighbour_stays(
    zookeeper_hosts: str, zkplan_root: str
) -> None:
    with connected(zookeeper_hosts) as client:
        paths = [f"{zkplan_root}/tree/{a}/{b}" for a in range(30) for b in range(30)]
        for a in range(30):
            client.ensure_path(f"{zkplan_root}/tree/{a}")
        for answer in [client.create_async(path) for path in paths]:
            answer.get(timeout=30)
        client.create(f"{zkplan_root}/neighbour")

        remove_tree(client, f"{zkplan_root}/tree")
        remove_tree(client, f"{zkplan_root}/tree")

        assert client.get_children(zkplan_root) == ["neighbour"]


def test_data_survive_a_kill_and_a_restart_on_the_same_port(
    zookeeper_server: ServerProcess,
) -> None:
    hosts = zookeeper_server.hosts
    with connected(hosts) as client:
        client.create("/kept", b"value")

        zookeeper_server.kill()
        assert not zookeeper_server.is_running()
        zookeeper_server.start()

        assert zookeeper_server.hosts == hosts
        assert client.retry(client.get, "/kept")[0] == b"value"


def test_a_session_of_one_second_expires_when_its_process_is_paused(
    zookeeper_server: ServerProcess,
) -> None:
    with (
        connected(zookeeper_server.hosts) as observer,
        script(HOLDS_AN_EPHEMERAL_NODE, zookeeper_server.hosts) as holder,
    ):
        wait_until(lambda: observer.exists("/mark"), "it is created")

        holder.send_signal(signal.SIGSTOP)

        wait_until(lambda: observer.exists("/mark") is None, "it is gone", 10)


def test_a_paused_server_is_silent_and_serves_again_when_resumed(
    zookeeper_server: ServerProcess,
) -> None:
    zookeeper_server.pause()
    assert zookeeper_server.is_running()
    assert zookeeper_server.mode is None

    zookeeper_server.resume()
    zookeeper_server.wait_serving()
    # A server that serves may well take longer for one more answer than its mode is waited for.
    wait_until(lambda: zookeeper_server.mode == "standalone", "it tells its mode")


def test_a_paused_server_can_be_stopped(zookeeper_server: ServerProcess) -> None:
    zookeeper_server.pause()
    zookeeper_server.stop()
    assert not zookeeper_server.is_running()


@needs_java
def test_a_server_dies_with_the_process_that_started_it() -> None:
    with script(STARTS_A_SERVER_AND_WAITS) as starter:
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


def test_the_ensemble_survives_the_kill_of_its_leader(
    zookeeper_ensemble: ZooKeeperEnsemble,
) -> None:
    with connected(zookeeper_ensemble.hosts) as client:
        client.create("/before", b"value")
        killed = zookeeper_ensemble.leader()

        killed.kill()

        retry = KazooRetry(max_tries=200, delay=0.1, backoff=1, max_delay=0.2, deadline=45)
        try:
            retry(client.create, "/after")
        except NodeExistsError:
            pass  # An earlier try was applied and its answer lost.
        assert retry(client.get, "/before")[0] == b"value"
        assert zookeeper_ensemble.leader() is not killed

        killed.start()
        wait_until(lambda: killed.mode == "follower", "it follows")
        client.delete("/before")
        retry(client.delete, "/after")


@pytest.fixture
def bare_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment without Java, Docker or given hosts."""
    for name in ("ZKPLAN_TEST_HOSTS", "ZOOKEEPER_HOME", "JAVA_HOME", "CI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")


@pytest.mark.usefixtures("bare_machine")
def test_a_machine_without_zookeeper_is_told_every_way_to_get_one() -> None:
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
def test_the_first_test_of_a_user_has_a_worker(tmp_path: Path) -> None:
    assert "2 passed" in pytest_of_a_user(USES_THE_CLIENT, tmp_path)


def pytest_of_a_user(source: str, folder: Path) -> str:
    """What pytest says of that module in a project that has nothing of ours but the plugin."""
    (folder / "test_user.py").write_text(source)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "zkplan.testing.plugin", str(folder)],
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return run.stdout
