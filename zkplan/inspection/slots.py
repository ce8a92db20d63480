"""Find tasks that wait for other tasks and take all slots, so that those can never run."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from ..connection import Connection
from ..log import task_here
from .workers import living_workers

#: How many tasks of each worker in this process are waiting.
_waiting: Counter[str] = Counter()
_lock = threading.Lock()


def worker_here() -> str:
    """The ID of the worker that runs the current task; empty outside tasks."""
    task = task_here.get()
    return "" if task is None else task.worker


@contextmanager
def waiting_in_slot() -> Iterator[None]:
    """Count the slot of the current task as waiting within the block."""
    worker = worker_here()
    with _lock:
        _waiting[worker] += 1
    try:
        yield
    finally:
        with _lock:
            _waiting[worker] -= 1
            if not _waiting[worker]:
                del _waiting[worker]


def no_free_slot(client: Connection) -> str:
    """A message for a task that waits while waiting tasks take all slots of its worker.

    Empty outside tasks, and if this worker or another one has a free slot.
    """
    here = worker_here()
    workers = living_workers(client) if here else []
    mine = next((worker for worker in workers if worker.id == here), None)
    if mine is None or _waiting[here] < mine.slots:
        return ""
    if any(worker.claims < worker.slots for worker in workers if worker is not mine):
        return ""
    others = ", and no other worker has a free one" if len(workers) > 1 else ""
    return (
        f"all slots of {here} ({mine.slots}) are taken by tasks that wait for other tasks, as this "
        f"one does{others}: what they wait for cannot run. Give tasks as arguments instead of "
        "waiting for them, or start more workers"
    )
