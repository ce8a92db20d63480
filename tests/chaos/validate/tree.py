"""What no two looks at the tree may show: claims of the lost or of paused plans, done with tasks.

Read while everything goes on. Each look lists in an order in which only a broken promise can show.
"""

from __future__ import annotations

from collections.abc import Iterable

import zkplan
from zkplan.protocol.clearing import orphaned_claims
from zkplan.protocol.layout import parse_claim
from zkplan.protocol.records import control_from_bytes
from zkplan.protocol.requests import Node, ReadChildren, ReadData, ReadMany

Claims = frozenset[str]


class Tree:
    """Looks again and again through one connection to one server; not across a restored backup."""

    def __init__(self, client: zkplan.Client) -> None:
        self._client, self._paths = client, client.paths
        #: The claims that a vanished worker left: from then on there are fewer and fewer.
        self._left: dict[str, Claims] = {}
        #: The version under which a plan was paused or cancelled, and its claims since then.
        self._paused: dict[str, tuple[int, Claims]] = {}

    def look(self) -> list[str]:
        """Every violation that shows now, with the number of the invariant."""
        ask = self._client.transport.ask
        plans = [plan.path for plan in self._client.plans()]
        ready = {path: ask(ReadData(f"{path}/ready")) for path in plans}
        _, vacant = self._client.transport.run(orphaned_claims(self._paths))
        claims_nodes = ask(ReadChildren(self._paths.claims)) or []
        lists = ask(
            ReadMany(
                [ReadChildren(self._paths.claims_of(claims_node)) for claims_node in claims_nodes]
            )
        )
        held = {
            claims_node: frozenset(name for name in names or () if parse_claim(name) is not None)
            for claims_node, names in zip(claims_nodes, lists, strict=True)
        }
        found = self._of_the_lost(
            {claims_node: held[claims_node] for claims_node in vacant if claims_node in held}
        )
        for path in plans:
            found += self._of_a_stopped(path, ready[path], held.values())
            names = ask(ReadChildren(path)) or []
            tasks = [name for name in names if name.startswith("task-")]
            if "done" in names and tasks:
                found.append(f"S7 {path} is done and has {tasks[:5]}")
        return found

    def _of_the_lost(self, vacant: dict[str, Claims]) -> list[str]:
        """L1: whose registration is gone claims nothing any more."""
        before, self._left = self._left, self._left | vacant
        return [
            f"L1 {name} was claimed by {claims_node}, which was gone"
            for claims_node, claims in vacant.items()
            for name in sorted(claims - before.get(claims_node, claims))
        ]

    def _of_a_stopped(self, path: str, before: Node | None, held: Iterable[Claims]) -> list[str]:
        """S9: nothing of a paused or cancelled plan is claimed after the change."""
        after = self._client.transport.ask(ReadData(f"{path}/ready"))
        if before is None or after is None or control_from_bytes(after.data) == "running":
            return []
        number = path.rpartition("-")[2]
        claims = frozenset(name for names in held for name in names if name.startswith(number))
        version, known = self._paused.get(path, (-1, claims))
        if before.version != after.version:
            return []  # the change came while this looked: these may be older than it
        self._paused[path] = (after.version, claims)
        if version != after.version:
            return []
        return [
            f"S9 {name} was claimed while {path} was {control_from_bytes(after.data)}"
            for name in sorted(claims - known)
        ]
