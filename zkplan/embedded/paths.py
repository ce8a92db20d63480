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


def is_name(name: str) -> bool:
    """Whether `name` can be the last component of a path."""
    return name not in {"", ".", ".."} and not _FORBIDDEN.search(name)


def is_path(path: str) -> bool:
    """Whether `path` can be that of a node."""
    return path == "/" or (path.startswith("/") and all(map(is_name, path[1:].split("/"))))
