"""The transport: what the rest of zkplan asks of ZooKeeper, over one kazoo client."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from queue import Empty
from typing import Any, Generic, TypeVar

from kazoo.client import KazooClient

from ..errors import ClientClosed, ServerRolledBack, ZkplanError, ZooKeeperUnavailable
from ..protocol.requests import Await, Multi, ReadMany, Request, Send, Step, Ticket, Unwatch
from ..protocol.transactions import ask
from . import kazoo_private
from .address_lease import Lease
from .kazoo_client import stop, why
from .packets import Packer
from .request_queue import Call, Done, RequestQueue

T = TypeVar("T")


class Mailbox(Generic[T]):
    """Any thread may put, and a signal's handler; one thread gets.

    Not queue.SimpleQueue: up to Python 3.12 its `get(timeout=…)` may wait for ever. Where the queue
    is new, or its last item was taken without a wait, its lock is free. `get` takes the lock first,
    then counts what is left of the time, and the lock takes a negative rest for "for ever". So a
    worker that was started on a busy machine never came out of its first wait. Nor queue.Queue: a
    handler that interrupts a `put` of its own thread, and puts, waits for itself.
    """

    __slots__ = ("_bell", "_items")

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        #: Free: something was put since the reader last waited.
        self._bell = threading.Lock()
        self._bell.acquire()

    def put(self, item: T) -> None:
        self._items.append(item)  # before the bell: the reader looks here when it rings
        try:
            self._bell.release()
        except RuntimeError:
            pass  # it is ringing already

    def get(self, timeout: float | None = None) -> T:
        """The oldest item; waits for one up to `timeout` seconds, None: for ever.

        Raises Empty when the time is over.
        """
        if self._items:
            return self._items.popleft()
        until = None if timeout is None else time.monotonic() + timeout
        while not self._items:
            # The bell may have rung for an item that was taken without a wait: look again.
            if until is None:
                self._bell.acquire()
            elif (left := until - time.monotonic()) <= 0:
                raise Empty
            else:
                self._bell.acquire(timeout=min(left, threading.TIMEOUT_MAX))
        return self._items.popleft()

    def get_nowait(self) -> T:
        """The oldest item; raises Empty where there is none."""
        if not self._items:
            raise Empty
        return self._items.popleft()


# ---- Runs steps of the protocol: each request that a step yields is sent, and the step its
# answer.


def run_step(step: Step[T], send: Callable[[Request], Any], wait: Callable[[Any], Any]) -> T:
    """Run a step to its end in this thread: `wait(send(request))` gives or raises the answer.

    Errors are raised inside the step; what it does not catch is raised here.
    """
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
                answer = Ticket(send(request.request))
            elif type(request) is Await:
                answer = wait(request.ticket.slot)
            else:
                answer = wait(send(request))
        except Exception as error:
            failure = error


def start_step(
    step: Step[T],
    submit: Callable[[Request, Done], Any],
    post: Callable[[Callable[[], None]], None],
    done: Callable[[T | None, BaseException | None], None],
) -> None:
    """Run a step in the background of a loop: `post` has the loop go on with each answer."""

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
                    answer = Ticket(send_ahead(request.request))
                elif type(request) is Await:
                    awaited: AwaitedAnswer = request.ticket.slot
                    if awaited.outcome is None:
                        awaited.resume = resume
                        return None
                    answer, error = awaited.outcome
                else:
                    submit(request, later)
                    return None
            except ZkplanError as refused:
                error = refused  # too large or closed: the step decides

    def later(answer: Any, error: BaseException | None) -> None:
        post(lambda: resume(answer, error))

    def send_ahead(request: Request) -> AwaitedAnswer:
        awaited = AwaitedAnswer()
        submit(request, lambda *outcome: post(lambda: awaited.set(*outcome)))
        return awaited

    resume(None, None)


@dataclass(slots=True, eq=False)
class AwaitedAnswer:
    """The answer to a request that a step has sent ahead. Used on the loop's thread only."""

    outcome: tuple[Any, BaseException | None] | None = None
    #: Called with the answer, where the step waits for it.
    resume: Done | None = None

    def set(self, answer: Any, error: BaseException | None) -> None:
        self.outcome = answer, error
        if self.resume is not None:
            self.resume(answer, error)


# ---- The transport: what the rest of zkplan asks of ZooKeeper, over one kazoo client.


_Posted = tuple[Mailbox[Any], Call]


class Transport:
    """Runs requests and steps on one kazoo client.

    `patience_s` bounds how long `run` waits for one answer before ZooKeeperUnavailable; None waits
    for ever. Thread-safe. A signal's handler must not use it: it may have interrupted a request of
    its own thread, which holds a lock. In a forked child it raises ClientClosed.
    """

    def __init__(
        self,
        client: KazooClient,
        *,
        owns: bool,
        patience_s: float | None = 30.0,
        logs_in: bool = False,
        server: Lease | None = None,
    ) -> None:
        self.client = client
        #: Whether the user of this client has given it a login. Then what it creates is its own.
        self.logs_in = logs_in
        self.patience_s = patience_s
        #: With keys: what seals the requests of each step, and opens its answers.
        self.guard: Callable[[Step[Any]], Step[Any]] | None = None
        #: What has each transaction of a step tell its history.
        self.recorder: Callable[[Step[Any]], Step[Any]] | None = None
        #: An error in a callback on a thread of kazoo: somebody waits in vain. A worker ends by it.
        self.broken: BaseException | None = None
        self._server = server
        self._owns = owns
        self._pid = os.getpid()
        self._is_closed = self._is_stopped = False
        self._stopping = threading.Lock()
        self._listeners: list[Callable[[str | None], None]] = []
        self._listening = threading.Lock()
        packer = Packer(client, self._watch_fired, logs_in=logs_in)
        self._requests = RequestQueue(client, packer, self._note_error)

    @property
    def last_answer(self) -> float:
        """Monotonic time of the last answer; a worker stops claiming when it grows old."""
        return self._requests.last_answer

    @property
    def session_timeout_s(self) -> float:
        """The time-out in seconds that was asked for; the server may have granted another."""
        return kazoo_private.session_timeout_s(self.client)

    @property
    def hosts(self) -> str:
        """As `connect` takes them; the server of a folder may be at another port than before."""
        named = ((f"[{host}]" if ":" in host else host, port) for host, port in self.client.hosts)
        return ",".join(f"{host}:{port}" for host, port in named)

    @property
    def server_is_closed(self) -> bool:
        """Whether the server refuses all who have no login of its own: its login was found.

        Then access lists keep nobody out who would get in otherwise. Of a server whose login was
        given nobody knows.
        """
        return self._server is not None and self._server.is_closed()

    @property
    def reads_batches(self) -> bool:
        """Whether the server takes many reads in one request, as far as it was asked."""
        return self._requests.server_reads_batches

    # ---- watches

    def listen(self, listener: Callable[[str | None], None]) -> None:
        """Call `listener(path)`, on a thread of kazoo, for every watch that fires.

        None: the connection changed. It must not block."""
        with self._listening:
            self._listeners.append(listener)

    def unlisten(self, listener: Callable[[str | None], None]) -> None:
        with self._listening:
            self._listeners.remove(listener)

    def unwatch(self, paths: Iterable[str]) -> None:
        """Take back the watches on these znodes, without waiting. A look that comes later sets them
        again."""
        for path in paths:
            self.submit(Unwatch(path), lambda answer, error: None)

    def _watch_fired(self, event: Any) -> None:
        try:
            with self._listening:
                listeners = list(self._listeners)
            for listener in listeners:
                listener(event.path)
        except BaseException as met:
            self._note_error(met)
            raise

    def _note_error(self, error: BaseException) -> None:
        self.broken = error

    # ---- asking

    def submit(self, request: Request, done: Done) -> Call:
        """Send without waiting; `done(answer, error)` is called on kazoo's thread.

        The guard does not see it: it is for what reads and writes no data.
        Raises PayloadTooLarge before anything is sent, ClientClosed after `close`,
        ServerRolledBack.
        """
        if self._is_closed or os.getpid() != self._pid:
            raise self._closed()
        return self._requests.submit(request, done)

    def ask(self, request: Request) -> Any:
        """Send one request and wait for its answer; raises ZooKeeperUnavailable, ZooKeeperError."""
        if self.guard is not None or type(request) is Multi:
            return self.run(ask(request))
        return self._wait(self._post(request), self.patience_s)

    def run(self, step: Step[T], *, for_ever: bool = False) -> T:
        """Run a step to its end in this thread; errors are raised inside it, then to the caller.

        `for_ever`: wait for ZooKeeper as long as it takes, as a task of a worker does.
        """
        patience_s = None if for_ever else self.patience_s
        return run_step(
            self._wrapped(step), self._post, lambda posted: self._wait(posted, patience_s)
        )

    def start(
        self,
        step: Step[T],
        post: Callable[[Callable[[], None]], None],
        done: Callable[[T | None, BaseException | None], None],
    ) -> None:
        """Run a step in the background of a loop: `post` has the loop go on with each answer."""
        start_step(self._wrapped(step), self.submit, post, done)

    def _wrapped(self, step: Step[T]) -> Step[T]:
        """The step, as its requests are recorded, and then sealed."""
        if self.recorder is not None:
            step = self.recorder(step)
        return step if self.guard is None else self.guard(step)

    def _post(self, request: Request) -> _Posted:
        if type(request) is ReadMany and request.strict is None:
            request = request._replace(strict=True)  # somebody waits for what it says
        box: Mailbox[Any] = Mailbox()
        return box, self.submit(request, lambda answer, error: box.put((answer, error)))

    def _wait(self, posted: _Posted, patience_s: float | None) -> Any:
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

    # ---- closing

    def give_up(self, why: str) -> None:
        """End every request, under way and to come, by ServerRolledBack."""
        self._requests.end(lambda: ServerRolledBack(why))
        self._stop_once()

    def close(self) -> None:
        """Close the session if this transport opened it. What is under way ends by ClientClosed."""
        if self._is_closed:
            return
        self._is_closed = True
        if os.getpid() != self._pid:
            return  # a thread of the parent may have held a lock at the fork, and the rest is its
        self._requests.end(self._closed)
        if self._owns:
            self._stop_once()

    def _stop_once(self) -> None:
        with self._stopping:  # the second waits, and does not close what the first has left
            if not self._is_stopped:
                self._is_stopped = True
                stop(self.client)

    def _closed(self) -> ClientClosed:
        if os.getpid() != self._pid:
            return ClientClosed(
                "this client belongs to the parent of a forked process; connect anew in the child"
            )
        return ClientClosed(f"the connection to ZooKeeper at {self.hosts} was closed")
