"""What a mistyped root is told by: it is none, and these are the roots beside it."""

from __future__ import annotations

from ..connection import Connection
from ..protocol.requests import ReadChildren, ReadData, ReadMany

#: Znodes beside a root that are looked at.
LOOKED_AT = 100
#: Children of every root, made with it.
_MARKS = ("claims", "delayed")


def hint_at_root(client: Connection) -> str:
    """Why no plan is found under the root, to be added to a message; empty for a root of zkplan."""
    parent, _, name = client.root.rpartition("/")
    if _roots(client, parent, [name]):
        return ""
    # As one of many it may be unreadable (an access list): then no more is said than that.
    (names,) = client.transport.ask(ReadMany([ReadChildren(parent or "/")]))
    what = "there is no such root" if name not in (names or ()) else "it is no root of zkplan"
    others = sorted(other for other in names or () if other != name)[:LOOKED_AT]
    found = [f"{parent}/{other}" for other in _roots(client, parent, others)]
    return f": {what}" + (f"; beside it: {', '.join(found)}" if found else "")


def _roots(client: Connection, parent: str, names: list[str]) -> list[str]:
    """Those of the znodes that look as zkplan makes them."""
    reads = [ReadData(f"{parent}/{name}/{mark}") for name in names for mark in _MARKS]
    nodes = client.transport.ask(ReadMany(reads)) if reads else []
    made = [node is not None for node in nodes]
    return [name for at, name in enumerate(names) if all(made[len(_MARKS) * at :][: len(_MARKS)])]
