"""The thread of kazoo reads and writes whole messages, and reports a failure as kazoo does."""

from __future__ import annotations

import socket
import struct
import threading
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionDropped

from zkplan.transport.kazoo_client import make_client


@pytest.fixture
def ends() -> Iterator[tuple[Any, socket.socket]]:
    """The connection of a client, and the other end of its socket."""
    client: KazooClient = make_client("127.0.0.1:1", 10.0, {})
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    client._connection._socket = ours
    with ours, theirs:
        yield client._connection, theirs


def test_an_answer_that_arrives_in_pieces_is_read_whole(ends: tuple[Any, socket.socket]) -> None:
    connection, theirs = ends
    pieces = [bytes([number]) * 1000 for number in range(50)]
    asked = threading.Semaphore(0)
    select = connection.handler.select

    def told(*given: Any) -> Any:
        asked.release()  # all that was there has been read: here comes the next piece
        return select(*given)

    connection.handler.select = told

    def send() -> None:
        for piece in pieces:
            asked.acquire()
            theirs.sendall(piece)

    sender = threading.Thread(target=send)
    sender.start()
    assert connection._read(50_000, 30) == b"".join(pieces)
    sender.join()


def test_a_large_answer_is_held_in_memory_once(ends: tuple[Any, socket.socket]) -> None:
    connection, theirs = ends
    answer = bytes(range(256)) * 32_768  # 8 MiB
    sender = threading.Thread(target=theirs.sendall, args=(answer,))
    tracemalloc.start()
    try:
        sender.start()
        assert connection._read(len(answer), 30) == answer
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        sender.join()
    assert peak < 1.4 * len(answer)


def test_a_request_that_finds_no_room_is_written_whole(ends: tuple[Any, socket.socket]) -> None:
    connection, theirs = ends
    message = bytes(range(256)) * 20_000
    got = bytearray()

    def read() -> None:
        while len(got) < len(message):
            got.extend(theirs.recv(65_536))

    reader = threading.Thread(target=read)
    reader.start()
    connection._write(message, 30)
    reader.join()
    assert got == message


def test_a_silent_server_and_a_server_that_reads_nothing_time_out(
    ends: tuple[Any, socket.socket],
) -> None:
    connection, _ = ends
    too_late = connection.handler.timeout_exception
    with pytest.raises(too_late, match="read"):
        connection._read(4, 0.01)
    with pytest.raises(too_late, match="write"):
        connection._write(bytes(10_000_000), 0.01)


def test_an_eof_and_a_reset_are_a_lost_connection(ends: tuple[Any, socket.socket]) -> None:
    connection, theirs = ends
    theirs.sendall(b"abc")
    theirs.shutdown(socket.SHUT_WR)
    with pytest.raises(ConnectionDropped, match="broken"):
        connection._read(4, 30)
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    theirs.close()
    with pytest.raises(ConnectionDropped, match="socket connection error"):
        connection._write(b"abc", 30)
