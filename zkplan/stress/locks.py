"""A lock for each task of a stress run, so that a task notices if somebody else runs it, too."""

from __future__ import annotations

import fcntl
import functools
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class TaskLocks:
    """Locks one byte of one file for each running task. Thread-safe within one process.

    The kernel releases a lock when its process ends, so a killed worker never blocks the next one.
    A file for each task would work, too. But creating one can cost more than the rest of a task
    that does nothing: ext4 without a journal avoids inodes that were freed within the last minutes,
    so a run after another run took more than twice as long.
    """

    def __init__(self, folder: str) -> None:
        # Never closed: the kernel releases all locks of a process on a file as soon as the process
        # closes any descriptor of that file.
        self._file = os.open(Path(folder) / "running.lock", os.O_RDWR | os.O_CREAT, 0o644)
        #: The kernel's locks belong to a process. This set locks between its threads.
        self._held: set[int] = set()
        self._change = threading.Lock()

    @contextmanager
    def hold(self, task: int) -> Iterator[bool]:
        """Hold the task's lock for the block. Yields False if another thread or process holds
        it."""
        with self._change:
            alone = task not in self._held and self._lock(task)
            if alone:
                self._held.add(task)
        try:
            yield alone
        finally:
            if alone:
                with self._change:
                    self._held.remove(task)
                    fcntl.lockf(self._file, fcntl.LOCK_UN, 1, task)

    def _lock(self, task: int) -> bool:
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, task)
        except (BlockingIOError, PermissionError):  # systems raise one or the other
            return False
        return True


@functools.cache
def locks_here(folder: str) -> TaskLocks:
    """The locks of this process for a folder. A forked child must not use those of its parent."""
    return TaskLocks(folder)


os.register_at_fork(after_in_child=locks_here.cache_clear)
