"""Files that others may not read, and files that others may not have written."""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path

from ..errors import InvalidSettings

#: More than passwords, keys and thousands of tokens take.
BYTES_MAX = 1024 * 1024


def why_readable(status: os.stat_result) -> str:
    """Why somebody else can read a file; empty if nobody can.

    A group may read what the administrator gives to it; a file of one's own is for oneself.
    """
    if status.st_mode & stat.S_IROTH:
        return "every user of this machine can read it"
    if status.st_mode & stat.S_IRGRP and status.st_uid != 0:
        return "the users of its group can read it"
    return ""


def trusted_reason(path: Path) -> str:
    """Why a file of the current folder is not trusted; empty if it is."""
    file = path.stat()
    for what, found in (
        ("the folder", path.parent.stat()),
        ("the file", path.lstat()),  # in a folder that all share, others may make a link to it
        ("the file", file),
    ):
        if found.st_uid not in (os.geteuid(), 0):
            return f"{what} belongs to another user ({_name_of(found.st_uid)})"
    if not stat.S_ISREG(file.st_mode):
        return "it is no regular file"  # to open a FIFO would wait for who writes
    return ""


def read_private(path: str, what: str) -> bytes:
    """The content of a file that only its owner may read. Raises InvalidSettings, also for a file
    that is too large: the lines behind a cut would count for nothing, without a word."""
    try:
        with open(path, "rb") as opened:
            status = os.fstat(opened.fileno())
            if reason := why_readable(status):
                raise InvalidSettings(f"{what} {path}: {reason}: chmod 600 {path}")
            content = opened.read(BYTES_MAX + 1)
            if len(content) > BYTES_MAX:
                size = max(status.st_size, len(content))  # a pipe has no size
                raise InvalidSettings(
                    f"{what} {path} has {size} bytes, and at most {BYTES_MAX} are read: "
                    "remove lines that are not needed"
                )
            return content
    except OSError as error:
        raise InvalidSettings(f"{what} {path} cannot be read: {error.strerror}") from None


def _name_of(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)
