"""Drain, pause and resume workers from another machine."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..basics.durations import Duration, in_seconds
from ..basics.tracebacks import told_to_caller
from ..connection import Connection
from ..errors import WaitTimeout, WorkerNotFound, ZkplanError
from ..inspection.workers import keys_fit, living_workers
from ..protocol.orders import order
from ..protocol.worker_record import WorkerRecord, WorkerState

#: How often somebody who waits for a worker looks, in seconds.
LOOK_S = 0.2
_NAMED = 10


def find_worker(client: Connection, which: str) -> WorkerRecord:
    """The living worker of that ID, or the only one whose ID begins so. Raises WorkerNotFound."""
    living = living_workers(client)
    found = [each for each in living if each.id == which]
    found = found or [each for each in living if which and each.id.startswith(which)]
    if len(found) == 1:
        return found[0]
    if found:
        told = f"{len(found)} workers have an ID that begins with {which!r}: {_named(found)}"
        raise WorkerNotFound(which, f"{told}; give more of it")
    raise WorkerNotFound(which, f"there is no worker {which!r:.100}; {_there(client, living)}")


def workers_of(client: Connection, host: str) -> list[WorkerRecord]:
    """The living workers on that host. Raises WorkerNotFound if there is none."""
    living = living_workers(client)
    found = [each for each in living if host in (each.host, each.host.partition(".")[0])]
    if not found:
        hosts = ", ".join(sorted({each.host for each in living})) or "none"
        told = f"there is no worker on host {host!r:.100}; there are workers on: {hosts}"
        raise WorkerNotFound(host, told)
    return found


def tell_worker(client: Connection, which: str, state: WorkerState) -> WorkerRecord:
    """Tell it, and return it as it was before. Raises as `find_worker` and `order`, and ZkplanError
    if it has other keys than this client: it would not hear."""
    worker = find_worker(client, which)
    if not keys_fit(client, worker):
        ours = client.keys[0].name if client.keys else "none"
        theirs = worker.keys or "none, or unknown here"
        raise ZkplanError(
            f"worker {worker.id} takes no order of this client: its keys are {theirs}, and that of "
            f"this client is {ours}. Give the file with its keys (secret-files)"
        )
    client.transport.run(order(client.paths, worker.id, state))
    return worker


def wait_until_gone(
    client: Connection,
    workers: list[str],
    timeout_s: float | None,
    tell: Callable[[int, int], None] = lambda workers, tasks: None,
) -> None:
    """Wait until these workers have signed off; `tell` gets how many are left, and their tasks.

    Raises WaitTimeout, which says the same.
    """
    end = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        left = [each for each in living_workers(client) if each.id in workers]
        if not left:
            return
        tasks = sum(each.claims for each in left)
        tell(len(left), tasks)
        if end is not None and time.monotonic() >= end:
            raise WaitTimeout(
                f"after {timeout_s:g} s these workers still drain, with {tasks} tasks: "
                f"{_named(left)}"
            )
        time.sleep(LOOK_S)


def _named(workers: list[WorkerRecord]) -> str:
    more = len(workers) - _NAMED
    named = ", ".join(each.id for each in workers[:_NAMED])
    return f"{named} and {more} more" if more > 0 else named


def _there(client: Connection, living: list[WorkerRecord]) -> str:
    where = f"under {client.root}"
    return f"there are {where}: {_named(living)}" if living else f"there is none {where}"


class WorkerOrders(Connection):
    """What a client does with workers: see who lives, and give them orders."""

    def workers(self) -> list[WorkerRecord]:
        """The workers that are registered under the root."""
        return living_workers(self)

    @told_to_caller
    def drain_worker(
        self, worker: str, *, wait: bool = False, timeout: Duration | None = None
    ) -> WorkerRecord:
        """Have a worker finish what runs, hand back what it has claimed ahead, and end.

        `worker` is its ID, or the beginning of one that no other has. It hears of it within a sixth
        of its session time-out. With `wait` this returns when it has signed off; `timeout` limits
        that, in seconds. Doing it twice does no harm. Returns the worker as it was before. Raises
        WorkerNotFound, AccessDenied and WaitTimeout.
        """
        found = tell_worker(self, worker, "draining")
        if wait:
            wait_until_gone(self, [found.id], in_seconds(timeout))
        return found

    @told_to_caller
    def pause_worker(self, worker: str) -> WorkerRecord:
        """Have a worker claim nothing more until `resume_worker`. What runs goes on, and counts.

        Otherwise as `drain_worker`. Raises ZkplanError if it drains.
        """
        return tell_worker(self, worker, "paused")

    @told_to_caller
    def resume_worker(self, worker: str) -> WorkerRecord:
        """Let a paused worker claim again. Otherwise as `pause_worker`."""
        return tell_worker(self, worker, "running")
