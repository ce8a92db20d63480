"""The data folder: its lock and its SQLite file."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from ..basics.private import PRIVATE_FILE, open_own, read_own
from .integrity import NOTE

T = TypeVar("T")


class StorageError(OSError):
    """A data folder cannot be used, or no longer; the message says why and what to do.

    After a commit has raised it, the folder accepts no more. What was committed before is on disk,
    and the server must end without answering what it has not committed.
    """


class StorageLocked(StorageError):
    """Another server (`by_server`), or another program, is using the data folder."""

    by_server = False


class StorageDamaged(StorageError):
    """The files of a data folder are not what a server wrote; nothing was changed."""


# ---- What a forked child inherits of a server, and must not use or keep open.


_inherited: weakref.WeakKeyDictionary[Any, Callable[[Any], None]] = weakref.WeakKeyDictionary()


def call_after_fork(owner: T, function: Callable[[T], None]) -> None:
    """Call `function(owner)` in each child that this process forks while `owner` exists."""
    _inherited[owner] = function


def _after_fork() -> None:
    for owner, function in list(_inherited.items()):
        function(owner)


os.register_at_fork(after_in_child=_after_fork)


# ---- The lock of a data folder: one server at a time. The kernel frees it when the server dies.


LOCK, ADDRESS = "lock", "address"


class FolderLock:
    """The exclusive use of `folder` until `release` or the end of the process.

    Raises StorageLocked if another process, or this one, holds it, and OSError if the lock file
    cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # Not inheritable, as all descriptors of Python: no program started here keeps the lock.
        self._file = open_own(folder / LOCK, os.O_RDWR | os.O_CREAT)
        # Before it is locked: a child forked in between would keep it locked.
        call_after_fork(self, FolderLock.close)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # First of all: an address that a killed server left is not that of this server.
            (folder / ADDRESS).unlink(missing_ok=True)
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)
        except BlockingIOError:
            error = StorageLocked(self._held_by_another())
            error.by_server = True
            self.close()
            raise error from None
        except BaseException:
            self.close()
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
        """Publish where the holder of this lock listens; `release` removes it."""
        host, _, port = host_port.rpartition(":")
        if ":" in host and not host.startswith("["):
            host_port = f"[{host}]:{port}"
        passing = self._folder / f"{ADDRESS}.new"
        passing.unlink(missing_ok=True)
        file = os.open(passing, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
        try:
            os.write(file, f"{host_port}\n{os.getpid()}\n".encode())
        finally:
            os.close(file)
        os.replace(passing, self._folder / ADDRESS)  # a reader sees a whole address or none

    def release(self) -> None:
        """Let others use the folder. May be called again."""
        if self._file < 0:
            return
        try:
            (self._folder / ADDRESS).unlink(missing_ok=True)
        except OSError:
            pass  # the next holder removes it; the lock itself must not stay
        finally:
            self.close()

    def close(self) -> None:
        """Close this process's copy of the lock, which releases it unless another process has one.

        A forked child has to, or it would keep the folder locked after its parent has died.
        """
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def address_of(folder: Path) -> str | None:
    """HOST:PORT of the server that uses `folder`, or None.

    A server that was killed leaves its address: only connecting shows whether it lives.
    """
    try:
        address, _, pid = read_own(folder / ADDRESS).strip().partition("\n")
        # If they differ, the holder of the lock has not written its own address yet.
        holder = read_own(folder / LOCK).strip()
    except OSError:
        return None
    return address if pid.strip() == holder else None


# ---- The SQLite file of a data folder: create it as a whole, recognise it, open it.
#
# nodes      one row for each znode (integrity.py), without an index on its path: everything is read
#            into memory at the start, so a create only appends
# contents   data too large to be rewritten whenever its node gets a child
# sessions   id, password, time-out
# state      one row: the last zxid and session, and how many rows the other tables have


DATABASE = "zkplan.db"
#: The files that SQLite opens by name.
FILES = (DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", f"{DATABASE}-journal")
APPLICATION_ID = 0x7A6B706C  # "zkpl"
FORMAT = 1

_TABLES = {
    "contents": "CREATE TABLE contents (number INTEGER PRIMARY KEY, mzxid INTEGER, data BLOB,"
    " crc INTEGER)",
    "nodes": "CREATE TABLE nodes (number INTEGER PRIMARY KEY, path TEXT, data BLOB, fields BLOB,"
    " acl TEXT, crc INTEGER)",
    "sessions": "CREATE TABLE sessions (id INTEGER PRIMARY KEY, password BLOB,"
    " timeout_ms INTEGER, crc INTEGER)",
    "state": "CREATE TABLE state (id INTEGER PRIMARY KEY, zxid INTEGER, last_session INTEGER,"
    " nodes INTEGER, sessions INTEGER, flushed INTEGER, crc INTEGER)",
}
#: A commit copies the log into the database when it has that many pages of 4 KiB.
WAL_PAGES = 1000
#: To what size the log's file is cut after a group that needed more.
WAL_BYTES_KEPT = 16 * 1024 * 1024
_CACHE_KIB = 16 * 1024


def remedy(folder: Path) -> str:
    """What to do about a damaged folder."""
    return (
        f"Restore a copy of {folder} that was made while no server used it, or move the folder "
        "away to start with an empty one; nothing in it was changed"
    )


def open_to_read(folder: Path, state: tuple[int, ...]) -> sqlite3.Connection:
    """Open the database of `folder`; create it with the row `state` if there is none.

    This connection changes nothing, not even when it closes: a refused folder stays as it was.
    Raises StorageDamaged, StorageLocked, StorageError, and what sqlite3 and os raise.
    """
    path = folder / DATABASE
    if not path.exists():
        for name in (f"{DATABASE}-wal", NOTE):
            # SQLite would replay the log into a new database.
            if (folder / name).exists():
                raise StorageDamaged(f"{path} is missing but {name} is there. {remedy(folder)}")
        _create(folder, state)
    connection = _connect(path, "ro")
    try:
        _recognise(connection, path)
    except StorageLocked:
        connection.close()
        raise  # an empty log belongs to the program that has the database open
    except BaseException:
        connection.close()
        remove_empty_log(folder)
        raise
    return connection


def open_to_write(folder: Path, sync: bool) -> sqlite3.Connection:
    """Open a database whose contents were checked, for a server."""
    connection = _connect(folder / DATABASE, "rw")
    try:
        # Exclusive: no other program changes the file meanwhile, and no shared memory is needed.
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        _use_log(connection)
        # FULL: COMMIT returns after a flush of the log to disk. NORMAL: it returns when the
        # operating system has the log, which keeps it if this process is killed.
        connection.execute(f"PRAGMA synchronous={'FULL' if sync else 'NORMAL'}")
        connection.execute("PRAGMA fullfsync=ON")  # macOS: flush the disk's own cache too
        connection.execute("PRAGMA checkpoint_fullfsync=ON")
        # SQLite's own checkpoints ignore their errors, so the server calls `checkpoint`.
        connection.execute("PRAGMA wal_autocheckpoint=0")
        connection.execute(f"PRAGMA journal_size_limit={WAL_BYTES_KEPT}")
        connection.execute(f"PRAGMA cache_size=-{_CACHE_KIB}")
        # Overwriting deleted rows costs writes, and the folder is private.
        connection.execute("PRAGMA secure_delete=OFF")
    except BaseException:
        connection.close()
        raise
    return connection


def remove_empty_log(folder: Path) -> None:
    """Remove the empty log that SQLite makes even to read.

    Without a database it would look like a log whose database is lost.
    """
    log = folder / f"{DATABASE}-wal"
    if log.exists() and log.stat().st_size == 0:
        log.unlink()


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    # No timeout: only a program that is no server can hold SQLite's own lock.
    return sqlite3.connect(
        f"file:{quote(str(path))}?mode={mode}",
        uri=True,
        timeout=0,
        isolation_level=None,
        check_same_thread=False,
    )


def _create(folder: Path, state: tuple[int, ...]) -> None:
    """Write the new database beside its place, then move it there: nobody sees half of it."""
    passing = folder / f"{DATABASE}.new"
    for name in (passing.name, f"{passing.name}-wal", f"{passing.name}-journal"):
        (folder / name).unlink(missing_ok=True)
    os.close(os.open(passing, os.O_RDWR | os.O_CREAT | os.O_EXCL, PRIVATE_FILE))
    connection = _connect(passing, "rw")
    try:
        connection.execute("PRAGMA fullfsync=ON")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("BEGIN IMMEDIATE")
        for statement in _TABLES.values():
            connection.execute(statement)
        connection.execute(f"INSERT INTO state VALUES ({','.join('?' * len(state))})", state)
        connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version={FORMAT}")
        connection.execute("COMMIT")
        _use_log(connection)
    finally:
        connection.close()
    os.replace(passing, folder / DATABASE)
    sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable."""
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _recognise(connection: sqlite3.Connection, path: Path) -> None:
    """Raise StorageError for a file that this version did not write."""
    try:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        tables = dict(connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name"))
    except sqlite3.DatabaseError as error:
        raise unreadable(path, error) from error
    if application != APPLICATION_ID and tables and set(tables) != set(_TABLES):
        raise StorageError(
            f"{path} is a database of another program (application id {application}): give the "
            "server a folder of its own; nothing was changed"
        )
    if version != FORMAT and application == APPLICATION_ID and 0 < version < 1000:
        raise StorageError(
            f"{path} has format {version} and this server knows format {FORMAT}: use the version "
            "of zkplan that wrote it, export its plans there and import them here; nothing was "
            "changed"
        )
    if application != APPLICATION_ID or version != FORMAT or tables != _TABLES:
        raise StorageDamaged(
            f"{path} has a damaged header or table definition. {remedy(path.parent)}"
        )


def _use_log(connection: sqlite3.Connection) -> None:
    (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
    if mode != "wal":
        raise sqlite3.OperationalError(f"a write-ahead log was refused ({mode!r} chosen instead)")


def checkpoint(connection: sqlite3.Connection) -> None:
    """Copy the log into the database, so that the next commit restarts the log.

    Raises sqlite3.Error if that failed or was incomplete.
    """
    busy, pages, copied = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    if busy or pages != copied:
        raise sqlite3.OperationalError(f"{copied} of {pages} pages of the log could be copied")


def is_locked(error: Exception) -> bool:
    """Whether a program that is no server has the database open."""
    return isinstance(error, sqlite3.OperationalError) and "locked" in str(error)


def open_elsewhere(path: Path, error: Exception) -> StorageLocked:
    """The error then: nothing is wrong with the disk."""
    return StorageLocked(
        f"another program has {path} open ({error}): close it there and start the server again;"
        " nothing was changed"
    )


def unreadable(path: Path, error: sqlite3.Error | OSError) -> StorageError:
    """The error to raise for an error of a read."""
    what = str(error)
    if is_locked(error):
        return open_elsewhere(path, error)
    is_of_disk = any(word in what for word in ("I/O error", "unable to open", "full", "readonly"))
    if isinstance(error, OSError) or is_of_disk:
        return StorageError(
            f"reading {path} failed: {what}. Nothing is known to be lost: mend the disk, or the "
            "permissions of its files, and start the server again"
        )
    return StorageDamaged(f"{path} is damaged: {what}. {remedy(path.parent)}")
