"""Open files and folders that belong to this user alone, and recognise addresses of this machine.

In a folder where another user may create names, a name may be a FIFO (opening it waits for the
other end), a link, a folder or a file of that user.
"""

from __future__ import annotations

import atexit
import errno
import ipaddress
import os
import pwd
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ..errors import InvalidSettings

PRIVATE_FOLDER, PRIVATE_FILE = 0o700, 0o600
#: Follow no link, do not wait, and do not pass the file to programs that this process starts.
_SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class NotOurs(OSError):
    """A file or folder that should belong to this user alone is something else."""


def open_own(path: str | Path, flags: int = os.O_RDONLY, *, within: int | None = None) -> int:
    """Open a regular file of this user. With O_CREAT a new file is readable only to its owner.

    A relative `path` starts at the open folder `within`. Raises NotOurs if `path` is not a regular
    file of this user or of root, and OSError as os.open does.
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
    """Check a file that another library opens by name; a missing file passes. Raises NotOurs.

    The check does not open the file: closing it would release this process's locks on it.
    """
    with suppress(FileNotFoundError):
        _check(path, path.lstat())


def _check(path: str | Path, found: os.stat_result) -> None:
    if not is_trusted(found.st_uid):
        raise NotOurs(f"{path} belongs to another user: look at it, and remove it")
    if not stat.S_ISREG(found.st_mode):
        raise NotOurs(_no_file(path))


def _no_file(path: str | Path) -> str:
    return f"{path} is a link, a folder or a special file: look at it, and remove it"


def read_own(path: Path) -> str:
    """Return the text of a regular file of this user. Raises as `open_own` does."""
    with open(open_own(path), encoding="utf-8", errors="replace") as file:
        return file.read()


def is_trusted(owner: int) -> bool:
    """Whether the owner of a file is this user, or root, who can do any harm without the file."""
    return owner in (os.geteuid(), 0)


def open_closed_folder(path: Path) -> int:
    """Open a folder of this user that no other user can enter. Raises NotOurs, and OSError."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | _SAFE)
    found = os.fstat(folder)
    if found.st_uid == os.geteuid() and not stat.S_IMODE(found.st_mode) & 0o077:
        return folder
    os.close(folder)
    raise NotOurs(f"other users can reach {path}: close it to them with chmod 700, or remove it")


def own_folders(name: str) -> Iterator[Path]:
    """Yield the paths for a closed folder `name`: in the home, and among temporary files."""
    user = os.geteuid()
    state = os.environ.get("XDG_STATE_HOME", "")
    with suppress(OSError, RuntimeError):
        if os.path.isabs(state):
            yield Path(state, "zkplan", name)
        elif (home := Path.home()).stat().st_uid == user:  # with sudo, HOME may be another user's
            yield home / ".local" / "state" / "zkplan" / name
    yield Path(tempfile.gettempdir(), f"zkplan-{name}-{user}")


# ---- Files that others may not read, and files that others may not have written.


#: The maximum of a private file: more than passwords, keys and thousands of tokens need.
BYTES_MAX = 1024 * 1024


def why_readable(status: os.stat_result) -> str:
    """Return why other users can read a file; empty if they cannot.

    The group of a file of root may read it: the administrator has chosen that group.
    """
    if status.st_mode & stat.S_IROTH:
        return "every user of this machine can read it"
    if status.st_mode & stat.S_IRGRP and status.st_uid != 0:
        return "the users of its group can read it"
    return ""


def trusted_reason(path: Path) -> str:
    """Return why a file of the current folder is not trusted; empty if it is."""
    file = path.stat()
    for what, found in (
        ("the folder", path.parent.stat()),
        ("the file", path.lstat()),  # in a shared folder, another user may have made a link
        ("the file", file),
    ):
        if found.st_uid not in (os.geteuid(), 0):
            return f"{what} belongs to another user ({_name_of(found.st_uid)})"
    if not stat.S_ISREG(file.st_mode):
        return "it is not a regular file"  # opening a FIFO would wait for a writer
    return ""


def read_private(path: str, what: str) -> bytes:
    """Return the content of a file that only its owner may read. Raises InvalidSettings, even for a
    file that is only too large: cutting it would silently drop its last lines."""
    try:
        with open(path, "rb") as opened:
            status = os.fstat(opened.fileno())
            if reason := why_readable(status):
                raise InvalidSettings(f"{what} {path}: {reason}: chmod 600 {path}")
            content = opened.read(BYTES_MAX + 1)
            if len(content) > BYTES_MAX:
                size = max(status.st_size, len(content))  # a pipe has no size
                raise InvalidSettings(
                    f"{what} {path} has {size} bytes, more than the maximum of {BYTES_MAX}: "
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


# ---- Addresses that only this machine reaches. A server listens on others only on request.


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address. The only host name that passes is `localhost`.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0"), is_loopback("zk1")
    (True, True, False, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


# ---- A temporary folder of one process, deleted even if the process is killed.


#: For the store of a server in memory.
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
