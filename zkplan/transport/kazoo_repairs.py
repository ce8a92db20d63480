"""Repair kazoo's loop: its thread goes on where it would end, and no attempt to connect takes
too long."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
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
from kazoo.protocol.serialization import Connect

from .kazoo_client import logger
from .kazoo_private import LoopStep, drop_connection, pending, queue, session_timeout_s, wrap
from .packets import TransactionPacket, refusal
from .request_queue import Call

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
#: A request is sent again this often after a server failed at it: the request may be the reason.
_SERVER_FAILURES_MAX = 3

_Step = Callable[..., Any]
_repaired: weakref.WeakSet[KazooClient] = weakref.WeakSet()


def repair(client: KazooClient) -> None:
    """Repair this client, before or after it is started; once, however often it is given."""
    if client in _repaired:
        return
    _repaired.add(client)
    bound_attempts(client)
    _survive_bad_answers(client)
    _survive_errors(client)
    _survive_lost_logins(client)


def _survive_bad_answers(client: KazooClient) -> None:
    """Drop the connection where a server leaves out an answer, or fails at a request.

    A member of an ensemble may leave out an answer when it has lost its leader. The next answer has
    another number than expected: kazoo's thread would end, and the client never connect again.

    A leader may fail over a request at the wrong moment (seen: MarshallingError for a commit while
    sessions ended). Nobody says whether the request is applied. So it is sent again as one whose
    answer was lost, with all that were sent behind it, in their order.

    A transaction that meets the end of its session is refused by its first operation (seen: 391 in
    a row, over a connection that stood). Were that taken for a word about its znodes, a task would
    fail whose worker was only paused: the next transaction may be of the next session already.
    """

    def around(read: _Step) -> _Step:
        def read_or_drop(header: Any, buffer: bytes, offset: int) -> Any:
            sent = pending(client)
            if not sent or header.xid != sent[0][2]:
                raise ConnectionDropped(
                    f"answer {header.xid} came before the one to an older request"
                )
            call = sent[0][1]
            if type(call) is Call:
                error = header.err
                if not error and type(call.packet) is TransactionPacket:
                    error = refusal(buffer, offset)
                if error in _SESSION_ENDS:
                    raise ConnectionDropped(f"the session or connection has ended ({error})")
                if error in _SERVER_FAILED and call.server_failures < _SERVER_FAILURES_MAX:
                    call.server_failures += 1
                    raise ConnectionDropped(f"a server failed at a request ({error})")
            return read(header, buffer, offset)

        return read_or_drop

    wrap(client, LoopStep.READ_RESPONSE, around)


def _survive_errors(client: KazooClient) -> None:
    """Make a new connection where kazoo's thread meets an error that it does not know.

    It would end by a MemoryError, say, which passes. Nobody would notice, and the client would wait
    for ever. What was under way counts as lost answers. kazoo takes a request from one list before
    it puts it into the other, and an answered one from both: a request in neither is put back.
    """

    def around_send(send: _Step) -> _Step:
        def send_or_keep(*given: Any) -> None:
            waiting = queue(client)
            first = waiting[0] if waiting else None
            try:
                send(*given)
            except Exception:
                if first is not None and not (waiting and waiting[0] is first):
                    pending(client).append((*first, 0))
                raise

        return send_or_keep

    def around_read(read: _Step) -> _Step:
        def read_or_keep(*given: Any) -> Any:
            sent = pending(client)
            first = sent[0] if sent else None
            try:
                return read(*given)
            except Exception:
                is_there = bool(sent) and sent[0] is first
                if first is not None and not is_there and not _is_told(first[1]):
                    sent.appendleft(first)
                raise

        return read_or_keep

    def around_attempt(attempt: _Step) -> _Step:
        def attempt_or_drop(*given: Any) -> Any:
            try:
                return attempt(*given)
            except Exception as error:
                logger.warning("a new connection is made after an error here: %r", error)
                drop_connection(client)
                return None

        return attempt_or_drop

    wrap(client, LoopStep.CONNECT_ATTEMPT, around_attempt)
    wrap(client, LoopStep.SEND_REQUEST, around_send)
    wrap(client, LoopStep.READ_RESPONSE, around_read)
    # The attempt in which a client is when it is given is not wrapped.
    for step in (LoopStep.SEND_REQUEST, LoopStep.READ_SOCKET, LoopStep.SEND_PING):
        wrap(client, step, _dropping_without_memory)


def _survive_lost_logins(client: KazooClient) -> None:
    """Connect anew where a server is lost in the middle of a SASL login that was taken before.

    A server that refuses a login closes the connection, too. So kazoo takes each loss at this point
    for a refusal, and never connects again: a worker would end by the restart of a server.
    """
    was_taken = False

    def around(log_in: _Step) -> _Step:
        def log_in_or_drop(*given: Any) -> None:
            nonlocal was_taken
            try:
                log_in(*given)
            except AuthFailedError as error:
                if was_taken and isinstance(error.__cause__, ConnectionDropped):
                    raise ConnectionDropped("the server was lost during the login") from error
                raise
            was_taken = True

        return log_in_or_drop

    wrap(client, LoopStep.SASL_LOGIN, around)


def _dropping_without_memory(step: _Step) -> _Step:
    def step_or_drop(*given: Any) -> Any:
        try:
            return step(*given)
        except MemoryError as error:
            raise ConnectionDropped("this process lacks memory") from error

    return step_or_drop


def _is_told(call: Any) -> bool:
    """Whether the asker has the answer; others who share the client use kazoo's own results."""
    return call is None or bool(call.told if type(call) is Call else call.ready())


# ---- How long one attempt to connect may take: less than the session that it is to save.


#: An attempt may take this long at first, unless a fifth of the session time-out is less.
ATTEMPT_S, _PART = 2.0, 5


def bound_attempts(client: KazooClient) -> None:
    """Give up an attempt that nobody answers, and make the next one, while the session lives.

    kazoo waits a whole session time-out for a connection (a machine that is gone sends nothing),
    and that time-out divided by the number of hosts for the handshake. A client that loses its
    connection, and then has such an attempt, would lose its session and its claims.

    A ZooKeeper that has just started may take a connection and never answer its handshake: 7 of 72
    reconnections to one that was killed and started again hung so. The next attempt was answered at
    once. A client without a session has none to lose: its handshake may take kazoo's time. Servers
    that are slow get more time with each attempt, up to kazoo's own, and next time twice what they
    have needed.
    """
    create = client.handler.create_connection
    handshakes = Attempts(session_timeout_s(client))
    connections = Attempts(session_timeout_s(client))

    def around_invoke(invoke: Callable[..., Any]) -> Callable[..., Any]:
        def invoke_within(timeout: float, request: Any, *rest: Any, **more: Any) -> Any:
            if type(request) is not Connect or not request.session_id:
                return invoke(timeout, request, *rest, **more)
            return handshakes.make(timeout, lambda within: invoke(within, request, *rest, **more))

        return invoke_within

    def create_within(*given: Any, timeout: float | None = None, **more: Any) -> Any:
        if timeout is None:  # kazoo's search for a server that writes
            return create(*given, **more)
        return connections.make(timeout, lambda within: create(*given, timeout=within, **more))

    wrap(client, LoopStep.INVOKE, around_invoke)
    client.handler.create_connection = create_within


class Attempts:
    """The time that each attempt of one client gets, by what the ones before it took."""

    def __init__(self, session_s: float, now: Callable[[], float] = time.monotonic) -> None:
        self._least_s = self.within_s = min(ATTEMPT_S, session_s / _PART)
        self._now = now

    def make(self, most_s: float, attempt: Callable[[float], Any]) -> Any:
        within_s, began = min(most_s, self.within_s), self._now()
        try:
            made = attempt(within_s)
        except BaseException:  # the time-outs of gevent are no Exceptions
            if self._now() - began >= within_s:
                self.within_s = min(most_s, 2 * within_s)
            raise
        self.within_s = max(self._least_s, 2 * (self._now() - began))
        return made
