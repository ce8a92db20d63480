"""A temporary folder for the store of a server in memory, deleted even if its process is killed."""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import stat
import tempfile
from pathlib import Path

from ..basics.private import open_own

NAME, LOCK = "zkplan-memory-", "lock"


class ProcessFolder:
    """A temporary folder of this process, until `remove` or the end of the process.

    If the process is killed, the next process that makes such a folder deletes this one, whose lock
    the kernel has freed. Raises OSError.
    """

    def __init__(self) -> None:
        below = Path(tempfile.gettempdir())
        _delete_left_over(below)
        made = Path(tempfile.mkdtemp(prefix="new-zkplan-", dir=below))
        self._lock, self._pid = _locked(made), os.getpid()
        # Lock before renaming, so that no other process takes this folder for a left-over one.
        self.path = made.rename(below / f"{NAME}{secrets.token_hex(8)}")
        atexit.register(self.remove)

    def remove(self) -> None:
        """Delete the folder and its content. May be called again."""
        if os.getpid() == self._pid and self._lock >= 0:  # a forked child does not own it
            atexit.unregister(self.remove)
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1


def is_in_process_folder(path: str) -> bool:
    """
    >>> is_in_process_folder("/tmp/zkplan-memory-00ff/store"), is_in_process_folder("/data/store")
    (True, False)
    """
    return Path(path).parent.name.startswith(NAME)


def _locked(folder: Path) -> int:
    """Lock the folder, and return the open lock file. Raises OSError if another process has it."""
    import fcntl  # late: not all systems have it, and most clients have no server in memory

    file = open_own(folder / LOCK, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(file)
        raise
    return file


def _delete_left_over(below: Path) -> None:
    """Delete the folders that killed processes of this user left behind."""
    for folder in below.glob(f"{NAME}*"):
        try:
            found = folder.lstat()
            if found.st_uid != os.geteuid() or not stat.S_ISDIR(found.st_mode):
                continue
            lock = _locked(folder)
        except OSError:
            continue  # the process of the folder lives, or has just deleted it
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)
