"""Wear: a worker ends once too many functions that it has given up hold its threads."""

from __future__ import annotations

from ..log import get_logger
from .shutdown import Shutdown
from .thread_pool import ThreadPool

logger = get_logger("zkplan.worker")
#: How long the other tasks of such a worker have.
WORN_OUT_GRACE_S = 30.0
#: Seconds for which so many must hold their threads: a process or a command takes a while to end.
WORN_AFTER_S = 10.0


class Wear:
    """Looks whether the threads that nothing ends have become too many. Only a new process is rid
    of them."""

    def __init__(self, pool: ThreadPool, shutdown: Shutdown, most: int | None) -> None:
        """`most` is `max_abandoned` of the worker; with None it goes on with fewer slots."""
        self._pool, self._shutdown, self._most = pool, shutdown, most
        self._since = float("inf")
        self.is_worn_out = False

    def look(self, now: float) -> None:
        """Begin to drain if it is so."""
        if self._most is None or self._shutdown.begun:
            return
        self._since = min(self._since, now) if self._pool.abandoned >= self._most else float("inf")
        if now < self._since + WORN_AFTER_S:
            return
        self.is_worn_out = True
        logger.error(
            "%d functions that were given up (timed out, cancelled) have not returned, and hold as "
            "many threads, the limit (max_abandoned): this worker claims nothing more, and ends. "
            "Give the calls that hang a time-out of their own",
            self._most,
        )
        self._shutdown.begin(WORN_OUT_GRACE_S)
