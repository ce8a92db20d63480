"""Recognise a root, show who may access it, and close it to others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from ..basics.log import get_logger
from ..errors import AccessDenied, ZkplanError
from ..protocol.requests import ReadChildren, ReadData, ReadMany
from ..transport.probes import (
    RIGHTS,
    AccessList,
    access_lists,
    close_each,
    granted_to_outsiders,
    open_rights,
)
from ..values.connection import Connection

#: How many paths are named as examples of each kind.
EXAMPLES = 5
#: A client without a login may create open znodes meanwhile: each pass closes those made since.
_PASSES = 10
_AT_ONCE = 500
BY_SERVER = (
    "closed by the server's own login (its znodes have open lists; the server lets nobody in "
    "without its login)"
)

logger = get_logger("zkplan.access")
_warned: set[tuple[str, str]] = set()


@dataclass
class Open:
    """How many znodes are open to outsiders for one kind of access, and the first of these."""

    znodes: int = 0
    examples: list[str] = field(default_factory=list)

    def note(self, path: str) -> None:
        """Count one more."""
        self.znodes += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(path)


@dataclass
class RootAccess:
    """Who may do what under a root. An outsider is anyone who reaches ZooKeeper without a login."""

    root: str
    znodes: int = 0
    #: Whether the server itself refuses outsiders everything, whatever the lists say.
    closed_by_server: bool = False
    #: Znodes whose lists let in everyone that the server lets in.
    open_lists: Open = field(default_factory=Open)
    #: By access: list, read, write, create (below it), delete (it), and admin (change its list).
    outsiders: dict[str, Open] = field(default_factory=dict)
    #: How many znodes each login has each set of rights on, such as `digest:app read+write`.
    logins: Counter[str] = field(default_factory=Counter)
    #: Znodes whose list, or whose children, this client may not read, so nothing else is known.
    unreadable: Open = field(default_factory=Open)

    @property
    def is_open(self) -> bool:
        return any(found.znodes for found in self.outsiders.values())

    @property
    def told(self) -> str:
        """How a closed root is closed, as the end of a sentence."""
        is_by_server = self.closed_by_server and self.open_lists.znodes
        return BY_SERVER if is_by_server else "closed to everybody without a login"


class Closing(NamedTuple):
    """How many znodes were closed, and which znodes this client may not read."""

    znodes: int
    unreadable: Open


def root_access(client: Connection) -> RootAccess:
    """Look at every znode of the root.

    Raises ZkplanError if there is no root, and AccessDenied if it may not be read.
    """
    report = RootAccess(client.root, closed_by_server=client.transport.server_is_closed)
    report.outsiders = {deed: Open() for deed in ("list", *RIGHTS)}
    rights_on: dict[str, int] = {}
    parent = client.root.rpartition("/")[0] or "/"
    rights_on[parent] = open_rights(client.transport, parent) or 0
    for path, found in access_lists(client.transport, client.root):
        if found is None:
            _note_unreadable(client, path, report.unreadable)
            continue
        report.znodes += 1
        for login, bits in found.logins:
            report.logins[f"{login} {rights(bits)}"] += 1
        if found.open_to:
            report.open_lists.note(path)
        if report.closed_by_server:
            continue
        above = path.rpartition("/")[0] or "/"
        # The right to delete a znode lies with its parent. The root itself has children, and
        # ZooKeeper deletes no znode that has some.
        deletable = above != parent and rights_on.get(above, 0) & RIGHTS["delete"]
        if found.open_to & RIGHTS["delete"]:
            rights_on[path] = found.open_to
        if deletable:
            report.outsiders["delete"].note(path)
        for deed in ("read", "write", "create", "admin"):
            if found.open_to & RIGHTS[deed]:
                report.outsiders[deed].note(path)
        if found.open_to & RIGHTS["read"]:
            report.outsiders["list"].note(path)
    if not report.znodes:
        raise ZkplanError(f"there is no root {client.root}: create it with `zkplan root init`")
    return report


def close_root(client: Connection) -> Closing:
    """Close every znode of the root that is open to outsiders. May be repeated.

    Znodes that are closed already keep their lists, also those of other logins. Raises ZkplanError
    without a login, and if others keep creating open znodes; AccessDenied if this client may not
    read the root, or not change a list.
    """
    require_login(client)
    total = 0
    for _ in range(_PASSES):
        unreadable, closed = Open(), 0
        for group in _groups(_open_ones(client, unreadable)):
            done, refused = close_each(client.transport, group)
            closed += done
            if refused:
                what = f"the list of {refused[0]} cannot be changed"
                raise AccessDenied(refused[0], "admin", what)
        total += closed
        if not closed:
            return Closing(total, unreadable)
    raise ZkplanError(
        f"{total} znodes under {client.root} are closed, but open ones are created all the time: "
        "restart with a login the workers and authors that have none, and run this again"
    )


def workers_without_login(client: Connection) -> list[str]:
    """The living workers that registered without a login: a closed root shuts them out.

    Raises AccessDenied where this client may not see which workers there are.
    """
    workers, without = client.paths.workers, []
    for path, found in access_lists(client.transport, workers):
        if found is None and path == workers:
            raise _may_not_read(path)
        if found is not None and path != workers and not found.logins:
            without.append(path.removeprefix(f"{workers}/"))
    return without


def require_login(client: Connection) -> None:
    """Raises ZkplanError if this client has no login: it would shut itself out."""
    if not client.transport.logs_in:
        raise ZkplanError(
            "this needs a login, which will be the only one that reaches the root: give one in a "
            "profile, or auth_data in zkplan.connect"
        )


def warn_if_open(client: Connection) -> None:
    """Log that the root is open, once in this process, if this client logs in."""
    if not client.transport.logs_in:
        return
    key = (client.transport.hosts, client.root)
    bits = (open_rights(client.transport, client.root) or 0) & ~granted_to_outsiders(
        client.transport
    )
    if bits and key not in _warned and not client.transport.server_is_closed:
        _warned.add(key)
        logger.warning(
            "%s is open: whoever reaches ZooKeeper may %s there without a login, and so run code "
            "in workers, and in authors that read results; close it with `zkplan root lock`",
            client.root,
            rights(bits),
        )


def rights(bits: int) -> str:
    """
    >>> rights(31), rights(3)
    ('read+write+create+delete+admin', 'read+write')
    """
    return "+".join(name for name, bit in RIGHTS.items() if bits & bit)


def _open_ones(client: Connection, unreadable: Open) -> Iterator[AccessList]:
    allowed = granted_to_outsiders(client.transport)
    for path, found in access_lists(client.transport, client.root):
        if found is None:
            _note_unreadable(client, path, unreadable)
        elif found.open_to & ~allowed:
            yield found


def _note_unreadable(client: Connection, path: str, unreadable: Open) -> None:
    """Count the znode. Raises AccessDenied for the root itself, below which nothing can be read."""
    if path == client.root:
        raise _may_not_read(path)
    unreadable.note(path)


def _may_not_read(path: str) -> AccessDenied:
    return AccessDenied(path, "read", f"an access list does not let this client read {path}")


def _groups(found: Iterator[AccessList]) -> Iterator[list[AccessList]]:
    while group := list(islice(found, _AT_ONCE)):
        yield group


# ---- Hints for a mistyped root: it is not a root of zkplan, and these are the roots beside it.


#: The most znodes beside a root that are examined.
LOOKED_AT = 100
#: Children that every root has from its creation on.
_MARKS = ("claims", "delayed")


def hint_at_root(client: Connection) -> str:
    """The end of a message that no plan was found; empty if the root is one of zkplan."""
    parent, _, name = client.root.rpartition("/")
    if _roots(client, parent, [name]):
        return ""
    # In a batch of reads, a root that an access list hides is only missing, and raises nothing.
    (names,) = client.transport.ask(ReadMany([ReadChildren(parent or "/")], strict=False))
    what = "there is no such root" if name not in (names or ()) else "it is not a root of zkplan"
    others = sorted(other for other in names or () if other != name)[:LOOKED_AT]
    found = [f"{parent}/{other}" for other in _roots(client, parent, others)]
    return f": {what}" + (f"; beside it: {', '.join(found)}" if found else "")


def require_root(client: Connection, hosts: str) -> None:
    """Raise ZkplanError if the root is missing, and name the roots beside it.

    If an access list forbids reading the root, it exists, and the next request says why.
    """
    try:
        is_there = client.transport.ask(ReadData(client.root)) is not None
    except AccessDenied:
        return
    if not is_there:
        raise ZkplanError(
            f"there are no plans under {client.root} of {hosts}{hint_at_root(client)}. The "
            "first author or worker creates a root; is the name (--root) right?"
        )


def _roots(client: Connection, parent: str, names: list[str]) -> list[str]:
    """The znodes that look like a root of zkplan."""
    reads = [ReadData(f"{parent}/{name}/{mark}") for name in names for mark in _MARKS]
    nodes = client.transport.ask(ReadMany(reads, strict=False)) if reads else []
    made = [node is not None for node in nodes]
    return [name for at, name in enumerate(names) if all(made[len(_MARKS) * at :][: len(_MARKS)])]
