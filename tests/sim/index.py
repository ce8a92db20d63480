"""S14, S25: a plan stands in the index of active plans if and only if it is active, and in that of
failed ones if and only if it has failed."""

from __future__ import annotations

from collections.abc import Callable

from zkplan.embedded.tree import Tree
from zkplan.protocol.layout import failed_entry
from zkplan.protocol.records import control_from_bytes

from .story import Violation


class Index:
    """Judges the index of the plans under `root`. `opened` gives the data of a znode without the
    seal."""

    def __init__(self, root: str, tree: Tree, opened: Callable[[str], bytes]) -> None:
        self.opened = opened
        self.nodes = tree._nodes  # read directly: the tree's own reads copy
        self.active = f"{root}/active/"
        #: Plans whose entry somebody deleted by hand, and that no scan has found since.
        self.unindexed: set[str] = set()

    def may_enter(self, plan_path: str) -> bool:
        """Whether a scan finds that plan."""
        return plan_path in self.unindexed and self._is_active(plan_path)

    def _is_active(self, plan_path: str) -> bool:
        ready = f"{plan_path}/ready"
        if ready not in self.nodes or f"{plan_path}/done" in self.nodes:
            return False
        return control_from_bytes(self.opened(ready)) != "cancelled"

    def _judge_failed(self, plan_path: str) -> None:
        """S25; but for what is being removed."""
        node, entry = self.nodes.get(plan_path), failed_entry(plan_path)
        if node is None or "ready" not in node.children:
            return
        if control_from_bytes(self.opened(f"{plan_path}/ready")) == "cancelled":
            return
        dead = self.nodes.get(f"{plan_path}/dead")
        has_failed = "done" in node.children and dead is not None and bool(dead.children)
        is_put_back = control_from_bytes(self.opened(f"{plan_path}/ready")) == "paused"
        if has_failed != (entry in self.nodes) and not is_put_back:
            raise Violation(f"S25 {plan_path} has failed: {has_failed}, its entry says otherwise")

    def judge(self, plan_path: str) -> None:
        self._judge_failed(plan_path)
        entry, active = f"{self.active}{plan_path[-10:]}", self._is_active(plan_path)
        if entry in self.nodes:
            self.unindexed.discard(plan_path)
            if not active:
                raise Violation(f"S14 {plan_path} is not active, and stands in the index")
        elif active and plan_path not in self.unindexed:
            raise Violation(f"S14 {plan_path} is active, and does not stand in the index")
