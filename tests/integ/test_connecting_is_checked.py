"""Connecting reports a mistake at once, and does not wait a whole session for an answer."""

from __future__ import annotations

import random
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, cast

import pytest
from kazoo.client import KazooClient

import zkplan
from tests.tools.support import WAIT_S, Here, first_line, started, working
from zkplan import ZkplanError, ZooKeeperUnavailable
from zkplan.testing.server_process import ServerProcess, free_port

from .proxy import Proxy


def test_an_unknown_option_is_named() -> None:
    with pytest.raises(TypeError, match="sesion_timeout"):
        zkplan.connect(f"127.0.0.1:{free_port()}", connect_timeout=0.1, sesion_timeout=5)


def test_connection_options_are_refused_together_with_a_kazoo_client(znodes: KazooClient) -> None:
    with pytest.raises(TypeError, match="use_ssl"):
        zkplan.connect(znodes, use_ssl=True)


def test_an_option_of_kazoo_is_passed_on(here: Here) -> None:
    with zkplan.connect(*here, randomize_hosts=False) as client:
        assert client.transport.client.randomize_hosts is False


def test_a_connection_that_is_lost_at_once_is_made_again(
    here: Here, monkeypatch: pytest.MonkeyPatch
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
    with zkplan.connect(*here) as client:
        assert client.plans() == []
        assert client.transport.client is lost[0]


@pytest.mark.parametrize("hosts", [2181, ["127.0.0.1:2181"]])
def test_hosts_of_another_kind_are_refused(hosts: Any) -> None:
    with pytest.raises(TypeError, match="KazooClient"):
        zkplan.connect(cast("str", hosts))


@pytest.mark.parametrize("hosts", ["", "zk1:port", "zk1:2181,", "zk1:99999", "zk1:2181//team"])
def test_malformed_hosts_are_not_reported_as_an_unreachable_server(hosts: str) -> None:
    with pytest.raises(
        ZkplanError, match=r"is not a list of ZooKeeper hosts.*write host:port"
    ) as caught:
        zkplan.connect(hosts, connect_timeout=0.1)
    assert not isinstance(caught.value, ZooKeeperUnavailable)


def test_an_access_list_that_the_server_rejects_is_reported(here: Here) -> None:
    with (
        zkplan.connect(*here, access="creator") as client,
        pytest.raises(zkplan.TransactionRejected, match="`creator` needs a login"),
    ):
        client.prepare()


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
    here: Here,
) -> None:
    """kazoo's threads would draw from it too, with every answer."""
    random.seed(7)
    seeded = random.getstate()
    with zkplan.connect(*here) as client, working(*here):
        with client.create_plan(attempts=2) as plan:
            plan.add_task(fails_once, retry_delay=0.05)
        plan.wait(timeout=30)
        assert random.getstate() == seeded


def fails_once() -> None:
    """What a worker adds by chance to the delay of the next attempt is drawn too."""
    if zkplan.current().attempt == 0:
        raise ValueError("the first attempt")


def test_a_reconnect_prints_nothing_in_a_program_without_logging(
    zookeeper_server: ServerProcess,
) -> None:
    command = (sys.executable, "-c", PROGRAM, zookeeper_server.hosts)
    with started(*command, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert first_line(process) == "connected"
        zookeeper_server.restart()
        process.stdin.write("\n")
        process.stdin.flush()
        assert first_line(process) == "connected again"
        _, errors = process.communicate("\n", timeout=30)
    assert errors == ""


SESSION_S = 90.0

assert WAIT_S < SESSION_S / 2  # kazoo divides by the number of hosts


def test_an_unanswered_handshake_is_repeated(zookeeper_hosts: str, zkplan_root: str) -> None:
    """As a ZooKeeper that has just started leaves some without one."""
    with (
        Proxy(zookeeper_hosts, lambda _: None) as proxy,
        zkplan.connect(
            proxy.hosts, zkplan_root, session_timeout=SESSION_S, patience=WAIT_S
        ) as client,
    ):
        session = client.transport.client.client_id
        proxy.unanswered = 2
        proxy.cut()
        assert client.plans() == []
        assert proxy.unanswered == 0
        assert client.transport.client.client_id == session


def test_a_host_that_does_not_answer_is_skipped_for_another(
    zookeeper_hosts: str, zkplan_root: str
) -> None:
    with (
        taken_by_nobody() as dead,
        zkplan.connect(
            f"{dead},{zookeeper_hosts}",
            zkplan_root,
            session_timeout=SESSION_S,
            connect_timeout=WAIT_S,
            randomize_hosts=False,
        ) as client,
    ):
        assert client.plans() == []


@contextmanager
def taken_by_nobody() -> Iterator[str]:
    """An address at which connections are not refused, and never made: its queue is full."""
    with ExitStack() as stack:
        door = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        address = door.getsockname()
        while True:
            waiting = stack.enter_context(socket.socket())
            waiting.settimeout(0.5)
            try:
                waiting.connect(address)
            except TimeoutError:
                break
        yield f"{address[0]}:{address[1]}"
