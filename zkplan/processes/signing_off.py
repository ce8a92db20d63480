"""Sign off workers whose processes have died, so that nobody waits until their sessions end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from ..backoff import CHANCE, Backoff
from ..client import Client
from ..log import get_logger
from ..protocol.membership import sign_off
from .worker import WorkerProcess

logger = get_logger("zkplan.processes")

_RETRY = Backoff(initial_s=0.2, max_s=5.0)
#: A server that was away gives sessions their whole time-out again, so try for this many time-outs.
_TIME_OUTS = 2


class SigningOff:
    """Signs off workers on a thread of its own, over a connection that is open only while needed.

    If ZooKeeper does not answer, it tries again until the sessions have ended anyway. Without it
    nothing is lost: ZooKeeper ends the sessions of dead workers, as it does when a whole machine
    dies.
    """

    def __init__(self, opened: Callable[[], Client], session_timeout_s: float) -> None:
        self._opened = opened
        self._matters_s = _TIME_OUTS * session_timeout_s
        self._over = False
        self._changed = threading.Condition()
        #: The workers to sign off, and when each process died; oldest first.
        self._dead: dict[str, float] = {}
        # A daemon thread, so that the end of this process does not wait for ZooKeeper.
        threading.Thread(target=self._serve, daemon=True).start()

    def has_ended(self, process: WorkerProcess) -> None:
        """Note that the process is dead. If it ended with 0, it has signed off by itself, or has
        tried to."""
        if process.exit_code and process.worker:
            self.has_died(process.worker)

    def has_died(self, worker: str) -> None:
        """Note that the process of that worker is dead. Returns at once."""
        with self._changed:
            self._dead[worker] = time.monotonic()
            self._changed.notify_all()

    def finish(self, timeout_s: float) -> None:
        """Wait until all are signed off or given up, but not longer than this."""
        with self._changed:
            self._changed.wait_for(lambda: not self._dead, timeout_s)

    def close(self) -> None:
        """Stop signing off, for example because the server ends."""
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
                            logger.info(
                                "worker %s is signed off: others take over its tasks", worker
                            )
                        self._forget(worker)
                failures = 0
            except Exception as error:
                # Whatever the error was, such as a lack of memory or threads, this thread must go
                # on.
                if not failures and not self._over:
                    logger.warning(
                        "worker %s cannot be signed off yet; its tasks wait until it is, or until "
                        "its session ends: %s",
                        self._oldest(),
                        error,
                    )
                time.sleep(_RETRY.delay_s(failures, CHANCE.random()))
                failures += 1
                self._give_up_the_ended()

    def _oldest(self) -> str:
        with self._changed:
            return next(iter(self._dead), "")

    def _forget(self, worker: str) -> None:
        with self._changed:
            self._dead.pop(worker, None)
            self._changed.notify_all()

    def _give_up_the_ended(self) -> None:
        """Give up the workers whose sessions have ended."""
        began = time.monotonic() - self._matters_s
        with self._changed:
            self._dead = {worker: at for worker, at in self._dead.items() if at >= began}
            self._changed.notify_all()
