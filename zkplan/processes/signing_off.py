"""Signs off workers whose processes have died, so that nobody waits until their sessions end."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from ..backoff import CHANCE, Backoff
from ..client import Client
from ..protocol.membership import sign_off
from .worker import WorkerProcess

logger = logging.getLogger("zkplan.processes")

_RETRY = Backoff(initial_s=0.2, max_s=5.0)
#: A server that was away gives sessions their whole time-out again: it is tried for so many.
_TIME_OUTS = 2


class SigningOff:
    """Does it on a thread of its own, over a connection that lasts as long as there are dead ones.

    Where ZooKeeper is away it tries again for as long as it matters. Without it nothing is lost:
    ZooKeeper ends the sessions of the dead, as those on a machine that died with its supervisor.
    """

    def __init__(self, opened: Callable[[], Client], session_timeout_s: float) -> None:
        self._opened = opened
        self._matters_s = _TIME_OUTS * session_timeout_s
        self._over = False
        self._changed = threading.Condition()
        #: Who is to be signed off, and since when its process is dead; the oldest first.
        self._dead: dict[str, float] = {}
        # A daemon: at the end of the process nobody waits for ZooKeeper.
        threading.Thread(target=self._serve, daemon=True).start()

    def has_ended(self, process: WorkerProcess) -> None:
        """That process is dead. One that ended with 0 has signed off by itself, or has tried to."""
        if process.exit_code and process.worker:
            self.has_died(process.worker)

    def has_died(self, worker: str) -> None:
        """The process of that worker is dead. Returns at once."""
        with self._changed:
            self._dead[worker] = time.monotonic()
            self._changed.notify_all()

    def finish(self, timeout_s: float) -> None:
        """Wait until all are signed off, or given up, but not for longer than that."""
        with self._changed:
            self._changed.wait_for(lambda: not self._dead, timeout_s)

    def close(self) -> None:
        """Nobody needs to be signed off any more, say because the server ends."""
        with self._changed:
            self._over = True
            self._dead.clear()
            self._changed.notify_all()

    def _serve(self) -> None:
        failures = 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._dead or self._over)
                if self._over:
                    return
            try:
                with self._opened() as client:
                    while worker := self._oldest():
                        if client.transport.run(sign_off(client.paths, worker)):
                            logger.info("worker %s is signed off: others take its tasks", worker)
                        self._forget(worker)
                failures = 0
            except Exception as error:
                # Whatever it was, such as want of memory or threads: the thread has to live on.
                if not failures and not self._over:
                    logger.warning(
                        "worker %s cannot be signed off yet; its tasks wait for that, or for the "
                        "end of its session: %s",
                        self._oldest(),
                        error,
                    )
                self._pause(_RETRY.delay_s(failures, CHANCE.random()))
                failures += 1

    def _oldest(self) -> str:
        with self._changed:
            return next(iter(self._dead), "")

    def _forget(self, worker: str) -> None:
        with self._changed:
            self._dead.pop(worker, None)
            self._changed.notify_all()

    def _pause(self, seconds: float) -> None:
        """Leave ZooKeeper alone for a while; give up those whose sessions have ended by then."""
        until = time.monotonic() + seconds
        with self._changed:
            while (left := until - time.monotonic()) > 0:
                self._changed.wait(left)
            for worker, since in list(self._dead.items()):
                if until - since > self._matters_s:
                    del self._dead[worker]
            self._changed.notify_all()
