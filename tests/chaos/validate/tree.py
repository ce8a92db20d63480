"""What no two looks at the tree may show: L1, claims of workers that are gone.

Read while everything goes on, in an order in which only a broken promise can show.
"""

from __future__ import annotations

import zkplan
from zkplan.protocol.core.end_claims import orphaned_claims
from zkplan.protocol.layout import parse_claim
from zkplan.protocol.requests import ReadChildren


class Tree:
    """Looks again and again through one connection to one server; not across a restored backup."""

    def __init__(self, client: zkplan.Client) -> None:
        self._client = client
        #: The claims that a vanished worker left: from then on there are fewer and fewer.
        self._left: dict[str, set[str]] = {}

    def look(self) -> list[str]:
        """Every violation that shows now, with the number of the invariant."""
        transport, paths = self._client.transport, self._client.paths
        vacant = transport.run(orphaned_claims(paths)).vacant
        found: list[str] = []
        for claims_node in vacant:
            names = transport.ask(ReadChildren(paths.claims_of(claims_node))) or ()
            claims = {name for name in names if parse_claim(name) is not None}
            late = claims - self._left.setdefault(claims_node, claims)
            found += [f"L1 {name} was claimed by {claims_node}, which was gone" for name in late]
            self._left[claims_node] = claims
        return found
