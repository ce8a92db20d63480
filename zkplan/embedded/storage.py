"""Store the state of a server: one record in a log for each group of requests.

The log comes first: a group is one row. The tables of nodes and sessions follow, a part with each
commit (`folding.py`), and a start reads the tables and the log behind them.

A commit that returned is on disk (`sync=True`), or with the operating system (`sync=False`: it
survives the death of the process, not that of the machine). After a commit that raised, the server
does not use the folder any more. It does not try again, because a kernel that failed to flush a
page may forget the page and report success the next time. The next start finds what is on disk.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import sqlite3
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from zkplan.embedded.sessions import SavedSession

from ..basics.private import PRIVATE_FOLDER, NotOurs, check_own, is_trusted
from . import commit_log, database, integrity
from .commit_log import NodeChange
from .database import StorageDamaged, StorageError, StorageLocked
from .folding import Folding, Mark, SessionChanges, Tables
from .integrity import Answered
from .znodes import Node

Changes = Sequence[tuple[int, str, Node | None]]

_STATE = struct.Struct(">qqqqq")
_PAGE_BYTES = 4096


class Saved(NamedTuple):
    """The content of a data folder at its last commit, with `nodes` in the order of numbers."""

    zxid: int
    last_session: int
    nodes: list[tuple[int, str, Node]]
    sessions: list[SavedSession]


class Storage:
    """The data folder of one running server. Not thread-safe. Call `load` before any `commit`.

    Creating it and `load` raise StorageLocked, StorageDamaged or StorageError; `commit` raises
    StorageError.
    """

    def __init__(self, folder: Path, sync: bool = True) -> None:
        """Use `folder` until `close`. If there is none, create one that only its owner can enter.

        With `sync` a commit is on disk when it returns. Without, it survives a kill of the process.
        """
        self.folder = folder
        self._sync = sync
        self._pid = os.getpid()
        self._path = folder / database.DATABASE
        try:
            make_folder(folder)
            self._lock = database.FolderLock(folder)
        except StorageError:
            raise
        except NotOurs as error:
            raise StorageError(f"cannot use the data folder {folder}: {error}") from None
        except OSError as error:
            raise StorageError(
                f"cannot use the data folder {folder}: {error.strerror}. The server needs a folder "
                "that it may write to, with room for its data"
            ) from error
        try:
            self._connection = database.open_to_read(folder, _state_row(0, 0, 0, 0, sync))
        except StorageError:
            self._lock.release()
            raise
        except (sqlite3.Error, OSError) as error:
            self._lock.release()
            raise _refusal(self._path, error) from error
        self._answered = Answered(folder)
        self._failure: str | None = "load() was not called"
        self._is_open_elsewhere = False
        self._zxid = self._last_session = -1
        self._tables = Tables(0, 0, -1, set())
        self._folding = Folding(self._tables)
        #: The highest number of a node in the log or the tables; the number of the last record; and
        #: the last record that was cut off the log.
        self._highest = -1
        self._record = 0
        self._cut = Mark(0, 0, 0)
        self._wal_pages = 0
        database.call_after_fork(self, Storage._keep_inherited)

    def load(self) -> Saved:
        """Read and check the whole folder. In a new folder, zxid and last session are 0."""
        try:
            saved, changes, sessions = self._load()
        except (sqlite3.Error, OSError) as error:
            self._failure = str(error)
            self._is_open_elsewhere = database.is_locked(error)
            raise database.unreadable(self._path, error) from error
        except integrity.RowDamaged as error:
            self._failure = str(error)
            raise StorageDamaged(
                f"{self._path} is damaged: {error}. {database.remedy(self.folder)}"
            ) from error
        self._connection.close()
        try:
            # Before the state says that commits are flushed: the old note may name unflushed ones.
            self._answered.begin(saved.zxid)
            database.sync_folder(self.folder)
            self._connection = database.open_to_write(self.folder, self._sync)
            self._zxid, self._last_session = saved.zxid, saved.last_session
            run = self._connection
            run.execute("BEGIN IMMEDIATE")
            self._tables.save_nodes(run, changes)
            self._tables.save_sessions(run, sessions)
            # This saves `sync`, too: the checkpoint makes it durable before anything relies on it.
            self._cut_log(Mark(self._record, saved.zxid, saved.last_session))
            self._save_state()
            run.execute("COMMIT")
            database.checkpoint(run)
            # SQLite also does this for its new log, but ignores errors.
            database.sync_folder(self.folder)
        except (sqlite3.Error, OSError) as error:
            raise self._failed(error) from error
        # The tree gives the numbers above its highest node again, even if they were used before.
        self._highest = self._tables.highest = saved.nodes[-1][0] if saved.nodes else -1
        self._folding = Folding(self._tables)
        self._failure = None
        return saved

    def _load(self) -> tuple[Saved, list[NodeChange], SessionChanges]:
        """The state, and what the tables lack of it."""
        read = self._connection.execute
        problems = [row[0] for row in read("PRAGMA quick_check(3)")]
        if problems != ["ok"]:
            raise integrity.RowDamaged("; ".join(map(str, problems)))
        states = read("SELECT * FROM state").fetchall()
        if len(states) != 1 or states[0] != _state_row(*states[0][1:-1]):
            raise integrity.RowDamaged("the row of the server's state does not match its checksum")
        _, zxid, last_session, nodes, sessions, flushed, _ = states[0]
        if flushed and (what := integrity.damage_in(self.folder / f"{database.DATABASE}-wal")):
            raise integrity.RowDamaged(what)
        log = commit_log.Replay(zxid, last_session)
        for self._record, record in read("SELECT number, record FROM log ORDER BY number"):
            log.read(record)
        if what := self._answered.missing_after(log.zxid, flushed=bool(flushed)):
            raise integrity.RowDamaged(what)
        stored = {
            row[0]: integrity.unpack_session(row)
            for row in read("SELECT id, password, timeout_ms, crc FROM sessions ORDER BY id")
        }
        if len(stored) != sessions:
            raise integrity.RowDamaged(f"{len(stored)} sessions, of {sessions} written")
        living = {number: each for number, each in (stored | log.sessions).items() if each}
        found = self._load_nodes(log, nodes, sessions)
        saved = Saved(
            log.zxid, log.last_session, found, [living[number] for number in sorted(living)]
        )
        return saved, log.changes, list(log.sessions.items())

    def _load_nodes(
        self, log: commit_log.Replay, count: int, sessions: int
    ) -> list[tuple[int, str, Node]]:
        read = self._connection.execute
        contents = {
            row[0]: integrity.unpack_content(row)
            for row in read("SELECT number, mzxid, data, crc FROM contents")
        }
        self._tables = tables = Tables(0, sessions, -1, set(contents))
        reader = integrity.NodeReader(contents)

        def stored() -> Iterator[tuple[int, str, Node]]:
            select = "SELECT number, path, data, fields, acl, crc FROM nodes ORDER BY number"
            for row in read(select):
                tables.nodes, tables.highest = tables.nodes + 1, row[0]
                yield row[0], row[1], reader.unpack(row)

        nodes = list(log.over(stored(), reader))
        if tables.nodes != count:
            raise integrity.RowDamaged(f"{tables.nodes} nodes, of {count} written")
        if contents:
            raise integrity.RowDamaged(f"data without a node: {min(contents)}")
        return nodes

    def commit(
        self, *, zxid: int, last_session: int, nodes: Changes, sessions: SessionChanges = ()
    ) -> None:
        """Save a group of changes, all or none, with at most one change of each node or session.

        The data of a node must change only together with its mzxid. After a StorageError, every
        later call raises one, too: end the server without answering this group.
        """
        if self._failure is not None:
            raise StorageError(f"{self._path} accepts no more changes: {self._failure}")
        if not nodes and not sessions and (zxid, last_session) == (self._zxid, self._last_session):
            return
        try:
            changes = self._changes(nodes)
            record = commit_log.pack(self._zxid, zxid, last_session, changes, sessions)
            self._zxid, self._last_session = zxid, last_session
            self._write(record, changes, sessions)
            self._answered.note(zxid)
            if self._wal_pages > database.WAL_PAGES:
                database.checkpoint(self._connection)
                self._wal_pages = 0
        except (sqlite3.Error, OSError) as error:
            raise self._failed(error) from error
        except BaseException as error:
            # A bug, or Ctrl-C during the commit: the counts here may differ from those in the file.
            self._failure = f"a commit was interrupted: {error!r}"
            if isinstance(error, Exception):
                raise StorageError(
                    f"{self._path} accepts no more changes: {self._failure}"
                ) from error
            raise

    def _changes(self, nodes: Changes) -> list[NodeChange]:
        before, newest = self._zxid, self._highest
        found: list[NodeChange] = [
            (number, path, node, number > newest or (node is not None and node.mzxid > before))
            for number, path, node in nodes
        ]
        self._highest = max((newest, *[change[0] for change in found]))
        return found

    def _write(
        self, record: bytes, changes: Sequence[NodeChange], sessions: SessionChanges
    ) -> None:
        """Add the record to the log, and write a part of a fold that is due."""
        run, folding = self._connection, self._folding
        folding.note(changes, sessions, len(record))
        self._record += 1
        self._wal_pages += 2 + len(record) // _PAGE_BYTES
        add = "INSERT INTO log VALUES (?,?)"
        if not folding.is_due():
            run.execute(add, (self._record, record))  # SQLite commits a single statement by itself
            return
        run.execute("BEGIN IMMEDIATE")
        run.execute(add, (self._record, record))
        pages, done = folding.step(run, Mark(self._record, self._zxid, self._last_session))
        if done is not None:
            self._cut_log(done)
        self._save_state()
        run.execute("COMMIT")
        self._wal_pages += pages

    def _cut_log(self, end: Mark) -> None:
        """Delete the records up to `end`, which the tables have by now."""
        self._connection.execute("DELETE FROM log WHERE number <= ?", (end.record,))
        self._cut = end

    def _save_state(self) -> None:
        """Save where the log begins, and how many rows the tables have."""
        counts = self._tables.nodes, self._tables.sessions
        self._connection.execute(
            "UPDATE state SET zxid=?2, last_session=?3, nodes=?4, sessions=?5, flushed=?6, crc=?7"
            " WHERE id=?1",
            _state_row(self._cut.zxid, self._cut.last_session, *counts, self._sync),
        )

    def _failed(self, error: Exception) -> StorageError:
        refusal = _refusal(self._path, error)
        self._failure = str(refusal)
        self._is_open_elsewhere = isinstance(refusal, StorageLocked)
        return refusal

    def publish_address(self, host_port: str) -> None:
        """Publish the address of the server of this folder; `close` removes it."""
        self._lock.publish_address(host_port)

    def close(self) -> None:
        """Copy the log into the database, and let others use the folder. May be called again.

        If the copy fails, nothing is lost: the next start reads the log.
        """
        if os.getpid() != self._pid:
            return  # this is a forked child: see _keep_inherited
        self._failure = self._failure or "it was closed"
        try:
            # Closing copies the committed groups, even after a failure of this server. SQLite
            # removes the log only if the whole copy succeeded.
            self._connection.close()
            if not self._is_open_elsewhere:  # otherwise the other program needs an empty log
                database.remove_empty_log(self.folder)
        except (sqlite3.Error, OSError):
            pass  # every commit that returned is in the log
        finally:
            self._answered.close()
            self._lock.release()

    def _keep_inherited(self) -> None:
        """In a forked child, neither use nor close the connection, which the parent still uses.

        Closing it would empty a log that the parent writes. The added reference keeps even the end
        of the interpreter from closing it.
        """
        self._failure = "this process is a fork of the one that opened it"
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._connection))


def make_folder(folder: Path) -> None:
    """Create the folder and its missing parents, durably. Another process may do the same.

    Raises OSError, and StorageError if the folder belongs to another user, who could change its
    content, or if one of SQLite's files is a FIFO, a link or a file of another user.
    """
    missing: list[Path] = []
    while not (path := missing[-1].parent if missing else folder).exists():
        missing.append(path)
    for path in reversed(missing):
        path.mkdir(PRIVATE_FOLDER if path == folder else 0o777, exist_ok=True)
        database.sync_folder(path.parent)
    if not is_trusted(folder.stat().st_uid):
        raise StorageError(
            f"the data folder {folder} belongs to another user, who could change everything in it: "
            "run as that user, or choose a folder of yours"
        )
    for name in database.FILES:
        try:
            check_own(folder / name)
        except NotOurs as error:
            raise StorageError(f"cannot use the data folder {folder}: {error}") from None


def _refusal(path: Path, error: Exception) -> StorageError:
    if database.is_locked(error):
        return database.open_elsewhere(path, error)
    try:
        free = f"{shutil.disk_usage(path.parent).free // 1024} KiB are free there"
    except OSError as failure:
        free = f"asking the disk for its free space failed: {failure.strerror}"
    return StorageError(
        f"writing {path} failed: {error} ({free}). All acknowledged writes are kept, and no later "
        "request was answered: make room or repair the disk, then start the server again"
    )


def _state_row(*values: int) -> tuple[int, ...]:
    """Return the row for zxid, last session, number of nodes, number of sessions, and `sync`."""
    try:
        return 1, *values, crc32(_STATE.pack(*values))
    except struct.error as error:
        raise integrity.RowDamaged("the row of the server's state has more than numbers") from error
