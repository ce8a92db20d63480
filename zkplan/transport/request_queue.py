"""The requests of one client: sent in order, and again where an answer was lost."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kazoo import exceptions
from kazoo.client import KazooClient, KazooState

from ..errors import AccessDenied, ZkplanError, ZooKeeperError
from ..protocol.requests import ReadChildren, ReadData, ReadMany, Request, Unwatch
from . import kazoo_private
from .kazoo_private import queue, wake_up_reader, wake_up_writer
from .packets import DataPacket, Packer, ReadRefused, TransactionPacket

#: Called with the answer and None, or with None and an error.
Done = Callable[[Any, BaseException | None], None]


@dataclass(slots=True, eq=False, repr=False)
class Call:
    """A request under way. kazoo calls `set` or `set_exception` at its end, which call `ended`."""

    request: Request
    packet: Any
    done: Done
    ended: Callable[[Call, Any, BaseException | None], None]
    #: Nobody waits for the answer any more.
    abandoned: bool = False
    #: How often a server has answered that it failed, which says nothing of the request.
    server_failures: int = 0
    #: Whether kazoo has told its end since it was last sent.
    told: bool = False

    def set(self, value: Any) -> None:
        self.told = True
        self.ended(self, value, None)

    def set_exception(self, error: BaseException) -> None:
        self.told = True
        self.ended(self, None, error)


class CombinedAnswer:
    """The answers of several requests as one; `done` is called once, with all or an error."""

    def __init__(self, count: int, done: Done) -> None:
        self._answers: list[Any] = [None] * count
        self._left = count
        self._done = done
        self._lock = threading.Lock()

    def done_of(self, index: int) -> Done:
        """The `done` of the request at `index`."""

        def take(answer: Any, error: BaseException | None) -> None:
            self._answers[index] = answer
            with self._lock:
                if self._left == 0:
                    return  # one of them has failed already
                self._left = 0 if error is not None else self._left - 1
                ended = self._left == 0
            if ended:
                self._done(self._answers if error is None else None, error)

        return take


# ---- The requests of one client: sent in the order of asking, and again where an answer was lost.
#
# A refused transaction is an answer (kazoo swallows it). A transaction whose answer was lost is
# sent again, identically, until a server answers. Only that decides it: a plain read after a
# reconnect may not see a write that still comes. Requests reach the server in the order in which
# they were submitted, also those that are sent again: a read never overtakes a write before it.


#: Requests under way per client. The socket pair that wakes kazoo up takes 278 bytes.
IN_FLIGHT_MAX = 100
#: After these nobody knows whether a request was executed.
_ANSWER_LOST = (
    exceptions.ConnectionLoss,
    exceptions.ConnectionClosedError,
    exceptions.SessionExpiredError,
)


class RequestQueue:
    """Sends requests over one kazoo client, at most IN_FLIGHT_MAX at a time. Thread-safe.

    `note_error` is told what kazoo's threads met here. They go on, but somebody waits in vain.
    """

    def __init__(
        self,
        client: KazooClient,
        packer: Packer,
        note_error: Callable[[BaseException], None],
    ) -> None:
        #: Monotonic time of the last answer.
        self.last_answer = time.monotonic()
        self._client = client
        self._packer = packer
        self._note_error = note_error
        self._lock = threading.Lock()
        self._waiting: deque[Call] = deque()
        #: Sent and not answered when the connection was lost. They go before those that wait.
        self._to_repeat: list[Call] = []
        self._in_flight = 0
        self._is_connected = False
        #: Makes the error that ends every request, once there is one.
        self._final_error: Callable[[], ZooKeeperError] | None = None
        #: Until it has refused a batch.
        self.server_reads_batches = True
        #: Until it has refused to take a watch back.
        self._server_unwatches = True
        client.add_listener(self._state_changed)
        # After the listener, so that a connection made in between is not missed.
        with self._lock:
            self._is_connected = client.connected

    def submit(self, request: Request, done: Done) -> Call:
        """Send without waiting; `done` is called on kazoo's thread.

        Raises PayloadTooLarge before anything is sent, and what `end` was given.
        """
        if type(request) is ReadMany and not self.server_reads_batches:
            call = Call(request, None, done, self._ended)
            self._read_singly(call)
            return call
        if type(request) is Unwatch and not self._is_to_send(request):
            call = Call(request, None, done, self._ended)
            done(None, None)
            return call
        call = Call(request, self._packer.pack(request), done, self._ended)
        try:
            with self._lock:
                if self._final_error is not None:
                    raise self._final_error()
                if self._waiting or not self._may_send():
                    self._waiting.append(call)
                    return call
                self._send(call)
            wake_up(self._client, 1)
        except BaseException:
            # A signal's handler may have raised: whether the first one was sent is unknown.
            wake_up(self._client, 1)
            raise
        return call

    def _is_to_send(self, request: Unwatch) -> bool:
        path = self._client.chroot + request.path
        return self._server_unwatches and kazoo_private.has_watches(self._client, path)

    def end(self, error: Callable[[], ZooKeeperError]) -> None:
        """End all requests that wait or come later. The first call decides by which error.

        Each gets an error of its own: who adds tasks writes into it how many were added. Requests
        under way end when kazoo says so: stop the client, or let it answer.
        """
        with self._lock:  # what was sent before is ended by kazoo, nothing is sent after
            self._final_error = self._final_error or error
            calls = [*self._to_repeat, *self._waiting]
            self._to_repeat.clear()
            self._waiting.clear()
        self._client.remove_listener(self._state_changed)
        for call in calls:
            call.done(None, self._final_error())

    # ---- with the lock

    def _may_send(self) -> bool:
        return self._is_connected and self._final_error is None and self._in_flight < IN_FLIGHT_MAX

    def _send(self, call: Call) -> None:
        """Put a call into kazoo's queue. Send a wake-up afterwards, without the lock.

        Between the look at the connection and the queue nothing may come, neither the loss of the
        connection nor another request. kazoo replaces its queue only after it has told of a loss
        and failed what was in it: so each call is sent or failed. A wake-up lets other threads
        run, and takes as long as they do. With the lock held, kazoo's own thread would wait for
        it, and a signal would most often come then.
        """
        call.told = False
        kazoo_private.queue(self._client).append((call.packet, call))
        # Behind it: if a signal's handler raises here, the count is too low, never too high.
        self._in_flight += 1

    # ---- on kazoo's threads

    def _ended(self, call: Call, value: Any, error: BaseException | None) -> None:
        try:
            with self._lock:
                self._in_flight -= 1
            if error is not None:
                self._failed(call, error)
            elif type(value) is ReadRefused:
                self._failed(call, exceptions.EXCEPTIONS[value.error](value.path))
            else:
                is_transaction = type(call.packet) is TransactionPacket
                self._answered(call, value[0] if is_transaction else value, None)
        except BaseException as met:
            self._note_error(met)
            raise

    def _answered(self, call: Call, value: Any, error: BaseException | None) -> None:
        self.last_answer = time.monotonic()
        call.done(value, error)
        if self._waiting:
            self._send_waiting()

    def _failed(self, call: Call, error: BaseException) -> None:
        if type(call.request) is Unwatch:
            # No connection keeps a watch of the one before, so a lost answer does not matter.
            if isinstance(error, exceptions.UnimplementedError):
                self._server_unwatches = False
            self._answered(call, None, None)
        elif isinstance(error, exceptions.NoNodeError):
            request = call.request
            if type(request) is ReadData and request.watch and type(call.packet) is DataPacket:
                self._watch_for_creation(call)
            else:
                self._answered(call, None, None)
        elif isinstance(error, _ANSWER_LOST):
            self._repeat_later(call, isinstance(error, exceptions.ConnectionLoss))
        elif self._final_error is not None:
            self._answered(call, None, self._final_error())
        elif isinstance(error, exceptions.UnimplementedError) and type(call.request) is ReadMany:
            self.server_reads_batches = False
            self._read_singly(call)
            self._send_waiting()
        elif isinstance(error, exceptions.ZookeeperError):
            self._answered(call, None, _refused(call.request, error))
        else:
            self._answered(call, None, error)

    def _repeat_later(self, call: Call, connection_lost: bool) -> None:
        with self._lock:
            if connection_lost:
                # kazoo says so by its state only after it has failed all that was under way. A
                # request submitted in between would be sent before those that wait here.
                self._is_connected = False
            if type(call.packet) is TransactionPacket:
                call.packet.repeated = True
            # `end` tells those that wait once: this one would come after it and wait for ever.
            final_error = self._final_error
            if final_error is None and not call.abandoned:
                self._to_repeat.append(call)
        if final_error is not None:
            call.done(None, final_error())

    def _watch_for_creation(self, call: Call) -> None:
        """Ask with `exists`, which leaves a watch also where there is nothing; a read does not."""
        request, done = call.request, call.done

        def asked(stat: Any, error: BaseException | None) -> None:
            if error is not None or stat is None:
                done(None, error)
            else:  # created between the two reads
                self._submit_or_tell(request, done)

        call.packet = self._packer.watch_for_creation(call.packet)
        call.done = asked
        with self._lock:
            self._send(call)
        wake_up(self._client, 1)

    def _read_singly(self, call: Call) -> None:
        """Send each read of a batch for itself, to a server that knows no batches."""
        reads = call.request.reads  # type: ignore[union-attr]
        if not reads:
            call.done([], None)
        combined = CombinedAnswer(len(reads), call.done)
        for index, read in enumerate(reads):
            self._submit_or_tell(read, combined.done_of(index))

    def _submit_or_tell(self, request: Request, done: Done) -> None:
        """As `submit`, but tells `done` what it raises: kazoo's thread has nobody to catch it."""
        try:
            self.submit(request, done)
        except ZkplanError as error:  # ended between two requests of one call
            done(None, error)

    def _send_waiting(self) -> None:
        sent = 0
        with self._lock:
            while self._waiting and self._may_send():
                call = self._waiting.popleft()
                if not call.abandoned:
                    self._send(call)
                    sent += 1
        wake_up(self._client, sent)

    def _state_changed(self, state: str) -> None:
        # On kazoo's connection thread: a blocking call here would deadlock it.
        try:
            is_connected = state == KazooState.CONNECTED
            with self._lock:
                self._is_connected = is_connected
                if is_connected:
                    self._waiting.extendleft(reversed(self._to_repeat))
                    self._to_repeat.clear()
            if is_connected:
                self._send_waiting()
            else:
                forget_wake_ups(self._client)
        except BaseException as met:
            self._note_error(met)
            raise


def _refused(request: Request, error: exceptions.ZookeeperError) -> ZooKeeperError:
    """The error of zkplan for an answer that stays the same however often it is asked for."""
    if isinstance(error, exceptions.AuthFailedError):
        return ZooKeeperError("ZooKeeper refused the credentials")
    if isinstance(error, exceptions.NoAuthError):
        path = error.args[0] if error.args else getattr(request, "path", "it")
        return AccessDenied(path, "read", f"an access list does not let this client read {path}")
    # Not the request itself: it holds the payloads of tasks.
    where = f" for {request.path}" if isinstance(request, ReadData | ReadChildren) else ""
    return ZooKeeperError(
        f"ZooKeeper answered {type(error).__name__} to a {type(request).__name__}{where}"
    )


# ---- Waking kazoo's thread for requests: as its `_call` does, but never blocking or swallowing.
#
# kazoo's thread takes one request from its queue for each byte on a socket pair: a wake-up. A wake-
# up too many is harmless, one too few leaves a request unsent.


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
