"""Every private member of kazoo that zkplan uses, and what for.

kazoo may change them in any release, so pyproject.toml admits no untried release, and
tests/unit/test_kazoo_private.py says which member an upgrade has taken away.
"""

from __future__ import annotations

import enum
import socket
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import kazoo.protocol.connection
import kazoo.retry
from kazoo.client import KazooClient
from kazoo.protocol.states import KeeperState

#: Members of a KazooClient, and what zkplan needs them for.
OF_CLIENT = {
    "_connection": "reach the connection, whose members stand below",
    "_queue": "hand over requests that are packed already, in the order of asking",
    "_pending": "know which request an answer belongs to, and keep one that kazoo would lose",
    "_session_timeout": "tell the session time-out that was asked for",
    "_state": "drop a connection only where there is one",
    "_child_watchers": "forget watches that are not wanted any more",
    "_data_watchers": "forget watches that are not wanted any more",
    "_session_callback": "drop the connection after an error that would end kazoo's thread",
    "_stopped": "tell a client that was stopped from one that lost its connection",
}
#: Members of the connection of a KazooClient.
OF_CONNECTION = {
    "_read_sock": "take back the wake-ups of requests that kazoo has failed",
    "_write_sock": "wake up kazoo's thread without waiting for room",
    "_connection_routine": "notice that kazoo's thread has ended",
    "_socket": "read and write without asking first whether it is ready",
    "_socket_error_handling": "tell a broken connection from other errors at less cost",
    "_read": "read an answer that is there without asking first",
    "_write": "write a request without asking first",
    "_invoke": "bound how long a server may take for the handshake",
    "_authenticate_with_sasl": "connect anew where a server was lost in a login that it takes",
    "_connect_attempt": "go on after an error that would end kazoo's thread",
    "_send_request": "keep a request that was being sent when memory ran out",
    "_read_response": "drop the connection after an answer that says nothing of its request",
    "_read_socket": "drop the connection when memory runs out while an answer is read",
    "_send_ping": "drop the connection when memory runs out while a ping is sent",
}
#: Modules that draw from the generator of `random` which all of a program shares.
DRAWS = (kazoo.protocol.connection, kazoo.retry)


def draw_from(chance: Any) -> None:
    """Let kazoo draw from `chance`, in place of the shared generator of `random`.

    It draws with every answer: a task that seeds the shared one would get other numbers each time,
    tests with hypothesis would fail beside kazoo's threads, and workers whose tasks seed it alike
    would all connect again in the same moment.
    """
    for module in DRAWS:
        module.random = chance


class LoopStep(enum.Enum):
    """A step of kazoo's loop that zkplan puts a function of its own around."""

    INVOKE = "_invoke"
    SOCKET_ERRORS = "_socket_error_handling"
    READ = "_read"
    WRITE = "_write"
    SASL_LOGIN = "_authenticate_with_sasl"
    CONNECT_ATTEMPT = "_connect_attempt"
    SEND_REQUEST = "_send_request"
    READ_RESPONSE = "_read_response"
    READ_SOCKET = "_read_socket"
    SEND_PING = "_send_ping"


def wrap(
    client: KazooClient, step: LoopStep, wrapper: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> None:
    """Replace a step of this client's loop by `wrapper(step)`."""
    connection = client._connection
    setattr(connection, step.value, wrapper(getattr(connection, step.value)))


def has_sasl(client: KazooClient) -> bool:
    """Whether it logs in with SASL."""
    return bool(client._connection.sasl_options)


def session_timeout_s(client: KazooClient) -> float:
    """The session time-out in seconds that was asked for; the server may have granted another."""
    return float(client._session_timeout) / 1000.0


def queue(client: KazooClient) -> deque[tuple[Any, Any]]:
    """Requests not yet sent, each with what is told of its answer. A new one in each session."""
    return client._queue  # type: ignore[no-any-return]


def pending(client: KazooClient) -> deque[tuple[Any, Any, int]]:
    """Requests sent and not yet answered, each with its number. A new one in each session."""
    return client._pending  # type: ignore[no-any-return]


def has_watches(client: KazooClient, path: str) -> bool:
    """Whether reads of that path have left watches that have not fired."""
    return path in client._data_watchers or path in client._child_watchers


def forget_watches(client: KazooClient, path: str) -> None:
    """Tell nobody of these watches any more. On kazoo's thread only, which goes through all of them
    when the connection is lost."""
    client._data_watchers.pop(path, None)
    client._child_watchers.pop(path, None)


def socket_of(client: KazooClient) -> socket.socket:
    """The socket of its connection, while it has one."""
    return client._connection._socket  # type: ignore[no-any-return]


def wake_up_reader(client: KazooClient) -> socket.socket | None:
    """Where kazoo's thread takes one byte for each request that it sends; None after a stop."""
    return client._connection._read_sock  # type: ignore[no-any-return]


def wake_up_writer(client: KazooClient) -> socket.socket | None:
    """Where whoever hands over a request writes one byte; None after a stop."""
    return client._connection._write_sock  # type: ignore[no-any-return]


def stopped(client: KazooClient) -> threading.Event:
    """Set when somebody has stopped it."""
    return client._stopped  # type: ignore[no-any-return]


def drop_connection(client: KazooClient) -> None:
    """Count the connection as lost, with all that is under way. On kazoo's thread only."""
    if client._state != KeeperState.CONNECTING:
        client._session_callback(KeeperState.CONNECTING)


def thread_has_ended(client: KazooClient) -> bool:
    """Whether kazoo's thread ended though nobody stopped it, so that nothing is ever answered.

    It outlives errors, but not each MemoryError: to tell of one, and to go on, takes memory too.
    """
    thread = client._connection._connection_routine
    return thread is not None and not thread.is_alive() and not stopped(client).is_set()
