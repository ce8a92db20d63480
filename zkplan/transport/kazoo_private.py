"""Every private member of kazoo that zkplan uses, and why.

kazoo may change its private members in any release. So pyproject.toml allows only tested releases,
and tests/unit/test_kazoo_private.py names the members that an upgrade has removed.
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

#: Members of a KazooClient, and why zkplan needs each.
OF_CLIENT = {
    "_connection": "reach the connection, whose members are listed below",
    "_queue": "pass on requests that are packed already, in their order",
    "_pending": "know which request an answer belongs to, and keep one that kazoo would lose",
    "_session_timeout": "know the session time-out that was requested",
    "_state": "drop a connection only if there is one",
    "_child_watchers": "forget watches that are no longer needed",
    "_data_watchers": "forget watches that are no longer needed",
    "_session_callback": "drop the connection after an error that would end kazoo's thread",
    "_stopped": "distinguish a stopped client from one that lost its connection",
}
#: Members of the connection of a KazooClient.
OF_CONNECTION = {
    "_read_sock": "remove the wake-ups of requests that kazoo has failed",
    "_write_sock": "wake up kazoo's thread without waiting for room",
    "_connection_routine": "notice that kazoo's thread has ended",
    "_socket": "read and write without polling first",
    "_socket_error_handling": "recognise a broken connection at less cost",
    "_read": "read an answer without polling first",
    "_write": "write a request without polling first",
    "_invoke": "bound how long a server may take for the handshake",
    "_authenticate_with_sasl": "reconnect if a server is lost during a login that worked before",
    "_connect_attempt": "go on after an error that would end kazoo's thread",
    "_send_request": "keep a request that was being sent when memory ran out",
    "_read_response": "drop the connection after an answer that says nothing about its request",
    "_read_socket": "drop the connection when memory runs out while an answer is read",
    "_send_ping": "drop the connection when memory runs out while a ping is sent",
}
#: Modules of kazoo that draw from the shared generator of `random`.
DRAWS = (kazoo.protocol.connection, kazoo.retry)


def draw_from(chance: Any) -> None:
    """Let kazoo draw from `chance` instead of the shared generator of `random`.

    kazoo draws with every answer. If it shared the generator, a task that seeds the generator would
    get other numbers each time, tests with hypothesis would fail beside kazoo's threads, and
    workers whose tasks use the same seed would all reconnect at the same moment.
    """
    for module in DRAWS:
        module.random = chance


class LoopStep(enum.Enum):
    """A method of kazoo's loop that zkplan wraps."""

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
    """Replace a method of this client's connection by `wrapper(method)`."""
    connection = client._connection
    setattr(connection, step.value, wrapper(getattr(connection, step.value)))


def has_sasl(client: KazooClient) -> bool:
    """Whether `client` logs in with SASL."""
    return bool(client._connection.sasl_options)


def session_timeout_s(client: KazooClient) -> float:
    """The requested session time-out in seconds. The server may have granted another one."""
    return float(client._session_timeout) / 1000.0


def queue(client: KazooClient) -> deque[tuple[Any, Any]]:
    """The requests not sent yet, each with the object for its answer. Each session has a queue."""
    return client._queue  # type: ignore[no-any-return]


def pending(client: KazooClient) -> deque[tuple[Any, Any, int]]:
    """The requests sent but not answered, each with its number. Each session has a queue."""
    return client._pending  # type: ignore[no-any-return]


def has_watches(client: KazooClient, path: str) -> bool:
    """Whether reads of `path` have left watches that have not fired."""
    return path in client._data_watchers or path in client._child_watchers


def forget_watches(client: KazooClient, path: str) -> None:
    """Drop the watches of `path`. Call this only on kazoo's thread, which iterates over all watches
    when the connection is lost."""
    client._data_watchers.pop(path, None)
    client._child_watchers.pop(path, None)


def socket_of(client: KazooClient) -> socket.socket:
    """The socket of the client's connection, while there is one."""
    return client._connection._socket  # type: ignore[no-any-return]


def wake_up_reader(client: KazooClient) -> socket.socket | None:
    """The socket from which kazoo's thread reads one byte for each request; None after a stop."""
    return client._connection._read_sock  # type: ignore[no-any-return]


def wake_up_writer(client: KazooClient) -> socket.socket | None:
    """The socket into which a caller writes one byte for each request; None after a stop."""
    return client._connection._write_sock  # type: ignore[no-any-return]


def stopped(client: KazooClient) -> threading.Event:
    """The event that is set when the client is stopped."""
    return client._stopped  # type: ignore[no-any-return]


def awaits_ping(client: KazooClient) -> bool:
    """Whether a ping was sent whose answer has not come. kazoo pings only an idle connection."""
    return bool(client._connection.ping_outstanding.is_set())


def drop_connection(client: KazooClient) -> None:
    """Treat the connection and the requests under way as lost. Call this only on kazoo's thread."""
    if client._state != KeeperState.CONNECTING:
        client._session_callback(KeeperState.CONNECTING)


def thread_has_ended(client: KazooClient) -> bool:
    """Whether kazoo's thread ended without a stop: then no request gets an answer any more.

    The thread survives errors, but not every MemoryError: handling one takes memory, too.
    """
    thread = client._connection._connection_routine
    return thread is not None and not thread.is_alive() and not stopped(client).is_set()
