"""Handing requests to kazoo's thread: what its `_call` does, but never blocking or swallowing.

kazoo's thread takes one request from its queue for each byte on a socket pair: a wake. A wake too
many is harmless, one too few leaves a request unsent.
"""

from __future__ import annotations

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
    requests.append((packet, call))
    try:
        wakes.send(b"\0")
    except OSError:
        if (packet, call) in requests:
            requests.remove((packet, call))
            raise
        # Otherwise the stop took it from the queue, and tells the call.
    except BaseException:
        wakes.send(b"\0")  # whether the first one was sent is unknown
        raise


def forget_wakes(client: KazooClient) -> None:
    """After a loss of the connection, on kazoo's thread: take back the wakes of what it failed.

    kazoo takes the requests from its queue then, but leaves their wakes. A few connections that are
    lost before anything was sent would fill the socket pair, and the next wake would block kazoo's
    own thread for ever.
    """
    connection = client._connection
    reader, wakes = connection._read_sock, connection._write_sock
    if reader is None or wakes is None:
        return
    while connection.handler.select([reader], [], [], 0)[0] and len(reader.recv(_MANY)) == _MANY:
        pass
    # Others who use the client may have handed over more meanwhile. Looked at after the wakes were
    # taken: a request stands in the queue before its wake is sent.
    for _ in range(len(client._queue)):
        wakes.send(b"\0")
