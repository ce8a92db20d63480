"""The listening socket, and each TCP connection: bytes to frames and back.

A connection passes on requests only while there is room for their answers. Other requests of the
client wait in the socket, and take no memory here. Events and one large answer may exceed that
room: they wait here, and count for all connections together.
"""

from __future__ import annotations

import asyncio
import errno
import resource
import socket
import struct
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

from . import wire
from .jute import WireError
from .limits import MAX_FRAME_BYTES, Limits
from .service import Service
from .sessions import Peer

_LENGTH = struct.Struct(">i")
_WORD_BYTES = 4
# The maximum to give the transport at once: it copies the bytes that it cannot send.
_CHUNK_BYTES = 4 << 20


class Host(Protocol):
    """The parts of a server that a connection uses."""

    service: Service
    limits: Limits
    received_bytes: int
    unread_bytes: int
    slow: dict[Connection, None]

    def opened(self, connection: Connection) -> bool: ...
    def closed(self, connection: Connection) -> None: ...
    def before_requests(self) -> None: ...
    def after_requests(self) -> None: ...
    def word(self, word: bytes) -> bytes | None: ...


class Connection(asyncio.Protocol):
    """The server's end of one connection."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.transport: asyncio.Transport = None  # type: ignore[assignment]  # set when made
        self.peer: Peer = None  # type: ignore[assignment]  # set when made
        self._inbox = bytearray()
        self._take: Callable[[bytes], None] = self._take_handshake
        # While the transport still has bytes to send, further bytes gather in the outbox.
        self._is_blocked = False
        self._outbox = bytearray()
        #: Bytes for the client that it has not read. They count in the host's `unread_bytes`.
        self.unread_bytes = 0
        self._given_bytes = 0  # to the transport, in all
        self._taken_bytes = 0  # of those, the bytes that the client had read at the last look
        self._waits_for_turn = False
        # Aborts the connection if the handshake, the login or the close takes too long.
        self._timer: asyncio.TimerHandle = None  # type: ignore[assignment]  # set when made

    # Called by asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        address = transport.get_extra_info("peername")
        self.peer = Peer(address[0], address[1]) if address else Peer("unknown", 0)
        self._start_timer()
        if not self.host.opened(self):
            transport.abort()
            return
        # With a low limit, asyncio reports at once that the client does not read. Over TLS a limit
        # of 0 would make asyncio pause with an empty buffer, and resume in the middle of a write.
        transport.set_write_buffer_limits(high=1 if transport.get_extra_info("sslcontext") else 0)

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        self._drop_inbox()
        self._drop_outbox()
        self.host.slow.pop(self, None)
        self.host.closed(self)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._inbox += data
        self.host.received_bytes += len(data)
        if self.host.received_bytes > self.host.limits.received_bytes:
            # Drop the bytes now: until `connection_lost` comes, others would be cut off, too.
            self._drop_inbox()
            self.abort()
            return
        self._handle_frames()

    def eof_received(self) -> bool:
        # The client sends nothing more. asyncio would wait without limit for it to read the rest.
        self.close()
        return False

    def pause_writing(self) -> None:
        self._is_blocked = True
        self._taken_bytes = self._count_taken()
        self.host.slow[self] = None

    def resume_writing(self) -> None:
        self._is_blocked = False
        self._pump()
        if self._has_room():
            self.go_on()

    # Called by the server.

    def send(self, data: bytes) -> None:
        """Send bytes to the client. Aborts the connection of a client that reads too little."""
        if self.transport.is_closing():
            return
        if self._is_blocked:
            self._outbox += data
        else:
            self._give(data)
        self.peer.unsent_bytes = 0
        if not self.transport.is_reading():
            self._wait_for_turn()
        if self._is_blocked:
            self.count_unread()
            if self.unread_bytes > self.host.limits.unread_bytes:
                self.abort()

    def close(self) -> None:
        """Close after everything sent so far has left, but within a bounded time."""
        if not self.transport.is_closing():
            if self._outbox:
                self._give(self._outbox)
                self._outbox = bytearray()
                self.count_unread()
            self.transport.close()
            # Otherwise a client that never reads would keep its place and its memory for ever.
            self._timer.cancel()
            self._start_timer()

    def abort(self) -> None:
        """Close at once, and drop the bytes that have not left."""
        self._drop_outbox()
        self.transport.abort()

    def go_on(self) -> None:
        """Handle waiting requests, as there may now be room for their answers."""
        self._waits_for_turn = False
        if not self.transport.is_closing():
            self._handle_frames()

    def has_taken_more(self) -> bool:
        """Whether the client has read some of its unread bytes since the last call.

        The host calls this for each connection in `slow`. One that has caught up leaves `slow`.
        """
        taken = self._count_taken()
        has_more = taken > self._taken_bytes
        self._taken_bytes = taken
        if not self._is_blocked:
            self.host.slow.pop(self, None)
        return has_more

    def count_unread(self) -> None:
        """Update `unread_bytes` and the host's sum. Transports do not report how much they send."""
        now = len(self._outbox) + self.transport.get_write_buffer_size()
        self.host.unread_bytes += now - self.unread_bytes
        self.unread_bytes = now

    # Bytes that the client does not read yet.

    def _give(self, data: bytes | bytearray) -> None:
        self._given_bytes += len(data)
        self.transport.write(data)

    def _pump(self) -> None:
        """Give the transport as much of the outbox as it accepts."""
        while self._outbox and not self._is_blocked and not self.transport.is_closing():
            chunk = self._outbox[:_CHUNK_BYTES]
            del self._outbox[:_CHUNK_BYTES]
            self._give(chunk)
        self.count_unread()

    def _count_taken(self) -> int:
        return self._given_bytes - self.transport.get_write_buffer_size()

    def _drop_inbox(self) -> None:
        self.host.received_bytes -= len(self._inbox)
        self._inbox = bytearray()

    def _drop_outbox(self) -> None:
        self._outbox = bytearray()
        self.host.unread_bytes -= self.unread_bytes
        self.unread_bytes = 0

    # Frames.

    def _handle_frames(self) -> None:
        host, service, inbox = self.host, self.host.service, self._inbox
        turn, turn_ends_s = host.limits.turn_requests, time.monotonic() + host.limits.turn_s
        start, end = 0, len(inbox)
        host.before_requests()
        while end - start >= _WORD_BYTES and self._has_room():
            # Each connection has a limit of its own, but a thousand together would hold too much.
            is_full = service.held_bytes > host.limits.held_bytes
            if turn == 0 or is_full or time.monotonic() > turn_ends_s:
                self._wait_for_turn()
                break
            (length,) = _LENGTH.unpack_from(inbox, start)
            if not 0 <= length <= MAX_FRAME_BYTES:
                self._take_impossible_length(bytes(inbox[start : start + _WORD_BYTES]))
                break
            if end - start - _WORD_BYTES < length:
                break
            start += _WORD_BYTES
            self._take(bytes(memoryview(inbox)[start : start + length]))
            start += length
            turn -= 1
        if start:
            del inbox[:start]
            host.received_bytes -= start
        if self._has_room() and not self._waits_for_turn:
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()
        host.after_requests()

    def _has_room(self) -> bool:
        unsent = self.peer.unsent_bytes + self.unread_bytes
        return (
            unsent < self.host.limits.unsent_bytes
            and not self.peer.leaving
            and not self.transport.is_closing()
        )

    def _wait_for_turn(self) -> None:
        if not self._waits_for_turn:
            self._waits_for_turn = True
            asyncio.get_running_loop().call_soon(self.go_on)

    def _take_handshake(self, frame: bytes) -> None:
        try:
            request = wire.parse_connect(frame)
        except WireError:
            self.abort()
            return
        self._timer.cancel()
        self._take = partial(self.host.service.handle, self.peer)
        self.host.service.connect(self.peer, request)
        if not self.peer.is_let_in:
            # A client that never logs in must not keep its place for ever.
            self._timer = asyncio.get_running_loop().call_later(
                self.host.limits.handshake_s, self._abort_stranger
            )

    def _abort_stranger(self) -> None:
        if not self.peer.is_let_in:
            self.abort()

    def _take_impossible_length(self, word: bytes) -> None:
        # In place of the length of the first frame, an administrator may send a four-letter word.
        is_first = self._take == self._take_handshake
        answer = self.host.word(word) if is_first else None
        if answer is None:
            self.abort()
        else:
            # Send it after the commit, as any answer: it may show changes that are not stored yet.
            self.host.service.send_last(self.peer, answer)

    def _start_timer(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(
            self.host.limits.handshake_s, self.abort
        )


# ---- The listening socket: one address, and enough descriptors for its connections.


# Descriptors besides connections: the database, its log, the loop, files of the program itself.
_OTHER_DESCRIPTORS = 64
# Errors if this machine lacks the address: `localhost` may name ::1 first, even without IPv6.
_NO_SUCH_ADDRESS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


async def listening_socket(host: str, port: int, backlog: int) -> socket.socket:
    """Return a socket that listens on the first address of `host` that this machine has.

    There is only one socket, because port 0 would be a different port on each address. Raises
    OSError, for example if the address is in use.
    """
    found = await asyncio.get_running_loop().getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    refusal: OSError | None = None
    for family, kind, protocol, _, address in found:
        try:
            # Pass the protocol: asyncio sends without delay only if the socket's protocol is TCP.
            endpoint = socket.socket(family, kind, protocol or socket.IPPROTO_TCP)
            _listen(endpoint, address, backlog)
        except OSError as error:
            refusal = OSError(
                error.errno, f"cannot listen on {address[0]} port {port}: {error.strerror}"
            )
            if error.errno not in _NO_SUCH_ADDRESS:
                raise refusal from error
        else:
            return endpoint
    raise refusal or OSError(f"{host!r} has no address to listen on")


def _listen(endpoint: socket.socket, address: tuple[object, ...], backlog: int) -> None:
    try:
        endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if endpoint.family == socket.AF_INET6:
            endpoint.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        endpoint.bind(address)
        endpoint.listen(backlog)
    except BaseException:
        endpoint.close()
        raise


def allow_descriptors(connections: int) -> None:
    """Let this process open `connections`, or as many as its limit (ulimit -Hn) allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _OTHER_DESCRIPTORS
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
