"""One znode in memory, with the server's 32-bit arithmetic of versions and counters."""

from __future__ import annotations

from zkplan.embedded.records import Acl, Stat

# At its end a version wraps around; the counter of a parent stays there, so that each later
# sequential create meets the last name again and is refused.
INT_MAX = 2**31 - 1

# The owner of a container, and the first of the owners of TTL nodes: 0xff in the top byte of a
# signed 64-bit number and the milliseconds below. Any other owner but 0 is a session.
CONTAINER_OWNER = -(2**63)
TTL_OWNER = -(2**56)
TTL_MS_MAX = 2**40 - 1

#: The children of every node without one: never written, so that a leaf needs no dict of its own.
NO_CHILDREN: dict[str, None] = {}


def ttl_of(owner: int) -> int:
    """The milliseconds that a TTL node may live; 0 for any other owner."""
    return owner - TTL_OWNER if TTL_OWNER <= owner < 0 else 0


def is_session(owner: int) -> bool:
    """Whether this owner of a node is a session, which makes the node ephemeral."""
    return owner > 0 or (owner < TTL_OWNER and owner != CONTAINER_OWNER)


class Node:
    """A mutable znode; `creates` counts the children ever created and numbers the next one.

    `number` is unique in its tree and grows with every node created. `acl` is None where everybody
    may do everything. `children` keeps the order of creation and is changed by the methods alone.
    """

    __slots__ = (
        "acl",
        "aversion",
        "children",
        "creates",
        "ctime",
        "czxid",
        "data",
        "mtime",
        "mzxid",
        "number",
        "owner",
        "pzxid",
        "version",
    )

    def __init__(
        self,
        data: bytes = b"",
        owner: int = 0,
        zxid: int = 0,
        now_ms: int = 0,
        number: int = 0,
        acl: tuple[Acl, ...] | None = None,
    ) -> None:
        self.data = data
        self.owner = owner
        self.acl = acl
        self.number = number
        self.version = self.creates = self.aversion = 0
        self.czxid = self.mzxid = self.pzxid = zxid
        self.ctime = self.mtime = now_ms
        self.children = NO_CHILDREN

    def list_child(self, name: str) -> None:
        """Put a child on the list."""
        if self.children:
            self.children[name] = None
        else:
            self.children = {name: None}

    def unlist_child(self, name: str) -> None:
        """Take a child off the list; the last one takes the list along."""
        del self.children[name]
        if not self.children:
            # An emptied dict would keep its memory.
            self.children = NO_CHILDREN

    def stat(self) -> Stat:
        """What a server would report now: of an owner only the session."""
        count = len(self.children)
        cversion = 2 * self.creates - count
        owner = self.owner
        return Stat(
            self.czxid,
            self.mzxid,
            self.ctime,
            self.mtime,
            self.version,
            cversion if cversion <= INT_MAX else cversion - 2**32,
            self.aversion,
            owner if owner >= 0 or is_session(owner) else 0,
            len(self.data),
            count,
            self.pzxid,
        )


def raised(version: int) -> int:
    """The version after `version`, in 32 bits."""
    return version + 1 if version < INT_MAX else -INT_MAX - 1
