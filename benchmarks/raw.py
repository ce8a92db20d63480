"""A ZooKeeper client of a few lines over a bare socket, which costs next to nothing."""

from __future__ import annotations

import queue
import socket
import struct
import threading
from collections.abc import Iterable, Sequence
from types import TracebackType

from kazoo.security import OPEN_ACL_UNSAFE

from zkplan.protocol.requests import Op
from zkplan.transport import packets as wire

#: The kind and the packed body of a request. It gets its xid when it is sent.
Packet = tuple[int, bytes]

_CREATE, _GET_DATA, _CLOSE = 1, 4, -11
_INT = struct.Struct("!i")
_HEADER = struct.Struct("!iii")  # length of what follows, xid, kind
_ANSWER = struct.Struct("!iqi")  # xid, zxid, error
_ACL = wire.pack_acl(OPEN_ACL_UNSAFE)
_PERSISTENT = _ACL + _INT.pack(0)


def create(path: str, data: bytes) -> Packet:
    """One create of a persistent znode."""
    raw = path.encode()
    return _CREATE, b"".join((_INT.pack(len(raw)), raw, _INT.pack(len(data)), data, _PERSISTENT))


def get(path: str) -> Packet:
    """One read of the data and Stat of a znode, without a watch."""
    raw = path.encode()
    return _GET_DATA, b"".join((_INT.pack(len(raw)), raw, b"\0"))


def multi(ops: Sequence[Op]) -> Packet:
    """One transaction."""
    packet = wire.MultiPacket(ops, "", _ACL)
    return packet.type, packet.serialize()


class Refused(RuntimeError):
    """A measured request got an error, or the answer to another request."""


class RawClient:
    """One session on one connection, for one thread. Without pings, it ends in a pause of 20 s."""

    def __init__(self, hosts: str, timeout_s: float = 60.0) -> None:
        """Connect to the first of `hosts`. Raises OSError, also if the handshake is cut off."""
        host, _, port = hosts.partition(",")[0].rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout_s)
        self._answers = self._socket.makefile("rb", buffering=1 << 16)
        self._xid = 0
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            hello = struct.pack("!iqiqi16s?", 0, 0, 20_000, 0, 16, bytes(16), False)
            self._socket.sendall(_INT.pack(len(hello)) + hello)
            self._read_frame()
        except BaseException:
            self._cut()
            raise

    def ask(self, packet: Packet) -> None:
        """Send one request and wait for its answer; raises Refused and OSError."""
        self._socket.sendall(self._framed(packet))
        self._read_answer(self._xid)

    def send_all(self, packets: Iterable[Packet], window: int) -> None:
        """Send all packets, with at most `window` unanswered at a time, and wait for all answers.

        Raises Refused or OSError for the first failure, after which the connection is unusable.
        """
        free = threading.Semaphore(window)
        sent: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        failures: list[Exception] = []

        def read() -> None:
            for xid in iter(sent.get, None):
                try:
                    if not failures:
                        self._read_answer(xid)
                except (Refused, OSError) as error:
                    failures.append(error)
                free.release()

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        for packet in packets:
            free.acquire()
            if failures:
                break
            frame = self._framed(packet)
            sent.put(self._xid)
            self._socket.sendall(frame)
        sent.put(None)
        reader.join()
        if failures:
            raise failures[0]

    def close(self) -> None:
        """End the session, so that the server does not hold it until it expires."""
        try:
            self.ask((_CLOSE, b""))
        finally:
            self._cut()

    def __enter__(self) -> RawClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            self._cut()

    def _cut(self) -> None:
        self._answers.close()
        self._socket.close()

    def _framed(self, packet: Packet) -> bytes:
        self._xid += 1
        kind, body = packet
        return _HEADER.pack(len(body) + 8, self._xid, kind) + body

    def _read_answer(self, expected: int) -> None:
        # The answer to a refused transaction begins with an entry of kind -1, and has no error in
        # its header. In other answers these bytes would be a null string or null data, which no
        # measured znode has.
        frame = self._read_frame()
        xid, _zxid, error = _ANSWER.unpack_from(frame)
        refused = frame[_ANSWER.size : _ANSWER.size + 4] == b"\xff\xff\xff\xff"
        if xid != expected or error or refused:
            raise Refused(f"request {expected}: answer to {xid}, error {error}")

    def _read_frame(self) -> bytes:
        size = self._answers.read(4)
        if len(size) < 4:
            raise ConnectionResetError("the server closed the connection")
        (length,) = _INT.unpack(size)
        frame: bytes = self._answers.read(length)
        return frame
