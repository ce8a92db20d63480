"""Connecting: what is wrong with the call is said at once, and a program's stderr stays its own."""

from __future__ import annotations

import random
import subprocess
import sys
from typing import Any, cast

import pytest
from kazoo.client import KazooClient

import zkplan
from zkplan import ZkplanError, ZooKeeperUnavailable
from zkplan.testing.loopback import free_port
from zkplan.testing.server_process import ServerProcess

from .support import TOP, working


def test_an_unknown_option_is_named() -> None:
    with pytest.raises(TypeError, match="sesion_timeout"):
        zkplan.connect(f"127.0.0.1:{free_port()}", connect_timeout=0.1, sesion_timeout=5)


def test_options_beside_a_given_client_are_refused(znodes: KazooClient) -> None:
    with pytest.raises(TypeError, match="use_ssl"):
        zkplan.connect(znodes, use_ssl=True)


def test_an_option_of_kazoo_is_passed_on(zookeeper_hosts: str, zkplan_root: str) -> None:
    with zkplan.connect(zookeeper_hosts, zkplan_root, randomize_hosts=False) as client:
        assert client.transport.client.randomize_hosts is False


def test_a_connection_that_is_lost_at_once_is_made_again(
    zookeeper_hosts: str, zkplan_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = KazooClient.start
    lost: list[KazooClient] = []

    def lose_the_first(client: KazooClient, timeout: float) -> Any:
        if lost:
            return start(client, timeout)
        # As kazoo does where the connection came and went before it looked.
        start(client, timeout)
        client.stop()
        client.close()
        lost.append(client)
        raise client.handler.timeout_exception("Connection time-out")

    monkeypatch.setattr(KazooClient, "start", lose_the_first)
    with zkplan.connect(zookeeper_hosts, zkplan_root) as client:
        assert client.plans() == []
        assert client.transport.client is lost[0]


@pytest.mark.parametrize("hosts", [None, 2181, ["127.0.0.1:2181"]])
def test_hosts_of_another_kind_are_refused(hosts: Any) -> None:
    with pytest.raises(TypeError, match="KazooClient"):
        zkplan.connect(cast("str", hosts))


@pytest.mark.parametrize("hosts", ["", "zk1:port", "zk1:2181,", "zk1:99999", "zk1:2181//team"])
def test_malformed_hosts_are_not_an_unreachable_server(hosts: str) -> None:
    with pytest.raises(
        ZkplanError, match=r"is not a list of ZooKeeper hosts.*write host:port"
    ) as caught:
        zkplan.connect(hosts, connect_timeout=0.1)
    assert not isinstance(caught.value, ZooKeeperUnavailable)


PROGRAM = """
import sys, zkplan
client = zkplan.connect(sys.argv[1], patience=60)
client.prepare()
print("connected", flush=True)
sys.stdin.readline()
client.plans()
print("connected again", flush=True)
sys.stdin.readline()
"""


def test_a_seeded_program_draws_the_same_numbers_beside_a_client_and_a_worker(
    zookeeper_hosts: str, zkplan_root: str
) -> None:
    """kazoo's threads would draw from it too, with every answer."""
    random.seed(7)
    seeded = random.getstate()
    with (
        zkplan.connect(zookeeper_hosts, zkplan_root) as client,
        working(zookeeper_hosts, zkplan_root),
    ):
        with client.create_plan(attempts=2) as plan:
            plan.add_task(fails_once, retry_delay=0.05)
        plan.wait(timeout=30)
        assert random.getstate() == seeded


def fails_once() -> None:
    """What a worker adds by chance to the delay of the next attempt is drawn too."""
    if zkplan.current().attempt == 0:
        raise ValueError("the first attempt")


def test_a_program_without_logging_sees_nothing_of_a_reconnect(
    zookeeper_server: ServerProcess,
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, zookeeper_server.hosts],
        cwd=TOP,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "connected\n"
        zookeeper_server.restart()
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "connected again\n"
        _, errors = process.communicate("\n", timeout=30)
    finally:
        process.kill()
        process.wait()
    assert errors == ""
