"""Handing requests to kazoo's thread: what its `_call` does, but never blocking or swallowing.

kazoo's thread takes one request from its queue for each byte on a socket pair: a wake. A wake too
many is harmless, one too few leaves a request unsent.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Any

from kazoo.client import KazooClient

_MANY = 4096


def hand_over(client: KazooClient, packet: Any, call: Any) -> None:
    """Have `packet` sent; `call` is told the outcome. Raises OSError where the client is stopped.

    kazoo's bare `except` would swallow the KeyboardInterrupt which a signal raises inside `send`:
    Ctrl-C would be lost now and then, and the request taken for unanswered and sent again.
    """
    requests, wakes = client._queue, client._connection._write_sock
    if wakes is None:
        raise OSError("the client is stopped")
    try:
        requests.append((packet, call))
        _wake(wakes, 1)
    except OSError:
        if (packet, call) in requests:
            requests.remove((packet, call))
            raise
        # Otherwise the stop took it from the queue, and tells the call.
    except BaseException:
        _wake(wakes, 1)  # whether the first one was sent is unknown
        raise


def forget_wakes(client: KazooClient) -> None:
    """After a loss of the connection, on kazoo's thread: take back the wakes of what it failed.

    kazoo takes the requests from its queue then, but leaves their wakes. A few connections that are
    lost before anything was sent would fill the socket pair, and then a wake blocks whoever sends
    it, be it kazoo's own thread, until there is a connection again.
    """
    connection = client._connection
    reader, wakes = connection._read_sock, connection._write_sock
    if reader is None or wakes is None:
        return
    while connection.handler.select([reader], [], [], 0)[0] and len(reader.recv(_MANY)) == _MANY:
        pass
    # Others who use the client may have handed over more meanwhile. Looked at after the wakes were
    # taken: a request stands in the queue before its wake is sent.
    _wake(wakes, len(client._queue))


def _wake(wakes: socket.socket, times: int) -> None:
    """Never waits: kazoo's thread, which makes room, may be waiting for a lock of the caller."""
    try:
        for sent in range(times):  # noqa: B007 - read below
            wakes.send(b"\0", socket.MSG_DONTWAIT)
    except BlockingIOError:
        # Full: others who share the client wait for room, too.
        waiting = threading.Thread(target=_wake_in_time, args=[wakes, times - sent], daemon=True)
        waiting.start()


def _wake_in_time(wakes: socket.socket, times: int) -> None:
    with contextlib.suppress(OSError):  # the client was stopped, and told those who wait
        for _ in range(times):
            wakes.send(b"\0")
