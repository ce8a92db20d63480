"""kazoo, as zkplan needs it: outlives bad answers and lack of memory, and leaves `random` alone."""

from __future__ import annotations

import _thread
import atexit
import logging
import select
import threading
from collections.abc import Callable, Sequence
from typing import Any

import kazoo.protocol.connection
import kazoo.retry
from kazoo.client import KazooClient
from kazoo.exceptions import (
    ConnectionDropped,
    ConnectionLoss,
    MarshallingError,
    OperationTimeoutError,
    RequestTimeoutError,
    SessionExpiredError,
    SessionMovedError,
    SystemZookeeperError,
    ThrottledOpError,
)
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import KeeperState

from ..backoff import CHANCE
from .calls import Call
from .connect_attempts import bound_attempts
from .packets import TransactionPacket
from .wire import refusal

#: What kazoo says about connections; zkplan tells by itself what a user must know. Without a
#: handler, Python would print its warnings in programs that never set up logging.
logger = logging.getLogger("zkplan.kazoo")
logger.addHandler(logging.NullHandler())

#: Answers that say something of the server, and nothing of the request.
_SERVER_FAILED = frozenset(
    error.code
    for error in (
        MarshallingError,
        OperationTimeoutError,
        RequestTimeoutError,
        SystemZookeeperError,
        ThrottledOpError,
    )
)
#: Answers that say something of the session or the connection, whatever the request was.
#: ZooKeeper 3.5 leaves a connection open over which each transaction is told that its session has
#: moved; ClickHouse Keeper one over which it tells of a lost connection.
_SESSION_ENDS = frozenset(
    error.code for error in (ConnectionLoss, SessionExpiredError, SessionMovedError)
)
#: So often a request is sent again after such an answer: there may be something wrong with it.
_STUMBLES_MAX = 3
#: So long kazoo itself waits for its connection, if not for the time-out of a longer session; and
#: so much longer a stop may take.
_STOP_S, _STOP_MORE_S = 10.0, 5.0

# kazoo draws from the shared generator of `random`, with every answer: a task that seeds it would
# get other numbers each time, tests with hypothesis fail beside its threads now and then, and
# workers whose tasks seed it alike would all come back in the same moment.
for _module in (kazoo.protocol.connection, kazoo.retry):
    _module.random = CHANCE


class Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threads, with a cheaper wait.

    kazoo makes, fills and closes an epoll for each wait, about five for each round trip. A poll
    object costs no system call: the hop of a chain takes a fifth less.
    """

    def select(
        self, rlist: Sequence[Any], wlist: Sequence[Any], xlist: Sequence[Any], timeout: Any = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        poller = select.poll()
        for item in rlist:
            poller.register(item, select.POLLIN)
        for item in wlist:
            poller.register(item, select.POLLOUT)
        ready = {fd for fd, _ in poller.poll(None if timeout is None else timeout * 1000)}
        # A hang-up or an error counts as ready, so that kazoo's next call meets it.
        readable = [item for item in rlist if item.fileno() in ready]
        return readable, [item for item in wlist if item.fileno() in ready], []


def mend(client: KazooClient) -> None:
    """Let this client live on where kazoo's own thread would end, or wait for too long.

    Before or after it is started; once, however often it is given.
    """
    if getattr(client, "_mended_by_zkplan", False):
        return
    client._mended_by_zkplan = True
    bound_attempts(client)
    _survive_bad_answers(client)
    _outlive_errors(client)


def stop(client: KazooClient) -> None:
    """Stop and close it, but do not wait for ever for a thread that has ended by an error.

    One that has ended for want of memory may have left a lock of kazoo's queues held, or not be
    seen to have ended; a process that waited for that would neither work nor end. Without its
    goodbye the session ends after its time-out.
    """
    errors: list[BaseException] = []
    stopped = threading.Lock()
    stopped.acquire()

    def stop_and_close() -> None:
        try:
            client.stop()
            client.close()
        except BaseException as error:
            errors.append(error)
        finally:
            stopped.release()

    # Not a Thread: its start waits, without a bound, for one that may end at once for that want.
    try:
        _thread.start_new_thread(stop_and_close, ())
    except (RuntimeError, MemoryError):
        stop_and_close()  # this process may have no more threads: here, then, whatever it takes
    within_s = max(_STOP_S, client._session_timeout / 1000) + _STOP_MORE_S
    if not stopped.acquire(timeout=within_s):
        logger.warning("the connection could not be closed within %g s: it is left", within_s)
        # Else the end of the process would wait for it after all.
        atexit.unregister(client.handler.stop)
    if errors:
        raise errors[0]


def _survive_bad_answers(client: KazooClient) -> None:
    """Drop the connection where a server leaves out an answer, or fails at a request.

    A member of an ensemble may leave one out when it has lost its leader: kazoo's thread would end
    by the next answer, whose number is another one than expected, and the client would never
    connect again. Over a request at the wrong moment a leader may stumble (seen: MarshallingError
    for a commit while sessions ended). Whether it is applied nobody says: so it is sent again as
    one whose answer was lost, with all that were sent behind it, in their order.

    A transaction that meets the end of its session is refused by its first operation (seen: 391 in
    a row, over a connection that stood). Taken for a word about its znodes, a task would fail whose
    worker was merely paused: the next transaction may be of the next session already.
    """
    connection = client._connection
    read = connection._read_response

    def read_or_drop(header: Any, buffer: bytes, offset: int) -> Any:
        pending = client._pending  # another one in each session
        if not pending or header.xid != pending[0][2]:
            raise ConnectionDropped(f"answer {header.xid} came before the one to an older request")
        call = pending[0][1]
        if type(call) is Call:
            error = header.err
            if not error and type(call.packet) is TransactionPacket:
                error = refusal(buffer, offset)
            if error in _SESSION_ENDS:
                raise ConnectionDropped(f"the session or the connection is at its end ({error})")
            if error in _SERVER_FAILED and call.stumbles < _STUMBLES_MAX:
                call.stumbles += 1
                raise ConnectionDropped(f"a server failed at a request ({error})")
        return read(header, buffer, offset)

    connection._read_response = read_or_drop


def _outlive_errors(client: KazooClient) -> None:
    """Make a new connection where kazoo's thread meets an error that it does not know.

    It would end by a MemoryError, say, which passes; nobody notices, and the client would wait for
    ever. What was under way counts as lost answers, also what kazoo had in its hands just then: it
    takes a request from one list before it puts it into the other, and an answered one from both.
    """
    connection = client._connection
    attempt, send, read = (
        connection._connect_attempt,
        connection._send_request,
        connection._read_response,
    )

    def send_or_keep(*given: Any) -> None:
        queue = client._queue
        first = queue[0] if queue else None
        try:
            send(*given)
        except Exception:
            if first is not None and not (queue and queue[0] is first):
                client._pending.append((*first, 0))
            raise

    def read_or_keep(*given: Any) -> Any:
        pending = client._pending
        first = pending[0] if pending else None
        try:
            return read(*given)
        except Exception:
            is_there = bool(pending) and pending[0] is first
            if first is not None and not is_there and not _is_told(first[1]):
                pending.appendleft(first)
            raise

    def attempt_or_drop(*given: Any) -> Any:
        try:
            return attempt(*given)
        except Exception as error:
            logger.warning("the connection is made anew after an error of this process: %r", error)
            if client._state != KeeperState.CONNECTING:
                client._session_callback(KeeperState.CONNECTING)
            return None

    connection._connect_attempt = attempt_or_drop
    connection._send_request, connection._read_response = send_or_keep, read_or_keep
    # Of a client that was given the first connection is in the attempt of before.
    for name in ("_send_request", "_read_socket", "_send_ping"):
        setattr(connection, name, _or_drop(getattr(connection, name)))


def _or_drop(step: Callable[..., Any]) -> Callable[..., Any]:
    """A step of kazoo's loop, after which the connection is dropped where it lacked memory."""

    def or_drop(*given: Any) -> Any:
        try:
            return step(*given)
        except MemoryError as error:
            raise ConnectionDropped("this process lacks memory") from error

    return or_drop


def _is_told(call: Any) -> bool:
    """Whether who waits for that answer has it; others who share the client use kazoo's own."""
    return call is None or bool(call.told if type(call) is Call else call.ready())
