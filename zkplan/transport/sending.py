"""Waking kazoo's thread for requests: what its `_call` does, but never blocking or swallowing.

kazoo's thread takes one request from its queue for each byte on a socket pair: a wake-up. A wake-up
too many is harmless, one too few leaves a request unsent.
"""

from __future__ import annotations

import contextlib
import socket
import threading

from kazoo.client import KazooClient

_MANY = 4096


def forget_wake_ups(client: KazooClient) -> None:
    """After a loss of the connection, on kazoo's thread: take back the wake-ups of what it failed.

    kazoo takes the requests from its queue then, but leaves their wake-ups. A few connections that
    are lost before anything was sent would fill the socket pair, and then a wake-up blocks whoever
    sends it, be it kazoo's own thread, until there is a connection again.
    """
    connection = client._connection
    reader = connection._read_sock
    if reader is None:
        return
    while connection.handler.select([reader], [], [], 0)[0] and len(reader.recv(_MANY)) == _MANY:
        pass
    # Others who use the client may have handed over more meanwhile. Looked at after the wake-ups
    # were taken: a request stands in the queue before its wake-up is sent.
    wake_up(client, len(client._queue))


def wake_up(client: KazooClient, times: int) -> None:
    """Have kazoo send what was put into its queue, so many requests. Never waits for room.

    Kazoo's thread, which makes room, may be the caller, or wait for a lock of it. kazoo's own call
    has a bare `except`, which swallows what a signal's handler raises here, such as
    KeyboardInterrupt, and takes the request for unanswered.
    """
    wake_ups = client._connection._write_sock
    if wake_ups is None:
        return  # stopped: who waits was told
    try:
        if wake_ups.gettimeout() is not None:
            # Of a program with socket.setdefaulttimeout: such a socket waits, whatever the flags.
            wake_ups.settimeout(None)
        for sent in range(times):  # noqa: B007 - read below
            wake_ups.send(b"\0", socket.MSG_DONTWAIT)
    except BlockingIOError:
        # Full: others who share the client wait for room, too.
        waiting = threading.Thread(
            target=_wake_up_in_time, args=[wake_ups, times - sent], daemon=True
        )
        waiting.start()
    except OSError:
        # The client was stopped meanwhile; else a handler raised it: TimeoutError is an OSError.
        if client._connection._write_sock is wake_ups:
            raise


def _wake_up_in_time(wake_ups: socket.socket, times: int) -> None:
    with contextlib.suppress(OSError):  # the client was stopped, and told those who wait
        for _ in range(times):
            wake_ups.send(b"\0")


def thread_has_ended(client: KazooClient) -> bool:
    """Whether kazoo's thread ended though nobody stopped it, so that nothing is ever answered.

    It outlives errors, but not each MemoryError: to tell of one, and to go on, takes memory too.
    """
    thread = client._connection._connection_routine
    return thread is not None and not thread.is_alive() and not client._stopped.is_set()
