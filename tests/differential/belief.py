"""Which nodes a program's author believes there are, so that most requests meet one."""

from __future__ import annotations

import random


class Belief:
    """Paths and whether each is an ephemeral of a client. It may err: no server is asked."""

    def __init__(self, dice: random.Random) -> None:
        self.random = dice
        self.owners: dict[str, int | None] = {"~": None}

    def any_node(self) -> str:
        """A node that may be there; newer ones more often."""
        paths = list(self.owners)
        return self.random.choice(paths[-15:] if self.random.random() < 0.7 else paths)

    def parent(self) -> str:
        """A node that may have children."""
        paths = [path for path, owner in self.owners.items() if owner is None]
        return self.random.choice(paths[-8:] if self.random.random() < 0.7 else paths)

    def leaf(self) -> str:
        """A node without children, where there is one besides the root node."""
        parents = {path.rpartition("/")[0] for path in self.owners}
        leaves = [path for path in self.owners if path not in parents and path != "~"]
        return self.random.choice(leaves) if leaves else "~"

    def created(self, path: str, owner: int | None) -> None:
        parent = path.rpartition("/")[0]
        if self.owners.get(parent, 0) is None:
            self.owners.setdefault(path, owner)

    def numbered(self, prefix: str) -> str:
        """The path a sequential create at `prefix` may make."""
        parent = prefix.rpartition("/")[0]
        return f"{prefix}{sum(path.startswith(parent + '/') for path in self.owners):010}"

    def deleted(self, path: str) -> None:
        if path != "~" and not any(other.startswith(path + "/") for other in self.owners):
            self.owners.pop(path, None)

    def ended(self, client: int) -> None:
        """The client's session has ended."""
        self.owners = {path: owner for path, owner in self.owners.items() if owner != client}
