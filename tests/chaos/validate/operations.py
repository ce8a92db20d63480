"""What operators did to plans, as they recorded it: each operation, its begin and its answer."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, Literal

What = Literal["pause", "resume", "cancel", "remove", "retry", "reopen", "share", "move", "skip"]
#: What a plan becomes that does not come to its own end.
Ending = Literal["cancelled", "removed"]


@dataclass
class Operation:
    """One operation; it happened where its outcome is `done`, and may have where it has none.

    `seen` is what the operator saw of the plan right after the answer (of a resume: right before
    it), `heard` what somebody was told who waited for the plan all the time.
    """

    uid: str
    what: What
    path: str
    begun: float
    facts: dict[str, Any]
    answered: float | None = None
    outcome: str = ""
    seen: dict[str, Any] = field(default_factory=dict)
    heard: str = ""
    heard_at: float = 0.0

    @property
    def died(self) -> list[tuple[str, int, int]]:
        """The deaths that it retries: key, number of the last claim, attempts used up."""
        if self.what == "retry":
            return [(self.facts["key"], self.facts["n"], self.facts["a"])]
        return [(key, n, a) for key, n, a in self.facts.get("died", ())]

    @property
    def may_have_happened(self) -> bool:
        return self.outcome in ("", "done")


class Operations:
    """All operations of a run, by the names of their plans."""

    def __init__(self) -> None:
        self.of_plan: defaultdict[str, list[Operation]] = defaultdict(list)
        self._by_uid: dict[str, Operation] = {}

    def take(self, line: dict[str, Any]) -> None:
        """A line that an operator wrote."""
        event = line["event"]
        if event == "operator begun":
            operation = Operation(line["uid"], line["what"], line["path"], line["at"], line)
            self._by_uid[operation.uid] = operation
            self.of_plan[line["plan"]].append(operation)
            return
        operation = self._by_uid[line["uid"]]
        if event == "operator answered":
            operation.answered, operation.outcome = line["at"], line["outcome"]
        elif event == "operator saw":
            operation.seen = line
        else:
            operation.heard, operation.heard_at = line["heard"], line["at"]

    def ending(self, plan: str) -> Ending | None:
        """What the plan may have become by an operator; `removed` outweighs `cancelled`."""
        found = {each.what for each in self.of_plan.get(plan, ()) if each.may_have_happened}
        return "removed" if "remove" in found else "cancelled" if "cancel" in found else None

    def removals(self) -> list[str]:
        """The plans that an operator has, or may have, removed."""
        # As a list first: whoever reads the histories adds to it.
        return [name for name in list(self.of_plan) if self.ending(name) == "removed"]

    def removal_begun(self, plan: str) -> float:
        """When operators began to remove it; if one had no answer, nobody knows what it did."""
        found = [each for each in self.of_plan.get(plan, ()) if each.what == "remove"]
        if not all(each.outcome for each in found):
            return float("-inf")
        return min((each.begun for each in found), default=float("-inf"))

    def was_removed(self, plan: str, before: float) -> bool:
        """Whether an operator was told by then that it is removed."""
        return any(
            each.what == "remove" and each.outcome == "done" and (each.answered or 0.0) < before
            for each in self.of_plan.get(plan, ())
        )

    def forget(self, plan: str) -> None:
        """Give back the memory of what was checked."""
        for operation in self.of_plan.get(plan, ()):
            operation.seen = {}
