"""Reads and writes of kazoo's thread: it waits for a socket only where that is not ready.

kazoo asks the system before each read and each write whether the socket is ready, and nearly always
it is: an answer that has begun is there whole, and a request finds room. That took three of five
polls in each round trip.
"""

from __future__ import annotations

import ssl
from io import BytesIO
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionDropped

from .kazoo_private import LoopStep, socket_of, wrap

#: So much is asked for at once: what is asked for is taken of memory before it is read.
_PIECE_BYTES = 1 << 18
_WANTS_READ = (BlockingIOError, ssl.SSLWantReadError)


class _SocketErrors:
    """Tells that a connection is broken, as kazoo does by a generator for each read and write.

    It has no state: all share one.
    """

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, OSError):
            raise _broken(error)


def _broken(error: OSError) -> ConnectionDropped:
    return ConnectionDropped(f"socket connection error: {error.strerror}")


_SOCKET_ERRORS = _SocketErrors()


def read_and_write_at_once(client: KazooClient) -> None:
    """Replace the reads and writes of a client that is not started."""
    handler = client.handler

    def wait(timeout: float, *, to_read: bool, what: str) -> None:
        sockets = [socket_of(client)]
        try:
            ready = handler.select(*((sockets, []) if to_read else ([], sockets)), [], timeout)
        except OSError as error:
            raise _broken(error) from error
        if not any(ready):
            raise handler.timeout_exception(f"socket time-out during {what}")

    def read(length: int, timeout: float) -> bytes:
        # A long listing is in memory once: neither its pieces beside it, nor a copy of it.
        whole = BytesIO()
        while length > 0:
            try:
                chunk = socket_of(client).recv(min(length, _PIECE_BYTES))
            except _WANTS_READ:
                wait(timeout, to_read=True, what="read")
                continue
            except ssl.SSLWantWriteError:
                wait(timeout, to_read=False, what="read")
                continue
            except OSError as error:
                raise _broken(error) from error
            if not chunk:
                raise ConnectionDropped("socket connection broken")
            length -= len(chunk)
            if not length and not whole.tell():
                return chunk
            whole.write(chunk)
        return whole.getvalue()

    def write(message: bytes, timeout: float) -> None:
        left = memoryview(message)
        while left:
            try:
                sent = socket_of(client).send(left)
            except ssl.SSLWantReadError:
                wait(timeout, to_read=True, what="write")
                continue
            except (BlockingIOError, ssl.SSLWantWriteError):
                wait(timeout, to_read=False, what="write")
                continue
            except OSError as error:
                raise _broken(error) from error
            if not sent:
                raise ConnectionDropped("socket connection broken")
            left = left[sent:]

    def instead(function: Any) -> Any:
        return lambda _: function

    wrap(client, LoopStep.SOCKET_ERRORS, instead(lambda: _SOCKET_ERRORS))
    wrap(client, LoopStep.READ, instead(read))
    wrap(client, LoopStep.WRITE, instead(write))
