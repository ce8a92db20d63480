"""Tasks that wait for other tasks: where they take all slots, what they wait for never runs."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from ..connection import Connection
from .workers import living_workers

#: The ID of the worker that runs the current task; empty outside of tasks.
worker_here: ContextVar[str] = ContextVar("zkplan_worker_here", default="")
#: How many tasks of each worker in this process are waiting.
_waiting: Counter[str] = Counter()
_lock = threading.Lock()


@contextmanager
def waiting_in_slot() -> Iterator[None]:
    """Within the block, the slot of the current task is one that waits."""
    worker = worker_here.get()
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
    """What to tell a task that waits while its worker's slots are all taken by such tasks.

    Empty outside of tasks, and where this or another worker has a slot to spare.
    """
    here = worker_here.get()
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
