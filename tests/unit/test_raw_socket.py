"""The tests' own socket: a frame that is late comes whole to who asks again."""

from __future__ import annotations

import contextlib
import socket

import pytest

from tests.rawsocket import FramedSocket, Silent, framed


@pytest.mark.parametrize("first", [2, 4, 6])
def test_a_frame_in_two_pieces_is_not_torn(first: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = FramedSocket(listener.getsockname(), 0.05)
        server, _ = listener.accept()
        with server, contextlib.closing(client):
            data = framed(b"whole")
            server.sendall(data[:first])
            with pytest.raises(Silent):
                client.frame()
            server.sendall(data[first:] + framed(b"next"))
            assert [client.frame(), client.frame()] == [b"whole", b"next"]
