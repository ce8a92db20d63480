"""Store the state of a server: one transaction for each group of requests.

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
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from zkplan.embedded.sessions import SavedSession

from ..basics.private import PRIVATE_FOLDER, NotOurs, check_own, is_trusted
from . import database, integrity
from .database import StorageDamaged, StorageError, StorageLocked
from .integrity import Answered
from .znodes import Node

Changes = Sequence[tuple[int, str, Node | None]]
SessionChanges = Sequence[tuple[int, SavedSession | None]]

_STATE = struct.Struct(">qqqqq")
_SESSION = struct.Struct(">qq")
_PAGE_BYTES, _ROW_BYTES = 4096, 120


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
        self._nodes = self._sessions = 0
        self._highest = -1
        self._large: set[int] = set()
        self._log_pages = 0
        database.call_after_fork(self, Storage._keep_inherited)

    def load(self) -> Saved:
        """Read and check the whole folder. In a new folder, zxid and last session are 0."""
        try:
            saved = self._load()
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
            # Save `sync` now, so that the checkpoint makes it durable before anything relies on it.
            self._save_state(saved.zxid, saved.last_session)
            database.checkpoint(self._connection)
            # SQLite also does this for its new log, but ignores errors.
            database.sync_folder(self.folder)
        except (sqlite3.Error, OSError) as error:
            raise self._failed(error) from error
        self._failure = None
        return saved

    def _load(self) -> Saved:
        read = self._connection.execute
        problems = [row[0] for row in read("PRAGMA quick_check(3)")]
        if problems != ["ok"]:
            raise integrity.RowDamaged("; ".join(map(str, problems)))
        states = read("SELECT * FROM state").fetchall()
        if len(states) != 1 or states[0] != _state_row(*states[0][1:-1]):
            raise integrity.RowDamaged("the row of the server's state does not match its checksum")
        _, self._zxid, self._last_session, self._nodes, self._sessions, flushed, _ = states[0]
        if flushed and (what := integrity.damage_in(self.folder / f"{database.DATABASE}-wal")):
            raise integrity.RowDamaged(what)
        if what := self._answered.missing_after(self._zxid, flushed=bool(flushed)):
            raise integrity.RowDamaged(what)
        sessions = [
            _session(row)
            for row in read("SELECT id, password, timeout_ms, crc FROM sessions ORDER BY id")
        ]
        if len(sessions) != self._sessions:
            raise integrity.RowDamaged(f"{len(sessions)} sessions, of {self._sessions} written")
        nodes = self._load_nodes()
        return Saved(self._zxid, self._last_session, nodes, sessions)

    def _load_nodes(self) -> list[tuple[int, str, Node]]:
        read = self._connection.execute
        contents = {
            row[0]: integrity.unpack_content(row)
            for row in read("SELECT number, mzxid, data, crc FROM contents")
        }
        self._large = set(contents)
        unpack = integrity.NodeReader(contents).unpack
        select = "SELECT number, path, data, fields, acl, crc FROM nodes ORDER BY number"
        nodes = [(row[0], row[1], unpack(row)) for row in read(select)]
        if len(nodes) != self._nodes:
            raise integrity.RowDamaged(f"{len(nodes)} nodes, of {self._nodes} written")
        if contents:
            raise integrity.RowDamaged(f"data without a node: {min(contents)}")
        self._highest = nodes[-1][0] if nodes else -1
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
        run = self._connection.execute
        try:
            run("BEGIN IMMEDIATE")
            if nodes:
                self._save_nodes(nodes)
            if sessions:
                self._save_sessions(sessions)
            self._save_state(zxid, last_session)
            run("COMMIT")
            self._answered.note(zxid)
            self._log_pages += len(sessions) + 3
            if self._log_pages > database.WAL_PAGES:
                database.checkpoint(self._connection)
                self._log_pages = 0
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
        self._zxid = zxid
        self._last_session = last_session

    def _save_nodes(self, changes: Changes) -> None:
        """Append nodes with numbers above the highest, and update others with one look-up each."""
        new: list[integrity.NodeRow] = []
        old: list[tuple[object, ...]] = []
        gone: list[tuple[int]] = []
        small: list[tuple[int]] = []  # nodes whose data was large and is no more
        contents: list[integrity.ContentRow] = []
        highest = self._highest
        for number, path, node in changes:
            if node is None:
                if number <= highest:
                    gone.append((number,))
                continue  # a node created and deleted within this group was never written
            row = integrity.pack_node(number, path, node)
            if number > highest:
                new.append(row)
            else:
                old.append((*row[1:], number))
            if number > highest or node.mzxid > self._zxid:
                if integrity.is_large(node):
                    contents.append(integrity.pack_content(number, node.mzxid, node.data))
                elif number in self._large:
                    small.append((number,))
        many = self._connection.executemany
        if new:
            new.sort()
            many("INSERT INTO nodes VALUES (?,?,?,?,?,?)", new)
            self._highest = new[-1][0]
        known = 0
        if old:
            statement = "UPDATE nodes SET path=?, data=?, fields=?, acl=?, crc=? WHERE number=?"
            known += many(statement, old).rowcount
        if gone:
            known += many("DELETE FROM nodes WHERE number=?", gone).rowcount
            small += [one for one in gone if one[0] in self._large]
        if known != (changed := len(old) + len(gone)):
            raise sqlite3.IntegrityError(f"of {changed} nodes to change, the file has {known}")
        if small:
            many("DELETE FROM contents WHERE number=?", small)
            self._large.difference_update(number for (number,) in small)
        if contents:
            many("INSERT OR REPLACE INTO contents VALUES (?,?,?,?)", contents)
            self._large.update(row[0] for row in contents)
        self._nodes += len(new) - len(gone)
        # An upper bound: appended rows share pages, and any other row has a page of its own.
        written = sum(len(row[1]) + len(row[2] or b"") + _ROW_BYTES for row in new)
        written += sum(len(row[2]) for row in contents)
        self._log_pages += written // _PAGE_BYTES + len(old) + len(gone) + 2 * len(contents)

    def _save_sessions(self, changes: SessionChanges) -> None:
        run = self._connection.execute
        for number, session in changes:
            self._sessions -= run("DELETE FROM sessions WHERE id=?", (number,)).rowcount
            if session is not None:
                run("INSERT INTO sessions VALUES (?,?,?,?)", _session_row(session))
                self._sessions += 1

    def _save_state(self, zxid: int, last_session: int) -> None:
        self._connection.execute(
            "UPDATE state SET zxid=?2, last_session=?3, nodes=?4, sessions=?5, flushed=?6, crc=?7"
            " WHERE id=?1",
            _state_row(zxid, last_session, self._nodes, self._sessions, self._sync),
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


def _session_row(session: SavedSession) -> tuple[int, bytes, int, int]:
    crc = crc32(session.password, crc32(_SESSION.pack(session.id, session.timeout_ms)))
    return session.id, session.password, session.timeout_ms, crc


def _session(row: tuple[int, bytes, int, int]) -> SavedSession:
    number, password, timeout_ms, _ = row
    try:
        if _session_row(session := SavedSession(number, password, timeout_ms)) == row:
            return session
    except (TypeError, struct.error):
        pass  # a damaged row may hold values of any type
    raise integrity.RowDamaged(f"the row of session {number:#x} does not match its checksum")
