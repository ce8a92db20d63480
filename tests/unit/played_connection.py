"""A transport on a KazooClient whose connection the test plays; nothing is ever sent."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.protocol.states import KeeperState

from zkplan.protocol.requests import Multi, ReadMany, Request
from zkplan.transport import Transport

WAIT_S = 10.0
CLAIM, READ = Multi([]), ReadMany([])


class Line:
    """kazoo's client, with its connection played by the test: nothing reads its queue."""

    def __init__(self) -> None:
        self.client = KazooClient("127.0.0.1:1")
        connection = self.client._connection
        connection._read_sock, connection._write_sock = self.client.handler.create_socket_pair()
        self.transport = Transport(self.client, owns=False)
        self.answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.up()

    def up(self) -> None:
        self.client._session_callback(KeeperState.CONNECTING)
        self.client._session_callback(KeeperState.CONNECTED)

    def down(self) -> None:
        self.client._session_callback(KeeperState.CONNECTING)

    def submit(self, request: Request) -> None:
        self.transport.submit(request, lambda answer, error: self.answers.put((answer, error)))

    @property
    def waiting(self) -> list[str]:
        """What kazoo would send next, in this order."""
        return [type(packet).__name__ for packet, _ in self.client._queue]

    def next_call(self) -> Any:
        """What is told of the next answer; kazoo has sent the request."""
        return self.client._queue.popleft()[1]

    def wake_ups(self) -> int:
        """How many are in the socket pair; they are taken."""
        reader = self.client._connection._read_sock
        return len(reader.recv(10_000))

    def close(self) -> None:
        # First the end that is read: it ends whoever waits for room.
        connection = self.client._connection
        for end in (connection._read_sock, connection._write_sock):
            if end is not None:  # not stopped
                end.close()


def returns(act: Callable[[], object]) -> bool:
    """Whether `act` comes to its end on a thread of its own, such as kazoo's."""
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    thread.join(WAIT_S)
    return not thread.is_alive()


@pytest.fixture
def line() -> Iterator[Line]:
    line = Line()
    yield line
    line.close()
