"""Waking kazoo's thread for requests: as its `_call` does, but never blocking or swallowing.

kazoo's thread takes one request from its queue for each byte on a socket pair: a wake-up. A wake-up
too many is harmless, one too few leaves a request unsent.
"""

from __future__ import annotations

import contextlib
import socket
import threading

from kazoo.client import KazooClient

from .kazoo_private import queue, wake_up_reader, wake_up_writer

_MANY = 4096


def forget_wake_ups(client: KazooClient) -> None:
    """After a loss of the connection, on kazoo's thread: take back the wake-ups of failed requests.

    kazoo fails the requests in its queue then, but leaves their wake-ups. A few connections that
    are lost before anything was sent would fill the socket pair. The next wake-up would block its
    sender, perhaps kazoo's own thread, until there is a connection again.
    """
    reader = wake_up_reader(client)
    if reader is None:
        return
    while client.handler.select([reader], [], [], 0)[0] and len(reader.recv(_MANY)) == _MANY:
        pass
    # Others who use the client may have queued requests meanwhile. Count them only now: a request
    # is in the queue before its wake-up is sent.
    wake_up(client, len(queue(client)))


def wake_up(client: KazooClient, times: int) -> None:
    """Have kazoo send so many requests from its queue. Never waits for room.

    kazoo's thread, which makes room, may be the caller, or wait for a lock of the caller. kazoo's
    own `_call` has a bare `except`: it swallows what a signal's handler raises, such as
    KeyboardInterrupt, and leaves the request unanswered.
    """
    wake_ups = wake_up_writer(client)
    if wake_ups is None:
        return  # stopped: all requests have failed
    try:
        if wake_ups.gettimeout() is not None:
            # The program called socket.setdefaulttimeout: such a socket waits, whatever the flags.
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
        if wake_up_writer(client) is wake_ups:
            raise


def _wake_up_in_time(wake_ups: socket.socket, times: int) -> None:
    with contextlib.suppress(OSError):  # the client was stopped: all requests have failed
        for _ in range(times):
            wake_ups.send(b"\0")
