"""Runs requests and steps of the protocol on a kazoo client.

What kazoo leaves to its users is done here. A refused transaction is an answer (kazoo swallows it).
A transaction whose answer was lost is sent again, identically, until a server answers: only that
decides it, because a plain read after a reconnect may not see a write that still comes. Requests
reach the server in the order in which they were submitted, also those that are sent again: a read
sent behind a write never overtakes it. Requests under way are bounded.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from kazoo import exceptions
from kazoo.client import KazooClient, KazooState
from kazoo.protocol.serialization import Exists
from kazoo.security import OPEN_ACL_UNSAFE

from ..errors import (
    ClientClosed,
    ServerRolledBack,
    ZkplanError,
    ZooKeeperError,
    ZooKeeperUnavailable,
)
from ..protocol.requests import (
    Await,
    Multi,
    ReadChildren,
    ReadData,
    ReadMany,
    Request,
    Send,
    Step,
    Ticket,
)
from . import wire
from .calls import Call, Done, Gathered, Promise, created_meanwhile, refused, submit_or_tell, vital
from .complaints import why
from .kazoo_client import stop
from .mailbox import Empty, Mailbox
from .packets import ChildrenPacket, DataPacket, TransactionPacket
from .sending import forget_wake_ups, wake_up

T = TypeVar("T")

#: Requests under way per client. The socket pair that wakes kazoo up takes 278 bytes.
IN_FLIGHT_MAX = 100
_LOST = (exceptions.ConnectionLoss, exceptions.ConnectionClosedError)
_AMBIGUOUS = (*_LOST, exceptions.SessionExpiredError)


class Transport:
    """Runs requests and steps on one kazoo client.

    `patience_s` bounds how long `run` waits for one answer before ZooKeeperUnavailable; None waits
    for ever. Thread-safe, but not for handlers of signals, which may interrupt a request of the
    same thread: that one goes on when they have returned. In a forked child it raises ClientClosed.
    """

    def __init__(self, client: KazooClient, *, owns: bool, patience_s: float | None = 30.0) -> None:
        self.client = client
        self.patience_s = patience_s
        #: Monotonic time of the last answer; a worker stops claiming when it grows old.
        self.last_answer = time.monotonic()
        #: What a thread of kazoo met while it told: somebody waits in vain. A worker ends by it.
        self.broken: BaseException | None = None
        self._owns = owns
        self._pid = os.getpid()
        self._acl = wire.pack_acl(client.default_acl or OPEN_ACL_UNSAFE)
        self._lock = threading.Lock()
        self._outbox: deque[Call] = deque()
        self._again: list[Call] = []
        self._flying = 0
        self._connected = self._closed = self._is_stopped = False
        self._lost = ""
        self._stopping = threading.Lock()
        self._multi_read = True
        self._listeners: list[Callable[[str | None], None]] = []
        client.add_listener(self._state_changed)
        # After the listener, so that a connection made in between is not missed.
        with self._lock:
            self._connected = client.connected

    @property
    def session_timeout_s(self) -> float:
        """The time-out in seconds that was asked for; the server may have granted another."""
        return float(self.client._session_timeout) / 1000.0

    @property
    def hosts(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.client.hosts)

    def listen(self, listener: Callable[[str | None], None]) -> None:
        """Call `listener(path)`, on a thread of kazoo, for every watch that fires.

        None: the connection changed. It must not block."""
        with self._lock:
            self._listeners.append(listener)

    def unlisten(self, listener: Callable[[str | None], None]) -> None:
        with self._lock:
            self._listeners.remove(listener)

    # ---- asking

    def submit(self, request: Request, done: Done) -> Call:
        """Send without waiting; `done(answer, error)` is called on kazoo's thread.

        Raises PayloadTooLarge before anything is sent, ClientClosed after `close`,
        ServerRolledBack.
        """
        if self._closed or os.getpid() != self._pid:
            raise ClientClosed(self._why_closed())
        call = Call(self, request, self._pack(request), done)
        if type(request) is ReadMany and not self._multi_read:
            self._pipeline(call)
            return call
        try:
            with self._lock:
                ended = self._end()
                if ended is not None:
                    raise ended
                if self._outbox or not self._may_send():
                    self._outbox.append(call)
                    return call
                self._send(call)
            wake_up(self.client, 1)
        except BaseException:
            # A signal's handler may have raised: whether the first one was sent is unknown.
            wake_up(self.client, 1)
            raise
        return call

    def ask(self, request: Request) -> Any:
        """Send one request and wait for its answer; raises ZooKeeperUnavailable, ZooKeeperError."""
        return self._await(self._post(request), self.patience_s)

    def run(self, step: Step[T], *, for_ever: bool = False) -> T:
        """Run a step to its end in this thread; errors are raised inside it, then to the caller.

        `for_ever`: wait for ZooKeeper as long as it takes, as a task of a worker does.
        """
        patience_s = None if for_ever else self.patience_s
        answer: Any = None
        failure: BaseException | None = None
        while True:
            try:
                request = step.send(answer) if failure is None else step.throw(failure)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            answer, failure = None, None
            try:
                if type(request) is Send:
                    answer = Ticket(self._post(request.request))
                elif type(request) is Await:
                    answer = self._await(request.ticket.slot, patience_s)
                else:
                    answer = self._await(self._post(request), patience_s)
            except Exception as error:
                failure = error

    def start(
        self,
        step: Step[T],
        post: Callable[[Callable[[], None]], None],
        done: Callable[[T | None, BaseException | None], None],
    ) -> None:
        """Run a step in the background of a loop: what `post` schedules takes up each answer."""

        def resume(answer: Any, error: BaseException | None) -> None:
            while True:
                try:
                    request = step.send(answer) if error is None else step.throw(error)
                except StopIteration as stop:
                    return done(stop.value, None)
                except BaseException as failure:
                    return done(None, failure)
                answer = error = None
                try:
                    if type(request) is Send:
                        answer = Ticket(self._send_ahead(request.request, post))
                    elif type(request) is Await:
                        if not request.ticket.slot.wait(resume):
                            return None
                        answer, error = request.ticket.slot.outcome
                    else:
                        self.submit(request, later)
                        return None
                except ZkplanError as refused:
                    error = refused  # too large or closed: the step decides

        def later(answer: Any, error: BaseException | None) -> None:
            post(lambda: resume(answer, error))

        resume(None, None)

    def _send_ahead(self, request: Request, post: Callable[[Callable[[], None]], None]) -> Promise:
        promise = Promise()
        self.submit(request, lambda answer, error: post(lambda: promise.keep(answer, error)))
        return promise

    def _post(self, request: Request) -> tuple[Mailbox[Any], Call]:
        box: Mailbox[Any] = Mailbox()
        return box, self.submit(request, lambda answer, error: box.put((answer, error)))

    def _await(self, posted: tuple[Mailbox[Any], Call], patience_s: float | None) -> Any:
        box, call = posted
        try:
            answer, error = box.get(timeout=patience_s)
        except Empty:
            call.abandoned = True
            raise ZooKeeperUnavailable(
                f"no answer from ZooKeeper at {self.hosts} for {patience_s:g} s (`patience`)"
                f"{why(self.client)}; a write that was under way may or may not be applied; once "
                "it answers, plans go on and can be asked again"
            ) from None
        if error is not None:
            raise error
        return answer

    def _pack(self, request: Request) -> Any:
        prefix = self.client.chroot
        if type(request) is Multi:
            return TransactionPacket(request.ops, prefix, self._acl)
        if type(request) is ReadMany:
            return wire.ReadManyPacket(request, prefix) if self._multi_read else None
        if type(request) is ReadChildren:
            return ChildrenPacket(prefix + request.path, self._watched if request.watch else None)
        if type(request) is ReadData:
            return DataPacket(prefix + request.path, self._watched if request.watch else None)
        raise ZooKeeperError(f"{request!r} can only be used inside a step that is run")

    # ---- on kazoo's threads

    def _answered(self, call: Call, value: Any, error: BaseException | None) -> None:
        self.last_answer = time.monotonic()
        with self._lock:
            self._flying -= 1
        call.done(value, error)
        if self._outbox:
            self._flush()

    def _failed(self, call: Call, error: BaseException) -> None:
        if isinstance(error, exceptions.NoNodeError):
            asked = call.request
            if type(asked) is ReadData and asked.watch and type(call.packet) is DataPacket:
                # The watch of a read that found nothing is not armed; that of an `exists` is.
                call.packet = Exists(call.packet.path, self._watched)
                call.done = created_meanwhile(call)
                with self._lock:
                    self._flying -= 1
                    self._send(call)
                wake_up(self.client, 1)
                return
            self._answered(call, None, None)
        elif self._lost:
            self._answered(call, None, ServerRolledBack(self._lost))
        elif isinstance(error, exceptions.UnimplementedError) and type(call.request) is ReadMany:
            self._multi_read = False
            with self._lock:
                self._flying -= 1
            self._pipeline(call)
            self._flush()
        elif isinstance(error, _AMBIGUOUS):
            self._repeat_later(call, isinstance(error, exceptions.ConnectionLoss))
        elif isinstance(error, exceptions.ZookeeperError):
            self._answered(call, None, refused(call.request, error))
        else:
            self._answered(call, None, error)

    def _repeat_later(self, call: Call, connection_lost: bool) -> None:
        with self._lock:
            self._flying -= 1
            if connection_lost:
                # kazoo says so by its state only after it has failed all that was under way. A
                # request handed over in between would be sent before those that wait here.
                self._connected = False
            if type(call.packet) is TransactionPacket:
                call.packet.repeated = True
            # Once more: what waited may have been ended meanwhile, and this would wait for ever.
            ended = self._end()
            if ended is None and not call.abandoned:
                self._again.append(call)
        if ended is not None:
            call.done(None, ended)

    def _end(self) -> ZooKeeperError | None:
        """What ends every request, once there is such a thing."""
        if self._lost:
            return ServerRolledBack(self._lost)
        return ClientClosed(self._why_closed()) if self._closed else None

    def _may_send(self) -> bool:
        return self._connected and not self._closed and self._flying < IN_FLIGHT_MAX

    def _send(self, call: Call) -> None:
        """Put a call into kazoo's queue. Called with the lock; a wake-up follows, without it.

        Between the look at the connection and the queue nothing may come, neither the loss of the
        connection nor another request. kazoo fails what is in its queue, and takes another one,
        only after it has told of a loss: so each call is sent or failed. A wake-up lets other
        threads go on, and takes as long as they do: with the lock, kazoo's own would wait for it,
        and a signal would most often come then.
        """
        call.told = False
        self.client._queue.append((call.packet, call))
        # Behind it: what a signal's handler raises here leaves the count too low, never too high.
        self._flying += 1

    def _pipeline(self, call: Call) -> None:
        """A batch of reads for a server that knows none: each is sent and counted for itself."""
        reads = call.request.reads  # type: ignore[union-attr]
        if not reads:
            call.done([], None)
        gathered = Gathered(len(reads), call.done)
        for index, read in enumerate(reads):
            submit_or_tell(self, read, gathered.place(index))

    def _flush(self) -> None:
        sent = 0
        with self._lock:
            while self._outbox and self._may_send():
                call = self._outbox.popleft()
                if not call.abandoned:
                    self._send(call)
                    sent += 1
        wake_up(self.client, sent)

    @vital
    def _state_changed(self, state: str) -> None:
        # On kazoo's connection thread: a blocking call here would deadlock it.
        connected = state == KazooState.CONNECTED
        with self._lock:
            self._connected = connected
            if connected:
                self._outbox.extendleft(reversed(self._again))
                self._again.clear()
        if connected:
            self._flush()
        else:
            forget_wake_ups(self.client)

    @vital
    def _watched(self, event: Any) -> None:
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            listener(event.path)

    # ---- closing

    def give_up(self, why: str) -> None:
        """End every request, under way and to come, by ServerRolledBack."""
        with self._lock:
            self._lost = why
        self._end_waiting(lambda: ServerRolledBack(why))
        self._stop_once()  # what was under way fails, and is told the same

    def _stop_once(self) -> None:
        with self._stopping:  # the second waits, and does not close what the first has left
            if not self._is_stopped:
                self._is_stopped = True
                stop(self.client)

    def _end_waiting(self, error: Callable[[], ZooKeeperError]) -> None:
        # Each with an error of its own: who adds tasks writes into it how many were added.
        with self._lock:
            calls, self._again = [*self._again, *self._outbox], []
            self._outbox.clear()
        for call in calls:
            call.done(None, error())

    def _why_closed(self) -> str:
        if os.getpid() != self._pid:
            return (
                "this client belongs to the parent of a forked process; connect anew in the child"
            )
        return f"the connection to ZooKeeper at {self.hosts} was closed"

    def close(self) -> None:
        """Close the session if this transport opened it; requests under way end with
        ClientClosed."""
        if self._closed:
            return
        if os.getpid() != self._pid:
            # A thread of the parent may have held the lock at the fork, and what waits is its own.
            self._closed = True
            return
        with self._lock:  # what was handed over before is ended by kazoo, nothing comes after
            self._closed = True
        self.client.remove_listener(self._state_changed)
        if self._owns and os.getpid() == self._pid:
            self._stop_once()
        self._end_waiting(lambda: ClientClosed(self._why_closed()))
