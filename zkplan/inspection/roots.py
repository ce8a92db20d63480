"""Hints for a mistyped root: it is not a root of zkplan, and these are the roots beside it."""

from __future__ import annotations

from ..connection import Connection
from ..errors import AccessDenied, ZkplanError
from ..protocol.requests import ReadChildren, ReadData, ReadMany

#: The most znodes beside a root that are examined.
LOOKED_AT = 100
#: Children that every root has from its creation on.
_MARKS = ("claims", "delayed")


def hint_at_root(client: Connection) -> str:
    """The end of a message that no plan was found; empty if the root is one of zkplan."""
    parent, _, name = client.root.rpartition("/")
    if _roots(client, parent, [name]):
        return ""
    # Read in a batch, an unreadable root (by an access list) is only missing, and raises nothing.
    (names,) = client.transport.ask(ReadMany([ReadChildren(parent or "/")], strict=False))
    what = "there is no such root" if name not in (names or ()) else "it is not a root of zkplan"
    others = sorted(other for other in names or () if other != name)[:LOOKED_AT]
    found = [f"{parent}/{other}" for other in _roots(client, parent, others)]
    return f": {what}" + (f"; beside it: {', '.join(found)}" if found else "")


def require_root(client: Connection, hosts: str) -> None:
    """For who only looks: raises ZkplanError where the root is missing, and names those beside it.

    An access list may forbid to read it: then it is there, and what is asked next says why.
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
