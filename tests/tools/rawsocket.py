"""A blocking socket for ZooKeeper's frames, bytes with their size in front: each as it came."""

from __future__ import annotations

import socket
import struct


class Closed(ConnectionError):
    """The server has closed the connection."""


class Silent(ConnectionError):
    """The server sent nothing where it owed something, or does not read."""


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


class FramedSocket:
    """One TCP connection on which nothing was sent yet; `answer_s` is how long it waits for all."""

    def __init__(
        self, address: tuple[str, int], answer_s: float, receive_buffer: int | None = None
    ) -> None:
        self.socket = socket.socket()
        if receive_buffer is not None:
            # Before it connects: the window is agreed upon then.
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(answer_s)
        try:
            self.socket.connect(address)
        except OSError:
            self.socket.close()
            raise
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = bytearray()

    def send_frames(self, *bodies: bytes) -> None:
        """Send frames in one go. Raises Closed, Silent."""
        self.send_bytes(b"".join(map(framed, bodies)))

    def send_bytes(self, data: bytes) -> None:
        """Send bytes that may be no frame at all. Raises Closed, Silent."""
        try:
            self.socket.sendall(data)
        except TimeoutError as error:
            raise Silent("the server does not read") from error
        except OSError as error:
            raise Closed(str(error)) from error

    def frame(self) -> bytes:
        """The body of the next frame. Raises Closed, Silent."""
        self._await(4)
        (size,) = struct.unpack_from(">i", self.buffer)
        assert size >= 0, f"the server sent {size} as the size of a frame"
        self._await(4 + size)
        body = bytes(self.buffer[4 : 4 + size])
        del self.buffer[: 4 + size]
        return body

    def _await(self, count: int) -> None:
        # What has come stays, its size too, where the rest is late: who asks again gets all of it.
        while len(self.buffer) < count:
            try:
                data = self.socket.recv(1 << 20)
            except TimeoutError as error:
                raise Silent(f"nothing for {self.socket.gettimeout()} s") from error
            except OSError as error:
                raise Closed(str(error)) from error
            if not data:
                raise Closed("end of stream")
            self.buffer += data

    def close(self) -> None:
        """Close the socket, whatever is under way; a session lives on."""
        self.socket.close()
