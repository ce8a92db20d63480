"""A worker: threads that claim and run the tasks of every ready plan under a root."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from .backoff import Backoff
from .errors import ZkplanError
from .protection.keys import names_of
from .runtime.loop import Loop
from .runtime.plan_within import PlanWithin
from .runtime.statistics import Statistics

if TYPE_CHECKING:
    from collections.abc import Callable

    from .client import Client

#: The most slots that one worker may have. Tasks that compute hold the interpreter lock, so for
#: those use more processes, not more threads.
THREADS_DEFAULT = 8
THREADS_MAX = 500


class Worker:
    """Claims tasks of all ready plans and runs them on `threads` threads.

    A worker watches the index of active plans, so nobody has to tell it of new ones. `backoff` says
    how often an idle worker looks for work that no watch has announced. A worker runs only once. It
    must have a client of its own.
    """

    def __init__(
        self, client: Client, threads: int = THREADS_DEFAULT, backoff: Backoff | None = None
    ) -> None:
        if type(threads) is not int or not 1 <= threads <= THREADS_MAX:
            raise ZkplanError(f"threads must be 1 to {THREADS_MAX}, not {threads!r}")
        self.client = client
        self._loop = Loop(
            client.transport,
            client.values.for_worker(),
            client.paths,
            threads,
            names_of(client.keys),
            backoff or Backoff(initial_s=0.5, max_s=5.0),
            lambda job: PlanWithin(client, job.claim.plan_path, job.plan, job.claim.task, job.adds),
            client.sweeper.plan_is_done,
        )
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    @property
    def id(self) -> str:
        """The ID under which the worker registers. After a lost session it gets a suffix."""
        return self._loop.membership.worker

    def on_ready(self, callback: Callable[[str], None]) -> None:
        """Call `callback(id)` each time the worker is registered."""
        self._loop.ready = callback

    def statistics(self) -> Statistics:
        """What the worker has done since its start, as a snapshot."""
        return self._loop.counters.snapshot()

    def run(self) -> None:
        """Run tasks until `stop` is called. Raises the error that ended the worker, if one did."""
        self.client.prepare()
        self._loop.run()

    def start(self) -> Worker:
        """Run tasks on a thread of its own. Returns the worker."""
        if self._thread is not None:
            raise ZkplanError("this worker was started already; make a new one")
        self._thread = threading.Thread(target=self._run, name="zkplan-worker", daemon=True)
        self._thread.start()
        return self

    def _run(self) -> None:
        try:
            self.run()
        except BaseException as error:
            self._failure = error

    def stop(self, grace: float = 30.0) -> None:
        """Drain the worker: it claims nothing more, and running tasks have `grace` seconds to end.

        It hands back the others, which costs them no attempt. After `start`, this waits until the
        worker has ended, and raises the error that ended it, if one did. After `run` (call it from
        another thread or a signal handler) it returns at once.
        """
        self._loop.stop(grace)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
            if self._failure is not None:
                raise self._failure

    def __enter__(self) -> Worker:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
