"""The requests of one client, sent in order, and sent again after a lost answer."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
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
    """A request under way. At its end kazoo calls `set` or `set_exception`, which call `ended`."""

    request: Request
    packet: Any
    done: Done
    ended: Callable[[Call, Any, BaseException | None], None]
    #: Whether the caller has given up waiting for the answer.
    abandoned: bool = False
    #: How often a server has answered with a failure of its own, rather than of the request.
    server_failures: int = 0
    #: Whether kazoo has reported the end of the request since it was last sent.
    has_ended: bool = False

    def set(self, value: Any) -> None:
        self.has_ended = True
        self.ended(self, value, None)

    def set_exception(self, error: BaseException) -> None:
        self.has_ended = True
        self.ended(self, None, error)


# ---- The requests of one client: sent in their order, and again if an answer was lost.
#
# A refused transaction has an answer (which kazoo swallows). A transaction whose answer was lost is
# sent again, identically, until a server answers. Only that answer tells whether it was applied: a
# plain read after a reconnect may miss a write that is still to come. Requests reach the server in
# the order of their submission, even when they are sent again: a read never overtakes a write.


#: The maximum of requests under way. The socket pair that wakes kazoo has room for 278 bytes.
IN_FLIGHT_MAX = 100
#: After these errors it is unknown whether a request was executed.
_ANSWER_LOST = (
    exceptions.ConnectionLoss,
    exceptions.ConnectionClosedError,
    exceptions.SessionExpiredError,
)


class RequestQueue:
    """Sends requests over one kazoo client, at most IN_FLIGHT_MAX at a time. Thread-safe.

    `note_error` is called with errors that kazoo's threads meet in this class. The threads go on,
    but a caller may wait in vain.
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
        #: The calls whose answer was lost with the connection. Sent again before `_waiting`.
        self._to_repeat: list[Call] = []
        self._in_flight = 0
        self._is_connected = False
        #: Makes the error of each request after `end`; None before.
        self._final_error: Callable[[], ZooKeeperError] | None = None
        #: True until the server has refused a batch.
        self.server_reads_batches = True
        #: True until the server has refused to remove a watch.
        self._server_unwatches = True
        client.add_listener(self._state_changed)
        # Look after adding the listener, so that a connection made in between is not missed.
        with self._lock:
            self._is_connected = client.connected

    def submit(self, request: Request, done: Done) -> Call:
        """Send a request without waiting. kazoo's thread calls `done`.

        Raises PayloadTooLarge before anything is sent, and after `end` the error given there.
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
            # A signal handler may have raised: it is unknown whether the first wake-up was sent.
            wake_up(self._client, 1)
            raise
        return call

    def _is_to_send(self, request: Unwatch) -> bool:
        path = self._client.chroot + request.path
        return self._server_unwatches and kazoo_private.has_watches(self._client, path)

    def end(self, error: Callable[[], ZooKeeperError]) -> None:
        """Fail all requests that wait now or come later. Only the first call counts.

        Each request gets an error object of its own, because adding tasks notes in the error how
        many were added. Requests under way end with their answer, or when the client is stopped.
        """
        with self._lock:  # kazoo ends the requests sent before; none is sent after
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
        """Put a call into kazoo's queue. The caller has to send a wake-up after releasing the lock.

        Hold the lock from the check of the connection on, so that neither a lost connection nor
        another request comes in between. kazoo replaces its queue only after it has reported a loss
        and failed all requests in it, so each call is sent or fails. A wake-up lets other threads
        run, and takes as long as they do. With the lock held, kazoo's own thread would wait for the
        lock, and most signals would come then.
        """
        call.has_ended = False
        kazoo_private.queue(self._client).append((call.packet, call))
        # Count last: if a signal handler raises here, the count is too low, never too high.
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
            # A new connection has no watches of the old one, so a lost answer does not matter.
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
                # kazoo changes its state only after it has failed all requests under way. A request
                # submitted in between would be sent before the calls in `_to_repeat`.
                self._is_connected = False
            if type(call.packet) is TransactionPacket:
                call.packet.repeated = True
            # After `end`, no one would take this call from `_to_repeat`.
            final_error = self._final_error
            if final_error is None and not call.abandoned:
                self._to_repeat.append(call)
        if final_error is not None:
            call.done(None, final_error())

    def _watch_for_creation(self, call: Call) -> None:
        """Ask with `exists`, which, unlike a read, leaves a watch even if there is no znode."""
        request, done = call.request, call.done

        def asked(stat: Any, error: BaseException | None) -> None:
            if error is not None or stat is None:
                done(None, error)
            else:  # created between the two reads
                self._submit_or_fail(request, done)

        call.packet = self._packer.watch_for_creation(call.packet)
        call.done = asked
        with self._lock:
            self._send(call)
        wake_up(self._client, 1)

    def _read_singly(self, call: Call) -> None:
        """Send each read of a batch by itself, because the server refuses batches."""
        reads = call.request.reads  # type: ignore[union-attr]
        if not reads:
            call.done([], None)
        answers: list[Any] = [None] * len(reads)
        left, lock = len(reads), threading.Lock()

        def take(index: int, answer: Any, error: BaseException | None) -> None:
            nonlocal left
            answers[index] = answer
            with lock:
                if left == 0:
                    return  # another read has failed already
                left = 0 if error is not None else left - 1
                has_ended = left == 0
            if has_ended:
                call.done(answers if error is None else None, error)

        for index, read in enumerate(reads):
            self._submit_or_fail(read, partial(take, index))

    def _submit_or_fail(self, request: Request, done: Done) -> None:
        """Submit, but pass an error to `done`, because kazoo's thread would not catch it."""
        try:
            self.submit(request, done)
        except ZkplanError as error:  # `end` came between two requests of one call
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
    """Return the error for a refusal that would be the same if the request were sent again."""
    if isinstance(error, exceptions.AuthFailedError):
        return ZooKeeperError("ZooKeeper refused the credentials")
    if isinstance(error, exceptions.NoAuthError):
        path = error.args[0] if error.args else getattr(request, "path", "it")
        return AccessDenied(path, "read", f"an access list does not let this client read {path}")
    # Do not show the request itself, which holds the payloads of tasks.
    where = f" for {request.path}" if isinstance(request, ReadData | ReadChildren) else ""
    return ZooKeeperError(
        f"ZooKeeper answered {type(error).__name__} to a {type(request).__name__}{where}"
    )


# ---- Wake kazoo's thread, as kazoo's `_call` does, but without blocking and without lost errors.
#
# kazoo's thread takes one request from its queue for each byte on a socket pair, a wake-up. Too
# many wake-ups are harmless; with too few, a request stays unsent.


_MANY = 4096


def forget_wake_ups(client: KazooClient) -> None:
    """Remove the wake-ups of failed requests. Call this on kazoo's thread after a lost connection.

    kazoo fails the requests in its queue, but leaves their wake-ups. A few connections that are
    lost before anything was sent would fill the socket pair. Then the next wake-up would block its
    sender, perhaps kazoo's own thread, until there is a connection again.
    """
    reader = wake_up_reader(client)
    if reader is None:
        return
    while client.handler.select([reader], [], [], 0)[0] and len(reader.recv(_MANY)) == _MANY:
        pass
    # Other users of the client may have queued requests meanwhile. Count these only now, because a
    # request is in the queue before its wake-up is sent.
    wake_up(client, len(queue(client)))


def wake_up(client: KazooClient, times: int) -> None:
    """Make kazoo send `times` requests from its queue. Never waits for room in the socket pair.

    kazoo's thread, which makes room, may be the caller, or wait for a lock of the caller. kazoo's
    own `_call` has a bare `except`, which swallows the exception of a signal handler (for example
    KeyboardInterrupt) and leaves the request without an answer.
    """
    wake_ups = wake_up_writer(client)
    if wake_ups is None:
        return  # stopped: all requests have failed
    try:
        if wake_ups.gettimeout() is not None:
            # After socket.setdefaulttimeout in the program, sends would wait despite MSG_DONTWAIT.
            wake_ups.settimeout(None)
        for sent in range(times):  # noqa: B007 - read below
            wake_ups.send(b"\0", socket.MSG_DONTWAIT)
    except BlockingIOError:
        # The socket pair is full: other users of the client wait for room, too.
        waiting = threading.Thread(
            target=_wake_up_in_time, args=[wake_ups, times - sent], daemon=True
        )
        waiting.start()
    except OSError:
        # The client was stopped, or a signal handler raised (TimeoutError is an OSError).
        if wake_up_writer(client) is wake_ups:
            raise


def _wake_up_in_time(wake_ups: socket.socket, times: int) -> None:
    with contextlib.suppress(OSError):  # the client was stopped: all requests have failed
        for _ in range(times):
            wake_ups.send(b"\0")
