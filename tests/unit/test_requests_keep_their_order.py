"""What was submitted first is sent first, whatever the connection does meanwhile.

A worker reads its new tasks right behind the transaction that claims them. A read that overtook it
found no claims: the worker took them for lost, and nobody ran them as long as it lived.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import ConnectionLoss
from kazoo.protocol.states import KeeperState

from zkplan.keeper.core import IN_FLIGHT_MAX, Keeper
from zkplan.requests import Multi, ReadMany

WAIT_S = 10.0
CONNECTIONS_LOST = 20


class Line:
    """kazoo's client, with its connection played by the test: nothing reads its queue."""

    def __init__(self) -> None:
        self.client = KazooClient("127.0.0.1:1")
        connection = self.client._connection
        connection._read_sock, connection._write_sock = self.client.handler.create_socket_pair()
        self.keeper = Keeper(self.client, owns=False)
        self.answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.up()

    def up(self) -> None:
        self.client._session_callback(KeeperState.CONNECTING)
        self.client._session_callback(KeeperState.CONNECTED)

    def down(self) -> None:
        self.client._session_callback(KeeperState.CONNECTING)

    def submit(self, request: Multi | ReadMany) -> None:
        self.keeper.submit(request, lambda answer, error: self.answers.put((answer, error)))

    @property
    def waiting(self) -> list[str]:
        """What kazoo would send next, in this order."""
        return [type(packet).__name__ for packet, _ in self.client._queue]

    def close(self) -> None:
        self.client._connection.close()


@pytest.fixture
def line() -> Iterator[Line]:
    line = Line()
    yield line
    line.close()


CLAIM, READ = Multi([]), ReadMany([])
IN_ORDER = ["TransactionPacket", "ReadManyPacket"]


def test_a_read_behind_a_write_stays_behind_it(line: Line) -> None:
    line.submit(CLAIM)
    line.submit(READ)
    assert line.waiting == IN_ORDER
    line.down()
    assert line.waiting == []
    line.up()
    assert line.waiting == IN_ORDER


def test_a_read_that_comes_while_the_loss_is_being_told_stays_behind_the_write(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kazoo fails what is under way first, and says only then that the connection is lost."""
    told = line.client._make_state_change

    def read_meanwhile(state: str) -> None:
        if state == KazooState.SUSPENDED:
            line.submit(READ)
        told(state)

    monkeypatch.setattr(line.client, "_make_state_change", read_meanwhile)
    line.submit(CLAIM)
    line.down()
    line.up()
    assert line.waiting == IN_ORDER


def test_a_read_that_comes_while_the_writes_are_failed_stays_behind_them(line: Line) -> None:
    """Kazoo fails one request after the other; threads submit meanwhile."""

    class Meanwhile:
        def set_exception(self, error: BaseException) -> None:
            assert isinstance(error, ConnectionLoss)
            line.submit(READ)

    line.submit(CLAIM)
    line.client._queue.append((None, Meanwhile()))
    line.submit(CLAIM)
    line.down()
    line.up()
    assert line.waiting == ["TransactionPacket", *IN_ORDER]


def test_connections_that_are_lost_at_once_do_not_block_kazoos_thread(line: Line) -> None:
    """Each leaves the wakes of what was to be sent; the socket pair takes 278 of them."""

    def lose_many() -> None:
        for _ in range(CONNECTIONS_LOST):
            line.down()
            line.up()

    for _ in range(IN_FLIGHT_MAX):
        line.submit(READ)
    kazoos = threading.Thread(target=lose_many, daemon=True)
    kazoos.start()
    kazoos.join(WAIT_S)
    assert not kazoos.is_alive(), "it blocks in the wake of a request"
    assert len(line.waiting) == IN_FLIGHT_MAX


def test_there_is_a_wake_for_each_request_in_the_queue(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for those of others who use the same client, in the moment the wakes are taken back."""
    theirs = object()
    notify = line.client._notify_pending

    def then_theirs(state: KeeperState) -> None:
        notify(state)
        line.client._queue.append((theirs, None))
        line.client._connection._write_sock.send(b"\0")

    line.submit(READ)
    monkeypatch.setattr(line.client, "_notify_pending", then_theirs)
    line.down()
    line.up()
    assert [packet is theirs for packet, _ in line.client._queue] == [True, False]
    assert len(line.client._connection._read_sock.recv(1000)) == 2
