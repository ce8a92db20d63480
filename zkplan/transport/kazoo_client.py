"""Making and stopping kazoo clients: a cheaper wait, and a stop that ends."""

from __future__ import annotations

import _thread
import atexit
import logging
import select
import threading
from collections.abc import Sequence
from typing import Any

from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler

from ..backoff import CHANCE
from ..log import get_logger
from .complaints import ComplaintLogger
from .kazoo_private import draw_from, session_timeout_s
from .socket_io import read_and_write_at_once

#: What kazoo says about connections; zkplan tells by itself what a user must know. Without a
#: handler, Python would print its warnings in programs that never set up logging.
logger = get_logger("zkplan.kazoo")
logger.addHandler(logging.NullHandler())

#: kazoo itself waits this long for its connection to end, or as long as the session time-out; a
#: stop may take a little longer.
_STOP_S, _STOP_MORE_S = 10.0, 5.0


class Draws:
    """What kazoo draws from CHANCE. It draws with each answer, and `Random.randint` takes its time
    to treat all numbers exactly alike."""

    shuffle, uniform = CHANCE.shuffle, CHANCE.uniform

    @staticmethod
    def randint(low: int, high: int) -> int:
        return low + int((high - low + 1) * CHANCE.random())


draw_from(Draws)


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
        ready = dict(poller.poll(None if timeout is None else timeout * 1000))
        # A hang-up or an error counts as ready, so that kazoo's next call meets it.
        readable = [item for item in rlist if item.fileno() in ready]
        return readable, [item for item in wlist if item.fileno() in ready], []


def make_client(
    hosts: str, session_timeout_s: float, options: dict[str, Any], logger: Any = logger
) -> KazooClient:
    """A client that is not started. Raises ValueError for malformed hosts."""
    handler = {"handler": Handler()} if hasattr(select, "poll") else {}
    told = {"logger": ComplaintLogger(logger, {})}
    client = KazooClient(hosts, timeout=session_timeout_s, **{**handler, **options, **told})
    read_and_write_at_once(client)
    return client


def stop(client: KazooClient) -> None:
    """Stop and close it, but do not wait for ever for a thread that has ended by an error.

    A thread of kazoo that ended for want of memory may have left a queue's lock held, or not be
    seen to have ended. A process that waited for it would neither work nor end. Without its goodbye
    the session ends after its time-out.
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

    # Not a Thread: without memory the new thread may end at once, and `start` would wait for it for
    # ever.
    try:
        _thread.start_new_thread(stop_and_close, ())
    except (RuntimeError, MemoryError):
        stop_and_close()  # this process may have no more threads: here, whatever time it takes
    within_s = max(_STOP_S, session_timeout_s(client)) + _STOP_MORE_S
    if not stopped.acquire(timeout=within_s):
        logger.warning("the connection could not be closed within %g s: it is left open", within_s)
        # The end of the process would wait for it otherwise.
        atexit.unregister(client.handler.stop)
    if errors:
        raise errors[0]
