"""What an address is leased as: host:port, login, and a folder that goes with its process."""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ..basics.private import open_own

if TYPE_CHECKING:
    from kazoo.client import KazooClient

    from ..embedded import Access


class Lease:
    """`hosts` for ZooKeeper clients, served at least until `release`. A context manager."""

    def __init__(
        self,
        hosts: str,
        release: Callable[[], None] | None = None,
        access: Access | None = None,
    ) -> None:
        self.hosts = hosts
        self._access = access
        #: Whether it is that of a folder which another process serves, as long as that one lives.
        self.is_elsewhere = False
        self._release = release
        self._pid = os.getpid()

    @property
    def access(self) -> Access | None:
        """The login of a closed server of this user, as it is now, and what goes with it."""
        return self._access

    @property
    def secret(self) -> str:
        """What those sign with who are given no secret. Empty but for an embedded server."""
        return "" if self.access is None else self.access.secret

    @property
    def store(self) -> str:
        """The URL of the store that comes with an embedded server. Empty otherwise."""
        return "" if self.access is None else self.access.store

    def login(self) -> str:
        """`user:password` of this user's server, or empty."""
        return "" if self.access is None else self.access.login

    def is_closed(self) -> bool:
        """Whether its server is one of this user that lets in nobody without a login, by now."""
        return bool(self.login())

    def release(self) -> None:
        """Need it no longer; may be repeated. Close clients first: it may stop their server."""
        release, self._release = self._release, None
        # In a forked child the server is the parent's: there is nothing here to stop.
        if release is not None and os.getpid() == self._pid:
            release()

    def find(self) -> str:
        """Where its server is by now. Starts none."""
        return self.hosts

    def follow(self, client: KazooClient) -> None:
        """Keep a started client connected when the folder is served elsewhere, until `release`."""

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


# ---- The folder for the store of a server in memory: it ends with its process, also if that is
# killed.


NAME, LOCK = "zkplan-memory-", "lock"


class PassingFolder:
    """A folder of this process below the temporary folder, until `remove` or the end.

    If the process is killed, the next one that makes such a folder deletes it: the kernel has freed
    its lock by then. Raises OSError.
    """

    def __init__(self) -> None:
        below = Path(tempfile.gettempdir())
        _sweep(below)
        made = Path(tempfile.mkdtemp(prefix="new-zkplan-", dir=below))
        self._lock, self._pid = _locked(made), os.getpid()
        # It gets its name locked, so that no other process takes it for one that is left over.
        self.path = made.rename(below / f"{NAME}{secrets.token_hex(8)}")
        atexit.register(self.remove)

    def remove(self) -> None:
        """Delete it with all that it holds. May be called again."""
        if os.getpid() == self._pid and self._lock >= 0:  # a forked child does not own it
            atexit.unregister(self.remove)
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1


def is_passing(path: str) -> bool:
    """
    >>> is_passing("/tmp/zkplan-memory-00ff/store"), is_passing("/data/store")
    (True, False)
    """
    return Path(path).parent.name.startswith(NAME)


def _locked(folder: Path) -> int:
    """The open file that keeps the folder locked. Raises OSError if another process has it."""
    import fcntl  # here: not all systems have it, and most clients have no server in memory

    file = open_own(folder / LOCK, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(file)
        raise
    return file


def _sweep(below: Path) -> None:
    """Delete the folders that killed processes of this user have left."""
    for folder in below.glob(f"{NAME}*"):
        try:
            found = folder.lstat()
            if found.st_uid != os.geteuid() or not stat.S_ISDIR(found.st_mode):
                continue
            lock = _locked(folder)
        except OSError:
            continue  # its process lives, or has just deleted it
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)
