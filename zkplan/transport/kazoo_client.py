"""Make and stop kazoo clients that read and write faster, and tell why they have no connection."""

from __future__ import annotations

import _thread
import atexit
import logging
import select
import ssl
import threading
from collections.abc import Sequence
from io import BytesIO
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionDropped
from kazoo.handlers.threading import SequentialThreadingHandler

from ..backoff import CHANCE
from ..basics.log import get_logger, without_values
from .kazoo_private import LoopStep, draw_from, session_timeout_s, socket_of, wrap

#: kazoo's log about connections. zkplan itself reports what a user must know. Without the
#: NullHandler, Python would print kazoo's warnings in programs that never set up logging.
logger = get_logger("zkplan.kazoo")
logger.addHandler(logging.NullHandler())

#: In a stop, kazoo waits for the end of its connection at most this long or for the session
#: time-out. The whole stop may take a little longer.
_STOP_S, _STOP_MORE_S = 10.0, 5.0


class Draws:
    """The functions of `random` that kazoo calls, drawn from CHANCE. kazoo draws with each answer,
    and `Random.randint` is slow, because it gives all numbers exactly the same chance."""

    shuffle, uniform = CHANCE.shuffle, CHANCE.uniform

    @staticmethod
    def randint(low: int, high: int) -> int:
        return low + int((high - low + 1) * CHANCE.random())


draw_from(Draws)


class Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threads, with a cheaper wait.

    kazoo makes, fills and closes an epoll for each wait, about five times in each round trip.
    Making a poll object needs no system call: a task of a chain takes a fifth less time.
    """

    def select(
        self, rlist: Sequence[Any], wlist: Sequence[Any], xlist: Sequence[Any], timeout: Any = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        poller = select.poll()
        for item in rlist:
            poller.register(item, select.POLLIN)
        for item in wlist:
            poller.register(item, select.POLLOUT)
        ready = dict(poller.poll(None if timeout is None else timeout * 1000))
        # A hang-up or an error counts as ready, so that kazoo's next call finds it.
        readable = [item for item in rlist if item.fileno() in ready]
        return readable, [item for item in wlist if item.fileno() in ready], []


def make_client(
    hosts: str, session_timeout_s: float, options: dict[str, Any], logger: Any = logger
) -> KazooClient:
    """Return a client that is not started. Raises ValueError for malformed hosts."""
    handler = {"handler": Handler()} if hasattr(select, "poll") else {}
    logs_to = {"logger": ComplaintLogger(logger, {})}
    client = KazooClient(hosts, timeout=session_timeout_s, **{**handler, **options, **logs_to})
    read_and_write_at_once(client)
    return client


def stop(client: KazooClient) -> None:
    """Stop and close `client`, but do not wait for ever for a thread that has ended with an error.

    A thread of kazoo that ended for lack of memory may have left the lock of a queue held, or seem
    alive. A process that waits for such a thread would neither work nor end. Without a close
    request the session ends after its time-out.
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

    # Not threading.Thread: if memory is short, the new thread may end at once, and `Thread.start`
    # would wait for it for ever.
    try:
        _thread.start_new_thread(stop_and_close, ())
    except (RuntimeError, MemoryError):
        stop_and_close()  # no new thread is possible: stop here, without a limit
    within_s = max(_STOP_S, session_timeout_s(client)) + _STOP_MORE_S
    if not stopped.acquire(timeout=within_s):
        logger.warning("could not close the connection within %g s: it stays open", within_s)
        # Otherwise the end of the process would wait for the connection.
        atexit.unregister(client.handler.stop)
    if errors:
        raise errors[0]


# ---- Reads and writes of kazoo's thread that poll only if the socket is not ready.
#
# kazoo polls before each read and each write whether the socket is ready. The socket nearly always
# is: an answer that has begun is there as a whole, and a request finds room. These polls were three
# of the five in each round trip.


#: The maximum of one read: `recv` allocates memory for all of it first.
_PIECE_BYTES = 1 << 18
_WANTS_READ = (BlockingIOError, ssl.SSLWantReadError)


class _SocketErrors:
    """Raises ConnectionDropped for an OSError. kazoo makes a generator for that in each read and
    write; this has no state, so all share one object."""

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, OSError):
            raise _broken(error)


def _broken(error: OSError) -> ConnectionDropped:
    return ConnectionDropped(f"socket connection error: {error.strerror}")


_SOCKET_ERRORS = _SocketErrors()


def read_and_write_at_once(client: KazooClient) -> None:
    """Replace the reads and writes of a client that is not started."""
    handler = client.handler

    def wait(timeout: float, *, to_read: bool, what: str) -> None:
        sockets = [socket_of(client)]
        try:
            ready = handler.select(*((sockets, []) if to_read else ([], sockets)), [], timeout)
        except OSError as error:
            raise _broken(error) from error
        if not any(ready):
            raise handler.timeout_exception(f"socket time-out during {what}")

    def read(length: int, timeout: float) -> bytes:
        # With BytesIO a long listing is in memory once, without its pieces and without a copy.
        whole = BytesIO()
        while length > 0:
            try:
                chunk = socket_of(client).recv(min(length, _PIECE_BYTES))
            except _WANTS_READ:
                wait(timeout, to_read=True, what="read")
                continue
            except ssl.SSLWantWriteError:
                wait(timeout, to_read=False, what="read")
                continue
            except OSError as error:
                raise _broken(error) from error
            if not chunk:
                raise ConnectionDropped("socket connection broken")
            length -= len(chunk)
            if not length and not whole.tell():
                return chunk
            whole.write(chunk)
        return whole.getvalue()

    def write(message: bytes, timeout: float) -> None:
        left = memoryview(message)
        while left:
            try:
                sent = socket_of(client).send(left)
            except ssl.SSLWantReadError:
                wait(timeout, to_read=True, what="write")
                continue
            except (BlockingIOError, ssl.SSLWantWriteError):
                wait(timeout, to_read=False, what="write")
                continue
            except OSError as error:
                raise _broken(error) from error
            if not sent:
                raise ConnectionDropped("socket connection broken")
            left = left[sent:]

    def instead(function: Any) -> Any:
        return lambda _: function

    wrap(client, LoopStep.SOCKET_ERRORS, instead(lambda: _SOCKET_ERRORS))
    wrap(client, LoopStep.READ, instead(read))
    wrap(client, LoopStep.WRITE, instead(write))


# ---- Why there is no connection, as only kazoo's log tells.
#
# For example a refused connection, a host name without an address, or an expired certificate.


#: Warnings that give no reason: kazoo gives up because it is closed, or tries again.
_EMPTY = ("Failed connecting", "Transition to CONNECTING")


class ComplaintLogger(logging.LoggerAdapter):  # type: ignore[type-arg]
    """Passes on what kazoo logs, and keeps its last warning while there is no connection.

    Below INFO kazoo logs requests and answers with their content: logins, and the pickles of all
    arguments. This adapter passes on only their types, even to a logger of the user.
    """

    complaint = ""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        if level < logging.INFO:
            if not self.logger.isEnabledFor(level):  # about fifteen lines for each round trip
                return
            args = tuple(map(without_values, args))
        super().log(level, msg, *args, **kwargs)
        if level >= logging.WARNING and not str(msg).startswith(_EMPTY):
            text = str(msg) % args if args else str(msg)
            if not (self.complaint and text.endswith(": None")):  # the one before tells more
                self.complaint = text
        elif str(msg).startswith("Zookeeper connection established"):
            self.complaint = ""


def why(client: KazooClient) -> str:
    """Why `client` is not connected, as " (reason)"; empty if unknown."""
    logger = client.logger
    complaint = logger.complaint if isinstance(logger, ComplaintLogger) else ""
    return f" ({complaint})" if complaint else ""
