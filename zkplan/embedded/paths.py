"""Which paths a ZooKeeper server accepts for a znode.

The real server judges a path only where it writes: a read of an impossible path is a read of a
node that does not exist. Java counts UTF-16 units and refuses surrogates, so every character
beyond U+FFFF is refused as well.
"""

from __future__ import annotations

import re

# The server's own nodes and the root: deleting them is a bad argument, whether they exist or not.
UNDELETABLE = frozenset({"/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"})

_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]")


def name_fault(name: str) -> str | None:
    """What is wrong with `name` as the last component of a path; None if nothing is."""
    if not name:
        return "an empty node name"
    if name in {".", ".."}:
        return f"the relative component {name!r}"
    if found := _FORBIDDEN.search(name):
        return f"the forbidden character {found.group()!r}"
    return None


def path_fault(path: str) -> str | None:
    """What is wrong with the absolute path `path`; None if nothing is."""
    if path == "/":
        return None
    if not path.startswith("/"):
        return "no leading slash"
    for name in path[1:].split("/"):
        if fault := name_fault(name):
            return fault
    return None
