"""A worker: threads that claim and run the tasks of every ready plan under a root."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from .backoff import Backoff
from .errors import ZkplanError
from .plan_within import PlanWithin
from .runtime.loop import Loop
from .runtime.statistics import Statistics

if TYPE_CHECKING:
    from collections.abc import Callable

    from .client import Client

#: Slots of one worker; tasks that compute hold the interpreter's lock, so processes scale, threads
#: wait.
THREADS_DEFAULT = 8
THREADS_MAX = 500


class Worker:
    """Claims tasks of all ready plans and runs them on `threads` threads.

    `backoff` says how often an idle worker looks for work that no watch announced. One worker runs
    once; it uses the client's connection and must have one of its own. Not needed to be told of new
    plans: it watches the root.
    """

    def __init__(
        self, client: Client, threads: int = THREADS_DEFAULT, backoff: Backoff | None = None
    ) -> None:
        if type(threads) is not int or not 1 <= threads <= THREADS_MAX:
            raise ZkplanError(f"threads must be 1 to {THREADS_MAX}, not {threads!r}")
        self.client = client
        self._loop = Loop(
            client.transport,
            client.codec,
            client.paths,
            threads,
            backoff or Backoff(initial_s=0.5, max_s=5.0),
            lambda job: PlanWithin(client, job.claim.plan_path, job.plan, job.claim.task, job.adds),
        )
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    @property
    def id(self) -> str:
        """The ID under which it registers (a suffix is added after a lost session)."""
        return self._loop.membership.worker

    def on_ready(self, callback: Callable[[str], None]) -> None:
        """Call `callback(id)` each time the worker is registered."""
        self._loop.ready = callback

    def statistics(self) -> Statistics:
        """What it did since its start: a snapshot, which does not change any more."""
        return self._loop.counters.snapshot()

    def run(self) -> None:
        """Work until `stop`; raises what broke the worker."""
        self.client.prepare()
        self._loop.run()

    def start(self) -> Worker:
        """Work on a thread of its own; gives itself."""
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
        """Drain: claim nothing more, give running tasks `grace` seconds, hand back the others.

        A hand-back costs no attempt. With `start`, waits for the end and raises what broke the
        worker; with `run` (from another thread or a signal handler) it returns at once.
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
