"""The lock of a data folder: one server at a time, and the kernel frees it when that one dies."""

from __future__ import annotations

import fcntl
import os
import weakref
from pathlib import Path

from zkplan.basics.own_files import PRIVATE_FILE, open_own, read_own
from zkplan.embedded.storage_errors import StorageLocked

LOCK, ADDRESS = "lock", "address"


class FolderLock:
    """The exclusive use of `folder` from its creation to `release` or the end of the process.

    Raises StorageLocked where another process, or this one, holds it, and OSError where the lock
    file cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # Not inheritable (as all of Python's): no program that this process starts keeps the lock.
        self._file = open_own(folder / LOCK, os.O_RDWR | os.O_CREAT)
        _held.add(self)  # before it is locked: a child forked in between would keep it locked
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Before all else: an address that a killed server left is not where this one listens.
            (folder / ADDRESS).unlink(missing_ok=True)
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)
        except BlockingIOError:
            error = StorageLocked(self._held_by_another())
            error.by_server = True
            self.forget()
            raise error from None
        except BaseException:
            self.forget()
            raise

    def _held_by_another(self) -> str:
        pid = os.pread(self._file, 32, 0).decode("ascii", "replace").strip() or "unknown"
        address = address_of(self._folder)
        where = f" and listens at {address}" if address else ""
        return (
            f"another server (process {pid}) uses the data folder {self._folder}{where}: connect "
            "to it, stop it, or give this server a folder of its own"
        )

    def publish_address(self, host_port: str) -> None:
        """Write for others where the holder of this lock listens; removed by `release`."""
        host, _, port = host_port.rpartition(":")
        if ":" in host and not host.startswith("["):
            host_port = f"[{host}]:{port}"  # without brackets nobody could tell where it ends
        passing = self._folder / f"{ADDRESS}.new"
        passing.unlink(missing_ok=True)
        file = os.open(passing, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
        try:
            os.write(file, f"{host_port}\n{os.getpid()}\n".encode())
        finally:
            os.close(file)
        os.replace(passing, self._folder / ADDRESS)  # a reader sees a whole address or none

    def release(self) -> None:
        """Let others use the folder; harmless when repeated."""
        if self._file < 0:
            return
        try:
            (self._folder / ADDRESS).unlink(missing_ok=True)
        except OSError:
            pass  # the next holder removes it; the lock itself must not stay
        finally:
            self.forget()

    def forget(self) -> None:
        """Close this process's copy of the lock: releases it unless a forked process has another.

        A forked child must do so at once, or it would keep the folder locked after its parent died.
        """
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def address_of(folder: Path) -> str | None:
    """HOST:PORT of the server that uses `folder`, or None.

    A server that was killed leaves its address behind: only connecting tells whether it lives.
    """
    try:
        address, _, pid = read_own(folder / ADDRESS).strip().partition("\n")
        # Where they differ, the holder of the lock has not written its own address yet.
        holder = read_own(folder / LOCK).strip()
    except OSError:
        return None
    return address if pid.strip() == holder else None


_held: weakref.WeakSet[FolderLock] = weakref.WeakSet()


def _forget_all() -> None:
    for lock in list(_held):
        lock.forget()


os.register_at_fork(after_in_child=_forget_all)
