"""One znode in memory, with the server's 32-bit arithmetic of versions and counters."""

from __future__ import annotations

from zkplan.embedded.records import Stat

# At its end a version wraps around; the counter of a parent stays there, so that each later
# sequential create meets the last name again and is refused.
INT_MAX = 2**31 - 1


class Node:
    """A mutable znode; `creates` counts the children ever created and numbers the next one."""

    __slots__ = (
        "children",
        "creates",
        "ctime",
        "czxid",
        "data",
        "mtime",
        "mzxid",
        "owner",
        "pzxid",
        "version",
    )

    def __init__(self, data: bytes = b"", owner: int = 0, zxid: int = 0, now_ms: int = 0) -> None:
        self.data = data
        self.owner = owner
        self.version = 0
        self.creates = 0
        self.czxid = self.mzxid = self.pzxid = zxid
        self.ctime = self.mtime = now_ms
        self.children: set[str] = set()

    def add_child(self, name: str, zxid: int) -> None:
        """Count and list a new child."""
        self.children.add(name)
        if self.creates < INT_MAX:
            self.creates += 1
            self.pzxid = zxid

    def write(self, data: bytes, zxid: int, now_ms: int) -> None:
        """Replace the data and raise the version by one."""
        self.data = data
        self.mzxid = zxid
        self.mtime = now_ms
        self.version = self.version + 1 if self.version < INT_MAX else -INT_MAX - 1

    def stat(self) -> Stat:
        """What a server would report now."""
        count = len(self.children)
        cversion = 2 * self.creates - count
        return Stat(
            self.czxid,
            self.mzxid,
            self.ctime,
            self.mtime,
            self.version,
            cversion if cversion <= INT_MAX else cversion - 2**32,
            0,
            self.owner,
            len(self.data),
            count,
            self.pzxid,
        )
