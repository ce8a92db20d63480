"""A lock for each task of a stress run: by it a task notices that somebody else runs it, too."""

from __future__ import annotations

import fcntl
import functools
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class TaskLocks:
    """One byte of one file is locked for each task that runs; for threads of one process.

    The kernel gives a lock back with the process, so a killed worker never blocks the next one. A
    file for each task would do as well, but to make one can cost more than all else of a task that
    does nothing: ext4 without a journal avoids the inodes that were freed within the last minutes,
    so a run that followed another took more than twice as long.
    """

    def __init__(self, folder: str) -> None:
        # Never closed: the kernel gives back all locks of a process on a file as soon as the
        # process closes that file, by whatever descriptor.
        self._file = os.open(Path(folder) / "running.lock", os.O_RDWR | os.O_CREAT, 0o644)
        #: The kernel's locks are those of a process: between its threads this set decides.
        self._held: set[int] = set()
        self._change = threading.Lock()

    @contextmanager
    def hold(self, task: int) -> Iterator[bool]:
        """Hold the task's lock for the block; False where another thread or process holds it."""
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
        except (BlockingIOError, PermissionError):  # systems differ in which of the two it is
            return False
        return True


def locks_here(folder: str) -> TaskLocks:
    """This process's locks for a folder: a forked child must not take its parent's for its own."""
    return _locks(folder, os.getpid())


@functools.cache
def _locks(folder: str, pid: int) -> TaskLocks:
    return TaskLocks(folder)
