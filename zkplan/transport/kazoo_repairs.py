"""Repair kazoo: its thread survives errors, and attempts to connect are short."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
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
from .kazoo_private import (
    LoopStep,
    awaits_ping,
    drop_connection,
    pending,
    queue,
    session_timeout_s,
    wrap,
)
from .packets import TransactionPacket, refusal
from .request_queue import Call

#: Errors that concern the server, and not the request.
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
#: Errors that concern the session or the connection, and not the request. The connection may stay
#: open: ZooKeeper 3.5 answers "session moved" to each transaction over an open connection, and
#: ClickHouse Keeper answers "connection lost" over one.
_SESSION_ENDS = frozenset(
    error.code for error in (ConnectionLoss, SessionExpiredError, SessionMovedError)
)
#: How often to send a request again after a server failed at it. The request may be the cause.
_SERVER_FAILURES_MAX = 3

_Step = Callable[..., Any]
_repaired: weakref.WeakSet[KazooClient] = weakref.WeakSet()


def repair(client: KazooClient) -> None:
    """Repair `client`, before or after its start. May be called again."""
    if client in _repaired:
        return
    _repaired.add(client)
    bound_attempts(client)
    _survive_bad_answers(client)
    _survive_errors(client)
    _survive_lost_logins(client)
    _note_pings(client)


@dataclass(slots=True)
class Ping:
    """When the server last answered a ping of kazoo (monotonic): the session lived then."""

    answered_at: float = 0.0


_pings: weakref.WeakKeyDictionary[KazooClient, Ping] = weakref.WeakKeyDictionary()


def last_ping(client: KazooClient) -> Ping:
    """The last ping of `client`; the object is kept up to date."""
    return _pings.setdefault(client, Ping())


def _note_pings(client: KazooClient) -> None:
    ping = last_ping(client)

    def around(read: _Step) -> _Step:
        def read_and_note(*given: Any) -> Any:
            was_awaited = awaits_ping(client)
            answer = read(*given)
            if was_awaited and not awaits_ping(client):
                ping.answered_at = time.monotonic()
            return answer

        return read_and_note

    wrap(client, LoopStep.READ_SOCKET, around)


def _survive_bad_answers(client: KazooClient) -> None:
    """Drop the connection if a server skips an answer, fails at a request, or ends the session.

    A member of an ensemble may skip an answer when it has lost its leader. Then the next answer has
    an unexpected number: kazoo's thread would end, and the client would never connect again.

    A leader may fail at a request (seen: MarshallingError for a commit while sessions ended). Then
    it is unknown whether the request is applied. So the client sends the request again, as after a
    lost answer, with all requests after it, in their order.

    After the end of a session, a server may refuse the first operation of each transaction (seen:
    391 in a row over an open connection). That tells nothing about the znodes. If it counted, a
    task would fail whose worker was only paused: the next session may apply the transaction.
    """

    def around(read: _Step) -> _Step:
        def read_or_drop(header: Any, buffer: bytes, offset: int) -> Any:
            sent = pending(client)
            if not sent or header.xid != sent[0][2]:
                raise ConnectionDropped(
                    f"answer {header.xid} came before the answer to an older request"
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
    """Make a new connection after an error that kazoo's thread does not expect.

    For example a MemoryError, which may pass, would end the thread unnoticed, and the client would
    wait for ever. Answers to requests under way count as lost. kazoo removes a request from its
    queue, then adds it to the pending ones, and removes it there, then hands over the answer. A
    request that an error would lose in between is put back among the pending ones.
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
                if first is not None and not is_there and not _has_ended(first[1]):
                    sent.appendleft(first)
                raise

        return read_or_keep

    def around_attempt(attempt: _Step) -> _Step:
        def attempt_or_drop(*given: Any) -> Any:
            try:
                return attempt(*given)
            except Exception as error:
                logger.warning("reconnecting after an error in this process: %r", error)
                drop_connection(client)
                return None

        return attempt_or_drop

    wrap(client, LoopStep.CONNECT_ATTEMPT, around_attempt)
    wrap(client, LoopStep.SEND_REQUEST, around_send)
    wrap(client, LoopStep.READ_RESPONSE, around_read)
    # The current attempt of a started client is not wrapped, so wrap the steps inside it, too.
    for step in (LoopStep.SEND_REQUEST, LoopStep.READ_SOCKET, LoopStep.SEND_PING):
        wrap(client, step, _dropping_without_memory)


def _survive_lost_logins(client: KazooClient) -> None:
    """Connect again if the connection is lost during a SASL login that has worked before.

    A server that refuses a login closes the connection, too. So kazoo treats each loss at this
    point as a refusal, and never connects again: the restart of a server would end a worker.
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


def _has_ended(call: Any) -> bool:
    """Whether the caller has the answer. Other users of the client pass kazoo's own results."""
    return call is None or bool(call.has_ended if type(call) is Call else call.ready())


# ---- Bound the time of an attempt to connect, so that one attempt does not cost the session.


#: The time for the first attempt: two seconds, or a fifth of the session time-out if that is less.
ATTEMPT_S, _PART = 2.0, 5


def bound_attempts(client: KazooClient) -> None:
    """Give up an attempt without an answer while the session lives, and make the next one.

    kazoo waits a whole session time-out for a connection (a dead machine sends nothing), and for
    the handshake that time-out divided by the number of hosts. A client that lost its
    connection would lose its session and its claims by one such attempt.

    A ZooKeeper that has just started may accept a connection and never answer its handshake: seen
    in 7 of 72 reconnections to a restarted server; the next attempt was answered at once. Without a
    session there is nothing to lose, so the handshake gets kazoo's time. A slow server gets twice
    the time after each time-out, up to kazoo's, and after a success twice the time that it took.
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
    """The time that each attempt of one client gets, according to how long earlier ones took."""

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
