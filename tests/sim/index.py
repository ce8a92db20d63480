"""S14: a plan stands in the index of active plans if and only if it is active."""

from __future__ import annotations

from zkplan.embedded.tree import Tree
from zkplan.protocol.records import control_from_bytes

from .story import Violation


class Index:
    """Judges the index of the plans under `root`."""

    def __init__(self, root: str, tree: Tree) -> None:
        self.nodes = tree._nodes  # read directly: the tree's own reads copy
        self.active = f"{root}/active/"
        #: Plans of plain creates that nobody has found yet.
        self.unindexed: set[str] = set()

    def may_enter(self, plan_path: str) -> bool:
        """Whether a scan finds that plan."""
        return plan_path in self.unindexed and self._is_active(plan_path)

    def _is_active(self, plan_path: str) -> bool:
        ready = self.nodes.get(f"{plan_path}/ready")
        if ready is None or f"{plan_path}/done" in self.nodes:
            return False
        return control_from_bytes(ready.data) != "cancelled"

    def judge(self, plan_path: str) -> None:
        entry, active = f"{self.active}{plan_path[-10:]}", self._is_active(plan_path)
        if entry in self.nodes:
            self.unindexed.discard(plan_path)
            if not active:
                raise Violation(f"S14 {plan_path} is not active, and stands in the index")
        elif active and plan_path not in self.unindexed:
            raise Violation(f"S14 {plan_path} is active, and does not stand in the index")
