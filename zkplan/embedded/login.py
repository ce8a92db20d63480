"""The login and the secret of a server: kept in its folder, announced to its owner's programs.

Anybody on the machine can reach the port of a server. So a server lets in only who has proven the
login, which nobody but the owner of the folder can read. What the workers of the owner run is
signed with the secret of the folder besides.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import secrets
import weakref
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
from .database import DATABASE, sync_folder
from .storage import make_folder

SECRET, LOGIN = "secret", "login"
_USER = "zkplan"


class Access(NamedTuple):
    """What a client of a server needs; a field is empty where the server has none."""

    #: `user:password`, as the scheme digest takes it.
    login: str = ""
    #: What payloads are signed with by those who are given nothing else.
    secret: str = ""
    #: The URL of the folder of large values.
    store: str = ""

    def __repr__(self) -> str:
        return "Access(…)"  # it must not get into a log or a traceback


def new_secret() -> str:
    """One that nobody guesses."""
    return secrets.token_hex(32)


def new_login() -> str:
    """One that nobody guesses."""
    return f"{_USER}:{secrets.token_hex(32)}"


def folder_secret(folder: Path) -> str:
    """The secret of a folder, made with a new one; empty where plans were kept there before.

    Those are signed with nothing, or with what their owner gave. Raises OSError.
    """
    if not (folder / SECRET).exists() and (folder / DATABASE).exists():
        return ""
    make_folder(folder)
    return _made(folder / SECRET, new_secret)


def folder_login(folder: Path) -> str:
    """The login of a folder that exists, made where there is none. Raises OSError."""
    return _made(folder / LOGIN, new_login)


def folder_access(folder: Path, store: str = "") -> Access:
    """What the owner of a folder finds in it; makes nothing. Raises OSError."""
    return Access(_line(folder / LOGIN), _line(folder / SECRET), store)


def _made(file: Path, new: Callable[[], str]) -> str:
    """What the file says, which is made where it is missing."""
    opened = open_own(file, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)  # of two that make it the second one finds it whole
        found = os.pread(opened, 1024, 0)
        if not found.endswith(b"\n"):  # new, or its maker has died before anybody knew it
            found = f"{new()}\n".encode()
            os.ftruncate(opened, 0)
            os.pwrite(opened, found, 0)
            # Before anything depends on it: lost in a power cut it would take the plans along.
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


# ---- The closed servers of this user on this machine, by address: how its programs find the
# login.
#
# `zkplan plan ls --hosts 127.0.0.1:2181` then works for the owner of that server without more
# words, and for nobody else. One file for each server lies in a folder that only its owner can
# open. The server keeps the file locked as long as it listens, so what a killed server left behind
# counts for nothing: its port may be another user's by now.


_SERVERS = "servers"


class Announcement:
    """The entry of a server that listens at `host:port`, from its creation to `withdraw`.

    Raises OSError where neither the home of the user nor the folder of temporary files can hold it.
    """

    def __init__(self, host: str, port: int, access: Access) -> None:
        refusal: OSError | None = None
        for folder in own_folders(_SERVERS):
            try:
                folder.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
                self._file, self._path = _write(folder / _name(host, port), access)
                _held.add(self)
                return
            except OSError as error:
                refusal = error
        raise refusal or OSError("there is no folder for the login of this server")

    def withdraw(self) -> None:
        """Before the server stops listening: from then on nobody may send the login there."""
        if self._file < 0:
            return
        try:
            if os.stat(self._path).st_ino == os.fstat(self._file).st_ino:
                os.unlink(self._path)
        except OSError:
            pass  # unlocked it counts for nothing, and the next server removes it
        finally:
            self.forget()

    def forget(self) -> None:
        """Close this process's copy; a forked child does so at once."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def announced(host: str, port: int) -> Access | None:
    """How this user gets into the server of this user that listens there now; None: no such one."""
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
            os.replace(passing, path)  # a reader sees a whole entry that is locked, or none
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
    """Whether the server that wrote it lives: the kernel frees the lock of one that is dead."""
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


_held: weakref.WeakSet[Announcement] = weakref.WeakSet()


def _forget_all() -> None:
    for announcement in list(_held):
        announcement.forget()


os.register_at_fork(after_in_child=_forget_all)
