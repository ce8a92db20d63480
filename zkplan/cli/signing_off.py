"""Signs off workers whose processes have died, so that nobody waits until their sessions end."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

from ..client import Client
from ..errors import ZkplanError
from ..protocol.desk import sign_off

logger = logging.getLogger("zkplan.supervisor")


class SigningOff:
    """Does it on a thread of its own, over a connection that lasts as long as there are dead ones.

    Where that fails they are not lost: ZooKeeper ends their sessions after the time-out, as those
    of workers on a machine that died with its supervisor.
    """

    def __init__(self, opened: Callable[[], Client]) -> None:
        self._opened = opened
        self._dead: queue.SimpleQueue[str] = queue.SimpleQueue()
        # A daemon: who tells the supervisor to stop does not wait for ZooKeeper.
        threading.Thread(target=self._serve, daemon=True).start()

    def has_died(self, worker: str) -> None:
        """The process of that worker has ended; it is not waited for that it is signed off."""
        self._dead.put(worker)

    def _serve(self) -> None:
        while True:
            worker = self._dead.get()
            try:
                with self._opened() as client:
                    self._sign_off(client, worker)
                    while not self._dead.empty():
                        worker = self._dead.get()
                        self._sign_off(client, worker)
            except ZkplanError as error:
                logger.warning(
                    "worker %s cannot be signed off, its tasks wait for the end of its session: %s",
                    worker,
                    error,
                )

    @staticmethod
    def _sign_off(client: Client, worker: str) -> None:
        if client.keeper.run(sign_off(client.paths, worker)):
            logger.info("worker %s is signed off: others take its tasks over", worker)
