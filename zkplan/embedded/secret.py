"""The login and the secret of a data folder: who may read the folder may log in, and sign.

Anybody on the machine can reach the port of a server. So a server lets in only who has proven the
login, which nobody but the owner of the folder can read. What the workers of the owner run is
signed with the secret of the folder besides.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from zkplan.basics.own_files import open_own, read_own
from zkplan.embedded.database import DATABASE, sync_folder
from zkplan.embedded.storage import make_folder

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
