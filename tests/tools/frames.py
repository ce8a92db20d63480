"""What a proxy reads on the wire: frames, the handshake, the step that a multi belongs to."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

MULTI = 14
EVENT_XID = -1
_FRAME_MAX = 64 * 1024 * 1024
_CREATE, _DELETE, _SET, _CHECK = 1, 2, 5, 13
#: Where the first operation of a multi begins, in a frame with its length: after length, xid,
#: opcode; then its type, a flag, an error, and the length of its path.
_FIRST = struct.Struct("!ibii")
_FIRST_AT = 12
_PASSWORD = 16


class Session(NamedTuple):
    """ID and password: what a second client needs to use a session."""

    id: int
    password: bytes


def session_of(frame: bytes) -> Session | None:
    """The session in a server's answer to a handshake; None where the server refused."""
    try:
        _, timeout, session, size = struct.unpack_from("!iiqi", frame, 4)
    except struct.error:
        return None
    return Session(session, frame[24 : 24 + size]) if timeout > 0 and session else None


def without_session(handshake: bytes) -> bytes:
    """The handshake with a request for a new session instead of its own."""
    start = 4 + struct.calcsize("!iqi")  # after length, version, last transaction, time-out
    new = struct.pack("!qi", 0, _PASSWORD) + bytes(_PASSWORD)
    return handshake[:start] + new + handshake[start + len(new) :]


def step_of(frame: bytes) -> str:
    """The step of zkplan's protocol that a multi belongs to; empty for any other request."""
    if len(frame) < _FIRST_AT + _FIRST.size or struct.unpack_from("!i", frame, 8)[0] != MULTI:
        return ""
    kind, _, _, size = _FIRST.unpack_from(frame, _FIRST_AT)
    start = _FIRST_AT + _FIRST.size
    path = frame[start : start + max(0, size)]
    if b"/add-ids/" in path:
        return "add"
    if b"/workers/" in path:
        if kind == _CREATE:
            return "clear" if b"/runnable/" in frame or frame.count(path) > 1 else "register"
        if kind == _DELETE:
            return "leave"
        # A commit that also claims the next task starts with the checks of a claim.
        if b"/arg-" in frame:
            return "commit"
        return "publish" if b"/pending-" in frame else "claim"
    if b"/claims/" in path:
        return "commit" if kind == _DELETE else "log"
    if kind == _SET and path.endswith(b"/ready"):
        return "publish"
    return "other"


def read_frame(stream: BinaryIO) -> bytes:
    """One frame with its length prefix; empty at the end of the connection."""
    try:
        head = stream.read(4)
        size = struct.unpack("!i", head)[0] if len(head) == 4 else -1
        body = stream.read(size) if 0 <= size < _FRAME_MAX else b""
    except OSError:
        return b""
    return head + body if len(body) == size else b""


def frames(end: socket.socket) -> Iterator[bytes]:
    """The frames that come over a connection, until it ends."""
    with end.makefile("rb") as stream:
        while frame := read_frame(stream):
            yield frame


def send(end: socket.socket, data: bytes) -> bool:
    try:
        end.sendall(data)
    except OSError:
        return False
    return True


def hang_up(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
