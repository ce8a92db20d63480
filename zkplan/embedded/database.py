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

    After a commit has raised this, the folder accepts no more changes. All commits before are on
    disk, and the server must end without answering the requests that it has not committed.
    """


class StorageLocked(StorageError):
    """Another server (`by_server`) or another program is using the data folder."""

    by_server = False


class StorageDamaged(StorageError):
    """The files of a data folder are not what a server wrote; nothing was changed."""


# ---- Calls in forked children, which must not use or keep open what they inherit from a server.


_inherited: weakref.WeakKeyDictionary[Any, Callable[[Any], None]] = weakref.WeakKeyDictionary()


def call_after_fork(owner: T, function: Callable[[T], None]) -> None:
    """Call `function(owner)` in each child that this process forks while `owner` lives."""
    _inherited[owner] = function


def _after_fork() -> None:
    for owner, function in list(_inherited.items()):
        function(owner)


os.register_at_fork(after_in_child=_after_fork)


# ---- The lock of a data folder: one server at a time. The kernel frees it when the server dies.


LOCK, ADDRESS = "lock", "address"


class FolderLock:
    """The exclusive use of `folder` until `release` or the end of the process.

    Raises StorageLocked if any server, even of this process, holds the lock, and OSError if the
    lock file cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # Programs that this process starts do not inherit the descriptor, and so not the lock.
        self._file = open_own(folder / LOCK, os.O_RDWR | os.O_CREAT)
        # Register before locking: a child forked in between would keep the file locked.
        call_after_fork(self, FolderLock.close)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Remove this first: it may be the address of a server that was killed.
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
        """Publish the address of the server that holds this lock; `release` removes the address."""
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
            pass  # the next holder removes the address; the lock itself must not stay
        finally:
            self.close()

    def close(self) -> None:
        """Close this process's copy of the lock; the last copy to close releases the lock.

        A forked child has to, or its copy would keep the folder locked after its parent has died.
        """
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def address_of(folder: Path) -> str | None:
    """Return HOST:PORT of the server that uses `folder`, or None.

    A killed server leaves its address behind: only connecting shows whether a server lives.
    """
    try:
        address, _, pid = read_own(folder / ADDRESS).strip().partition("\n")
        # If they differ, the holder of the lock has not written its own address yet.
        holder = read_own(folder / LOCK).strip()
    except OSError:
        return None
    return address if pid.strip() == holder else None


# ---- The SQLite file of a data folder: create the whole file at once, recognise it, open it.
#
# nodes      one row for each znode (integrity.py), without an index on its path: everything is read
#            into memory at the start, so a create only appends
# contents   data of a node, if too large to rewrite whenever the node gets a child
# sessions   id, password, time-out
# log        one row for each commit whose changes the other tables may lack (commit_log.py)
# state      one row: the zxid and session before the log, and how many rows the tables have


DATABASE = "zkplan.db"
#: The files that SQLite opens by name.
FILES = (DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", f"{DATABASE}-journal")
APPLICATION_ID = 0x7A6B706C  # "zkpl"
FORMAT = 2

_TABLES = {
    "contents": "CREATE TABLE contents (number INTEGER PRIMARY KEY, mzxid INTEGER, data BLOB,"
    " crc INTEGER)",
    "log": "CREATE TABLE log (number INTEGER PRIMARY KEY, record BLOB)",
    "nodes": "CREATE TABLE nodes (number INTEGER PRIMARY KEY, path TEXT, data BLOB, fields BLOB,"
    " acl TEXT, crc INTEGER)",
    "sessions": "CREATE TABLE sessions (id INTEGER PRIMARY KEY, password BLOB,"
    " timeout_ms INTEGER, crc INTEGER)",
    "state": "CREATE TABLE state (id INTEGER PRIMARY KEY, zxid INTEGER, last_session INTEGER,"
    " nodes INTEGER, sessions INTEGER, flushed INTEGER, crc INTEGER)",
}
#: A commit copies the log into the database when the log has more pages (of 4 KiB) than this.
WAL_PAGES = 1000
#: SQLite cuts the file of the log to this size after a group that needed more.
WAL_BYTES_KEPT = 16 * 1024 * 1024
_CACHE_KIB = 16 * 1024


def remedy(folder: Path) -> str:
    """Return what to do about a damaged folder, for a message."""
    return (
        f"Restore a copy of {folder} that was made while no server used it, or move the folder "
        "away to start with an empty one; nothing in it was changed"
    )


def open_to_read(folder: Path, state: tuple[int, ...]) -> sqlite3.Connection:
    """Open the database of `folder`; create it with the row `state` if there is none.

    The connection changes nothing, not even when it closes: a refused folder stays as it was.
    Raises StorageDamaged, StorageLocked, StorageError, and errors of sqlite3 and os.
    """
    path = folder / DATABASE
    if not path.exists():
        for name in (f"{DATABASE}-wal", NOTE):
            # Do not create a database: SQLite would replay an old log into it.
            if (folder / name).exists():
                raise StorageDamaged(f"{path} is missing but {name} exists. {remedy(folder)}")
        _create(folder, state)
    connection = _connect(path, "ro")
    try:
        _recognise(connection, path)
    except StorageLocked:
        connection.close()
        raise  # keep an empty log: it belongs to the program that has the database open
    except BaseException:
        connection.close()
        remove_empty_log(folder)
        raise
    return connection


def open_to_write(folder: Path, sync: bool) -> sqlite3.Connection:
    """Open the database of a server, after its content was checked."""
    connection = _connect(folder / DATABASE, "rw")
    try:
        # EXCLUSIVE: no other program can change the file, and SQLite needs no shared memory.
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        _use_log(connection)
        # FULL: COMMIT returns after a flush of the log to disk. NORMAL: COMMIT returns when the
        # operating system has the log, which then survives a kill of this process.
        connection.execute(f"PRAGMA synchronous={'FULL' if sync else 'NORMAL'}")
        connection.execute("PRAGMA fullfsync=ON")  # macOS: flush the disk's own cache too
        connection.execute("PRAGMA checkpoint_fullfsync=ON")
        # SQLite's own checkpoints ignore their errors, so the server calls `checkpoint`.
        connection.execute("PRAGMA wal_autocheckpoint=0")
        connection.execute(f"PRAGMA journal_size_limit={WAL_BYTES_KEPT}")
        connection.execute(f"PRAGMA cache_size=-{_CACHE_KIB}")
        # Overwriting deleted rows would cost writes, and the folder is private.
        connection.execute("PRAGMA secure_delete=OFF")
    except BaseException:
        connection.close()
        raise
    return connection


def remove_empty_log(folder: Path) -> None:
    """Remove the empty log that SQLite makes even for reading.

    Without a database, an empty log would look as if its database were lost.
    """
    log = folder / f"{DATABASE}-wal"
    if log.exists() and log.stat().st_size == 0:
        log.unlink()


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    # Do not wait for SQLite's own lock: only a program other than a server can hold it.
    return sqlite3.connect(
        f"file:{quote(str(path))}?mode={mode}",
        uri=True,
        timeout=0,
        isolation_level=None,
        check_same_thread=False,
    )


def _create(folder: Path, state: tuple[int, ...]) -> None:
    """Create the database under another name, then rename it: no one sees half a database."""
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
    """Flush the names in `folder` to disk."""
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
            f"{path} is a database of another program (application ID {application}): give the "
            "server a folder of its own; nothing was changed"
        )
    if version != FORMAT and application == APPLICATION_ID and 0 < version < 1000:
        raise StorageError(
            f"{path} has format {version}, but this server reads format {FORMAT}: export the plans "
            "with the version of zkplan that wrote the file, and import them here; nothing was "
            "changed"
        )
    if application != APPLICATION_ID or version != FORMAT or tables != _TABLES:
        raise StorageDamaged(
            f"{path} has a damaged header or table definition. {remedy(path.parent)}"
        )


def _use_log(connection: sqlite3.Connection) -> None:
    (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
    if mode != "wal":
        raise sqlite3.OperationalError(f"SQLite refused a write-ahead log and chose {mode!r}")


def checkpoint(connection: sqlite3.Connection) -> None:
    """Copy the log into the database, so that the next commit restarts the log.

    Raises sqlite3.Error if the copy failed or is incomplete.
    """
    busy, pages, copied = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    if busy or pages != copied:
        raise sqlite3.OperationalError(f"only {copied} of {pages} pages of the log were copied")


def is_locked(error: Exception) -> bool:
    """Whether `error` comes from a program other than a server that has the database open."""
    return isinstance(error, sqlite3.OperationalError) and "locked" in str(error)


def open_elsewhere(path: Path, error: Exception) -> StorageLocked:
    """Return the error for a database that another program has open: the disk is sound."""
    return StorageLocked(
        f"another program has {path} open ({error}): close that program and start the server "
        "again; nothing was changed"
    )


def unreadable(path: Path, error: sqlite3.Error | OSError) -> StorageError:
    """Return the error to raise for a failed read."""
    what = str(error)
    if is_locked(error):
        return open_elsewhere(path, error)
    is_of_disk = any(word in what for word in ("I/O error", "unable to open", "full", "readonly"))
    if isinstance(error, OSError) or is_of_disk:
        return StorageError(
            f"reading {path} failed: {what}. No data is known to be lost: repair the disk, or the "
            "permissions of its files, and start the server again"
        )
    return StorageDamaged(f"{path} is damaged: {what}. {remedy(path.parent)}")
