"""The login and the secret of a server: kept in its folder, announced to its owner's programs.

Every user of the machine can reach the port of a server. So a server admits only clients with the
login, which only the owner of the folder can read. With the secret, the owner's clients sign what
workers run.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from ..basics.private import (
    PRIVATE_FILE,
    PRIVATE_FOLDER,
    open_closed_folder,
    open_own,
    own_folders,
    read_own,
)
from .database import DATABASE, call_after_fork, sync_folder
from .storage import make_folder

SECRET, LOGIN = "secret", "login"
_USER = "zkplan"


class Access(NamedTuple):
    """The access of a client to a server. A field is empty if the server has no such thing."""

    #: `user:password`, for the scheme digest.
    login: str = ""
    #: Clients without a secret of their own sign payloads with this one.
    secret: str = ""
    #: The URL of the store for large values.
    store: str = ""

    def __repr__(self) -> str:
        return "Access(…)"  # login and secret must not get into a log or a traceback


def new_secret() -> str:
    return secrets.token_hex(32)


def new_login() -> str:
    return f"{_USER}:{secrets.token_hex(32)}"


def folder_secret(folder: Path) -> str:
    """Return the secret of a folder. Makes one, unless the folder already has a database.

    Else returns "": its plans are unsigned, or signed with the owner's own secret. Raises OSError.
    """
    if not (folder / SECRET).exists() and (folder / DATABASE).exists():
        return ""
    make_folder(folder)
    return _made(folder / SECRET, new_secret)


def folder_login(folder: Path) -> str:
    """Return the login of an existing folder; make one if there is none. Raises OSError."""
    return _made(folder / LOGIN, new_login)


def folder_access(folder: Path, store: str = "") -> Access:
    """Read the login and secret of a folder; make nothing. Raises OSError."""
    return Access(_line(folder / LOGIN), _line(folder / SECRET), store)


def _made(file: Path, new: Callable[[], str]) -> str:
    """Return the content of `file`; if there is none, write the text of `new()` first."""
    opened = open_own(file, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)  # of two makers, the second finds a whole file
        found = os.pread(opened, 1024, 0)
        if not found.endswith(b"\n"):  # a new file, or its maker died before anyone used it
            found = f"{new()}\n".encode()
            os.ftruncate(opened, 0)
            os.pwrite(opened, found, 0)
            # Flush before anything depends on the file: losing it in a power cut loses the plans.
            os.fsync(opened)
            sync_folder(file.parent)
        return found.decode("ascii", "replace").strip()
    finally:
        os.close(opened)


def _line(file: Path) -> str:
    try:
        text = read_own(file)
    except FileNotFoundError:
        return ""
    return text.strip() if text.endswith("\n") else ""


# ---- Announce the login of a closed server to its owner's programs on this machine, by address.
#
# So `zkplan plan ls --hosts 127.0.0.1:2181` works for the owner of that server without an option,
# and for no other user. Each server has a file in a folder that only its owner can open. The server
# keeps the file locked while it listens. An unlocked file does not count: its server was killed,
# and another user may have the port now.


_SERVERS = "servers"


class Announcement:
    """The file of a server that listens at `host:port`, until `withdraw`.

    Raises OSError if neither the user's home nor the temporary folder can hold the file.
    """

    def __init__(self, host: str, port: int, access: Access) -> None:
        refusal: OSError | None = None
        for folder in own_folders(_SERVERS):
            try:
                folder.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
                self._file, self._path = _write(folder / _name(host, port), access)
                call_after_fork(self, Announcement.close)
                return
            except OSError as error:
                refusal = error
        raise refusal or OSError("there is no folder for the file with the login of this server")

    def withdraw(self) -> None:
        """Remove the file. Call this before the server stops listening: no stranger may get it."""
        if self._file < 0:
            return
        try:
            if os.stat(self._path).st_ino == os.fstat(self._file).st_ino:
                os.unlink(self._path)
        except OSError:
            pass  # an unlocked file does not count, and the next server removes it
        finally:
            self.close()

    def close(self) -> None:
        """Close this process's descriptor of the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def announced(host: str, port: int) -> Access | None:
    """Return the access to this user's closed server that listens at `host:port` now, or None."""
    for folder in own_folders(_SERVERS):
        with suppress(OSError, ValueError, TypeError), ExitStack() as opened:
            within = open_closed_folder(folder)
            opened.callback(os.close, within)
            file = open_own(_name(host, port), within=within)
            opened.callback(os.close, file)
            if _is_locked(file):
                return Access(**json.loads(os.read(file, 1 << 16)))
    return None


def _name(host: str, port: int) -> str:
    # Machines may share a home, but each has loopback addresses of its own.
    return f"{platform.node()} {host} {port}"


def _write(path: Path, access: Access) -> tuple[int, Path]:
    passing = path.with_name(f"{path.name} new")
    with _alone_in(path.parent):
        _remove_left_behind(path.parent)
        file = os.open(passing, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            os.write(file, json.dumps(access._asdict()).encode())
            os.replace(passing, path)  # a reader sees a whole, locked file or none
        except BaseException:
            os.close(file)
            raise
        return file, path


def _remove_left_behind(folder: Path) -> None:
    for path in folder.glob(f"{platform.node()} *"):
        with suppress(OSError):
            file = open_own(path)
            try:
                if not _is_locked(file):
                    path.unlink()
            finally:
                os.close(file)


def _is_locked(file: int) -> bool:
    """Whether the server that wrote `file` lives: the kernel frees the lock of a dead server."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    opened = open_closed_folder(folder)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)
