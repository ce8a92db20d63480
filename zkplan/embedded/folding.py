"""Bring the tables of a data folder up to date with its log, a part with each commit.

What came and went before its turn is never written to the tables.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple

from . import integrity
from .commit_log import NodeChange
from .sessions import SavedSession
from .znodes import Node

#: A fold begins when this many nodes have changed, or the log has this many bytes.
FOLD_NODES, FOLD_BYTES = 100_000, 32 * 1024 * 1024
#: What a record counts beside its bytes, so that many small records end, too.
RECORD_BYTES = 64
#: How many nodes one commit writes to the tables, so that no client waits long; and at least this
#: multiple of the nodes that the commit changes, so that a fold ends under any load.
NODES_PER_COMMIT, CHANGES_FACTOR = 500, 2
_PAGE_BYTES, _ROW_BYTES = 4096, 120

SessionChanges = Sequence[tuple[int, SavedSession | None]]


class Mark(NamedTuple):
    """The end of a record of the log."""

    record: int
    zxid: int
    last_session: int


class Tables:
    """The rows of nodes and sessions. Counts them, so that a lost row is noticed."""

    def __init__(self, nodes: int, sessions: int, highest: int, large: set[int]) -> None:
        """`highest` is the highest number of a node, and `large` those with a row of `contents`."""
        self.nodes, self.sessions, self.highest = nodes, sessions, highest
        self._large = large

    def save_nodes(self, run: sqlite3.Connection, changes: Iterable[NodeChange]) -> int:
        """Append nodes with numbers above the highest, and update others with one look-up each.
        Returns an upper bound of the pages that this writes."""
        new: list[integrity.NodeRow] = []
        old: list[tuple[object, ...]] = []
        gone: list[tuple[int]] = []
        small: list[tuple[int]] = []  # nodes whose data was large and is no more
        contents: list[integrity.ContentRow] = []
        for number, path, node, with_data in changes:
            if node is None:
                gone.append((number,))
                continue
            row = integrity.pack_node(number, path, node)
            if number > self.highest:
                new.append(row)
            else:
                old.append((*row[1:], number))
            if number > self.highest or with_data:
                if integrity.is_large(node):
                    contents.append(integrity.pack_content(number, node.mzxid, node.data))
                elif number in self._large:
                    small.append((number,))
        many = run.executemany
        known = 0
        if new:
            new.sort()
            many("INSERT INTO nodes VALUES (?,?,?,?,?,?)", new)
            self.highest = new[-1][0]
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
        self.nodes += len(new) - len(gone)
        # Appended rows share pages, and any other row has a page of its own.
        written = sum(len(row[1]) + len(row[2] or b"") + _ROW_BYTES for row in new)
        written += sum(len(row[2]) for row in contents)
        return written // _PAGE_BYTES + len(old) + len(gone) + 2 * len(contents)

    def save_sessions(self, run: sqlite3.Connection, changes: SessionChanges) -> None:
        for number, session in changes:
            self.sessions -= run.execute("DELETE FROM sessions WHERE id=?", (number,)).rowcount
            if session is not None:
                run.execute(
                    "INSERT INTO sessions VALUES (?,?,?,?)", integrity.pack_session(session)
                )
                self.sessions += 1


class Folding:
    """What the tables lack of the state that the log has."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        #: Changed nodes, by number: path, node (None: deleted), and whether the data has changed.
        #: Those to write in the fold under way, in the order of numbers, and those for the next.
        self._now: dict[int, tuple[str, Node | None, bool]] = {}
        self._next: dict[int, tuple[str, Node | None, bool]] = {}
        #: The highest number that the tables have, or will have after the fold under way.
        self._top = tables.highest
        self._sessions: dict[int, SavedSession | None] = {}
        self._bytes = 0
        #: How many nodes the last record has changed.
        self._changed = 0
        #: The last record of the fold under way.
        self._until: Mark | None = None

    def note(self, nodes: Sequence[NodeChange], sessions: SessionChanges, size: int) -> None:
        """Note the changes of a record of `size` bytes."""
        for number, path, node, with_data in nodes:
            if number in self._now:
                # Its row will have the state of that moment.
                if node is None and number > self._tables.highest:
                    del self._now[number]  # it came and went
                else:
                    before = self._now[number][2]
                    self._now[number] = path, node, with_data or before
            elif node is None and number > self._top:
                self._next.pop(number, None)
            else:
                before = number in self._next and self._next[number][2]
                self._next[number] = path, node, with_data or before
        self._changed = len(nodes)
        self._sessions.update(sessions)
        self._bytes += size + RECORD_BYTES

    def is_due(self) -> bool:
        """Whether this commit should write to the tables."""
        is_full = len(self._next) >= FOLD_NODES or self._bytes >= FOLD_BYTES
        return self._until is not None or is_full

    def step(self, run: sqlite3.Connection, last: Mark) -> tuple[int, Mark | None]:
        """Write a part. `last` is the last record of the log. Returns an upper bound of the pages
        that this writes, and up to which record the tables have everything, if a fold has ended."""
        if self._until is None:
            self._until, self._bytes = last, 0
            self._now, self._next = dict(sorted(self._next.items())), {}
            self._top = max(self._top, *self._now, self._tables.highest)
        most = max(NODES_PER_COMMIT, CHANGES_FACTOR * self._changed)
        part = list(islice(self._now, most))
        changes = [(number, *self._now.pop(number)) for number in part]
        pages = 1 + self._tables.save_nodes(run, changes)
        if self._now:
            return pages, None
        self._tables.save_sessions(run, list(self._sessions.items()))
        pages, self._sessions = pages + len(self._sessions), {}
        done, self._until = self._until, None
        return pages, done
