"""Requests under way: what kazoo calls when an answer is here, and answers that belong together."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

from kazoo.exceptions import EXCEPTIONS, AuthFailedError, NoAuthError, ZookeeperError

from ..errors import ZkplanError, ZooKeeperError
from ..protocol.requests import Request
from .packets import TransactionPacket
from .wire import ReadRefused

if TYPE_CHECKING:
    from .core import Transport

Done = Callable[[Any, BaseException | None], None]


class Call:
    """A request under way: what kazoo calls when the answer is here."""

    __slots__ = ("abandoned", "done", "packet", "request", "stumbles", "told", "transport")

    def __init__(self, transport: Transport, request: Request, packet: Any, done: Done) -> None:
        self.transport = transport
        self.request = request
        self.packet = packet
        self.done = done
        self.abandoned = False
        #: How often a server has answered that it failed at this, and nothing of the request.
        self.stumbles = 0
        #: Whether kazoo has told of its end, since it was sent last.
        self.told = False

    def set(self, value: Any) -> None:
        self.told = True
        try:
            if type(value) is ReadRefused:
                self.transport._failed(self, EXCEPTIONS[value.error](value.path))
                return
            self.transport._answered(
                self, value[0] if type(self.packet) is TransactionPacket else value, None
            )
        except BaseException as met:
            self.transport.broken = met
            raise

    def set_exception(self, error: BaseException) -> None:
        self.told = True
        try:
            self.transport._failed(self, error)
        except BaseException as met:
            self.transport.broken = met
            raise


def vital(step: Callable[[Transport, Any], None]) -> Callable[[Transport, Any], None]:
    """What a thread of kazoo calls, and goes on whatever it raises: the transport is broken
    then."""

    @wraps(step)
    def or_broken(transport: Transport, given: Any) -> None:
        try:
            step(transport, given)
        except BaseException as met:
            transport.broken = met
            raise

    return or_broken


def submit_or_tell(transport: Transport, request: Request, done: Done) -> None:
    """As `Transport.submit`, on a thread of kazoo: what it raises is told to `done`.

    Nobody catches it there. Who waits for the answer without patience would wait for ever.
    """
    try:
        transport.submit(request, done)
    except ZkplanError as refused:  # closed, or of a lost history, between two of its requests
        done(None, refused)


def refused(request: Request, error: ZookeeperError) -> ZooKeeperError:
    """What who asked is told of an answer that asking again does not change."""
    if isinstance(error, AuthFailedError):
        return ZooKeeperError("ZooKeeper refused the credentials")
    if isinstance(error, NoAuthError):
        path = error.args[0] if error.args else getattr(request, "path", "it")
        return ZooKeeperError(
            f"an access list does not let this client read {path}: "
            "connect with the credentials with which the tree was made (`auth_data`)"
        )
    return ZooKeeperError(f"ZooKeeper answered {type(error).__name__}: {request!r:.200}")


def created_meanwhile(call: Call) -> Done:
    """What takes the answer to the `exists` that follows a watching read which found nothing."""
    transport, request, done = call.transport, call.request, call.done

    def found(stat: Any, error: BaseException | None) -> None:
        if error is not None or stat is None:
            done(None, error)
        else:  # created between the two reads
            submit_or_tell(transport, request, done)

    return found


class Promise:
    """The answer to a request that a step of a loop sent ahead. Used on the loop's thread only."""

    __slots__ = ("outcome", "resume")

    def __init__(self) -> None:
        self.outcome: tuple[Any, BaseException | None] | None = None
        self.resume: Done | None = None

    def keep(self, answer: Any, error: BaseException | None) -> None:
        self.outcome = answer, error
        if self.resume is not None:
            self.resume(answer, error)

    def wait(self, resume: Done) -> bool:
        """Whether the answer is here; where not, `resume` is called with it."""
        if self.outcome is None:
            self.resume = resume
        return self.outcome is not None


class Gathered:
    """The answers of several requests as one; `done` is called once, with the last or an error."""

    def __init__(self, count: int, done: Done) -> None:
        self._answers: list[Any] = [None] * count
        self._left = count
        self._done = done
        self._lock = threading.Lock()

    def place(self, index: int) -> Done:
        """What takes the answer of the request at `index`."""

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
