"""Who connects again does not wait a whole session for a server that says nothing."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import zkplan

from .proxy import Proxy
from .support import WAIT_S

SESSION_S = 90.0
assert WAIT_S < SESSION_S / 2  # kazoo divides by the number of hosts


def port_of(hosts: str) -> int:
    return int(hosts.partition("/")[0].rpartition(":")[2])


def test_a_handshake_without_an_answer_is_made_anew(zookeeper_hosts: str, zkplan_root: str) -> None:
    """As a ZooKeeper that has just started leaves some without one."""
    with (
        Proxy(port_of(zookeeper_hosts), lambda n: None) as proxy,
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


def test_a_machine_that_answers_nothing_is_left_for_another(
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
