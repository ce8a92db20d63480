"""Files of this user in folders that all users share: opened only if they are, and never waited
for.

Whoever else may create a name there can have put a FIFO (to open it waits for the other end), a
link, a folder or a file of his own in its place.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PRIVATE_FOLDER, PRIVATE_FILE = 0o700, 0o600
#: An open that does not wait, follows no link, and stays out of programs that are started.
_SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class NotOurs(OSError):
    """What lies in the place of a file or folder of this user is something else."""


def open_own(path: str | Path, flags: int = os.O_RDONLY, *, within: int | None = None) -> int:
    """Open a regular file of this user; with O_CREAT it is made readable to its owner alone.

    `within` is an open folder that a relative path starts from. Raises NotOurs where it is not a
    regular file of this user or of root, and OSError as os.open does.
    """
    try:
        file = os.open(path, flags | _SAFE, PRIVATE_FILE, dir_fd=within)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise NotOurs(_no_file(path)) from None
        raise
    try:
        _check(path, os.fstat(file))
    except BaseException:
        os.close(file)
        raise
    return file


def check_own(path: Path) -> None:
    """The same for a file that another library opens by its name; a missing one passes.

    Not by an open: its close would release the locks of this process on the file.
    """
    with suppress(FileNotFoundError):
        _check(path, path.lstat())


def _check(path: str | Path, found: os.stat_result) -> None:
    if not is_trusted(found.st_uid):
        raise NotOurs(f"{path} belongs to another user: look at it, and remove it")
    if not stat.S_ISREG(found.st_mode):
        raise NotOurs(_no_file(path))


def _no_file(path: str | Path) -> str:
    return f"{path} is a link, a folder or no file at all: look at it, and remove it"


def read_own(path: Path) -> str:
    """The text of such a file. Raises what `open_own` raises."""
    with open(open_own(path), encoding="utf-8", errors="replace") as file:
        return file.read()


def is_trusted(owner: int) -> bool:
    """Whether what this user owns can do no more harm than this user, or root, anyway."""
    return owner in (os.geteuid(), 0)


def open_closed_folder(path: Path) -> int:
    """Open a folder of this user that no other user can enter. Raises NotOurs, and OSError."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | _SAFE)
    found = os.fstat(folder)
    if found.st_uid == os.geteuid() and not stat.S_IMODE(found.st_mode) & 0o077:
        return folder
    os.close(folder)
    raise NotOurs(f"other users can reach {path}, which is to be closed to them")


def own_folders(name: str) -> Iterator[Path]:
    """Where closed folders of that name may lie: in the home of the user where it is the user's,
    and among the temporary files."""
    user = os.geteuid()
    state = os.environ.get("XDG_STATE_HOME", "")
    with suppress(OSError, RuntimeError):
        if os.path.isabs(state):
            yield Path(state, "zkplan", name)
        elif (home := Path.home()).stat().st_uid == user:  # not with sudo, in that of another
            yield home / ".local" / "state" / "zkplan" / name
    yield Path(tempfile.gettempdir(), f"zkplan-{name}-{user}")
