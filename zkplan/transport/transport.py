"""The transport: runs requests and steps on one kazoo client."""

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
from .addresses import ServerAddress
from .kazoo_client import stop, why
from .kazoo_repairs import last_ping
from .packets import Packer
from .request_queue import Call, Done, RequestQueue

T = TypeVar("T")


class Mailbox(Generic[T]):
    """A queue: one thread gets; any thread, and any signal handler, may put.

    Do not use queue.SimpleQueue instead: up to Python 3.12 its `get(timeout=…)` may wait for ever.
    It first takes its lock, which is free in a new queue, then waits for the rest of the time, and
    for ever if the rest is negative. So a worker that started on a busy machine never left its
    first wait. Nor queue.Queue: a signal handler that interrupts a `put` and puts waits for itself.
    """

    __slots__ = ("_bell", "_items")

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        #: Free after a `put`, until the reader waits again.
        self._bell = threading.Lock()
        self._bell.acquire()

    def put(self, item: T) -> None:
        self._items.append(item)  # before the bell, upon which the reader looks here
        try:
            self._bell.release()
        except RuntimeError:
            pass  # it is free already

    def get(self, timeout: float | None = None) -> T:
        """Return the oldest item; wait for one up to `timeout` seconds (None: for ever).

        Raises Empty.
        """
        if self._items:
            return self._items.popleft()
        until = None if timeout is None else time.monotonic() + timeout
        while not self._items:
            # Look again: the bell may be from an item that was taken without a wait.
            if until is None:
                self._bell.acquire()
            elif (left := until - time.monotonic()) <= 0:
                raise Empty
            else:
                self._bell.acquire(timeout=min(left, threading.TIMEOUT_MAX))
        return self._items.popleft()

    def get_nowait(self) -> T:
        """Return the oldest item. Raises Empty."""
        if not self._items:
            raise Empty
        return self._items.popleft()


# ---- Run steps of the protocol: send each request that a step yields, and send back the answer.


def run_step(step: Step[T], send: Callable[[Request], Any], wait: Callable[[Any], Any]) -> T:
    """Run a step to its end in this thread: `wait(send(request))` returns or raises the answer.

    Errors are raised inside the step, and here if it does not catch them.
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
    """Run a step without blocking: `post` lets the loop continue the step after each answer.

    `submit` sends a request; `done` gets the result of the step, or its error.
    """

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
                error = refused  # too large, or closed: the step decides what follows

    def later(answer: Any, error: BaseException | None) -> None:
        post(lambda: resume(answer, error))

    def send_ahead(request: Request) -> AwaitedAnswer:
        awaited = AwaitedAnswer()
        submit(request, lambda *outcome: post(lambda: awaited.set(*outcome)))
        return awaited

    resume(None, None)


@dataclass(slots=True, eq=False)
class AwaitedAnswer:
    """The answer to a request that a step sent ahead. Used only on the loop's thread."""

    outcome: tuple[Any, BaseException | None] | None = None
    #: Called with the answer; None unless the step waits for it.
    resume: Done | None = None

    def set(self, answer: Any, error: BaseException | None) -> None:
        self.outcome = answer, error
        if self.resume is not None:
            self.resume(answer, error)


_Posted = tuple[Mailbox[Any], Call]


class Transport:
    """Runs requests and steps on one kazoo client.

    `run` waits at most `patience_s` seconds for each answer, then raises ZooKeeperUnavailable; with
    None it waits for ever. Thread-safe. Do not use it in a signal handler, which may interrupt a
    thread that holds its lock. In a forked child it raises ClientClosed.
    """

    def __init__(
        self,
        client: KazooClient,
        *,
        owns: bool,
        patience_s: float | None = 30.0,
        logs_in: bool = False,
        server: ServerAddress | None = None,
    ) -> None:
        self.client = client
        #: Whether the client has a login. If so, only that login may use what the client creates.
        self.logs_in = logs_in
        self.patience_s = patience_s
        #: Seals the requests of each step, and opens the answers. None without keys.
        self.guard: Callable[[Step[Any]], Step[Any]] | None = None
        #: Adds events to each transaction of a step, for the history of its plan.
        self.recorder: Callable[[Step[Any]], Step[Any]] | None = None
        #: The error of a callback on kazoo's thread: some caller waits in vain. Ends a worker.
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
        self._ping = last_ping(client)

    @property
    def last_answer(self) -> float:
        """Monotonic time of the last answer to a request or a ping. Long after it, a worker stops
        claiming."""
        return max(self._requests.last_answer, self._ping.answered_at)

    @property
    def has_ended(self) -> bool:
        """Whether kazoo's thread has ended by itself: then no request gets an answer any more."""
        return kazoo_private.thread_has_ended(self.client)

    @property
    def why_silent(self) -> str:
        """Why there is no connection, for the end of a message; empty if unknown."""
        return why(self.client)

    @property
    def session_timeout_s(self) -> float:
        """The requested session time-out in seconds. The server may have granted another one."""
        return kazoo_private.session_timeout_s(self.client)

    @property
    def hosts(self) -> str:
        """The hosts as `connect` takes them. They change if the server of a folder moves."""
        named = ((f"[{host}]" if ":" in host else host, port) for host, port in self.client.hosts)
        return ",".join(f"{host}:{port}" for host, port in named)

    @property
    def server_is_closed(self) -> bool:
        """Whether a closed server of this user, found on this machine, refuses clients without a
        login. Then access lists need not keep outsiders away."""
        return self._server is not None and self._server.is_closed()

    @property
    def reads_batches(self) -> bool:
        """Whether to send many reads in one request: true until the server refuses one."""
        return self._requests.server_reads_batches

    # ---- watches

    def listen(self, listener: Callable[[str | None], None]) -> None:
        """Call `listener(path)` on a thread of kazoo for each watch that fires, and
        `listener(None)` if the connection changed. `listener` must not block."""
        with self._listening:
            self._listeners.append(listener)

    def unlisten(self, listener: Callable[[str | None], None]) -> None:
        with self._listening:
            self._listeners.remove(listener)

    def unwatch(self, paths: Iterable[str]) -> None:
        """Remove the watches on these znodes, without waiting. A later read sets them again."""
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
        """Send a request without waiting. kazoo's thread calls `done(answer, error)`.

        Nothing is sealed: submit only requests without data. Raises PayloadTooLarge before anything
        is sent, ClientClosed after `close`, and ServerRolledBack after `give_up`.
        """
        if self._is_closed or os.getpid() != self._pid:
            raise self._closed()
        return self._requests.submit(request, done)

    def ask(self, request: Request) -> Any:
        """Send a request and wait for its answer. Raises ZooKeeperUnavailable, ZooKeeperError."""
        if self.guard is not None or type(request) is Multi:
            return self.run(ask(request))
        return self._wait(self._post(request), self.patience_s)

    def run(self, step: Step[T], *, for_ever: bool = False) -> T:
        """Run a step to its end in this thread. Raises errors in the step, and here if uncaught.

        With `for_ever`, wait for ZooKeeper without a limit, as a task of a worker does.
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
        """Run a step without blocking: see `start_step`."""
        start_step(self._wrapped(step), self.submit, post, done)

    def _wrapped(self, step: Step[T]) -> Step[T]:
        """Return the step with its requests recorded, then sealed."""
        if self.recorder is not None:
            step = self.recorder(step)
        return step if self.guard is None else self.guard(step)

    def _post(self, request: Request) -> _Posted:
        if type(request) is ReadMany and request.strict is None:
            request = request._replace(strict=True)  # the caller waits for its answer
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
                f"{why(self.client)}; a write under way may or may not be applied; once ZooKeeper "
                "answers, plans go on and can be read again"
            ) from None
        if error is not None:
            raise error
        return answer

    # ---- closing

    def give_up(self, why: str) -> None:
        """Let every request, under way or later, fail with ServerRolledBack."""
        self._requests.end(lambda: ServerRolledBack(why))
        self._stop_once()

    def close(self) -> None:
        """Close the session if this transport opened it. Requests under way get ClientClosed."""
        if self._is_closed:
            return
        self._is_closed = True
        if os.getpid() != self._pid:
            return  # a thread of the parent may hold a lock, and the parent owns the session
        self._requests.end(self._closed)
        if self._owns:
            self._stop_once()

    def _stop_once(self) -> None:
        with self._stopping:  # a second caller waits here, then stops nothing
            if not self._is_stopped:
                self._is_stopped = True
                stop(self.client)

    def _closed(self) -> ClientClosed:
        if os.getpid() != self._pid:
            return ClientClosed(
                "this client belongs to the parent of a forked process; connect anew in the child"
            )
        return ClientClosed(f"the connection to ZooKeeper at {self.hosts} was closed")
