"""S24: an update is applied once, in one transaction, and what it demands of tasks holds then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from zkplan.protocol.layout import UPDATE, parse_claim, parse_delayed, parse_entry, parse_gate
from zkplan.protocol.requests import Create, Delete, Op

from . import keyed
from .network import Fiber
from .story import FAILED, Meant, Violation, name_in

_ROOMS = {"running": "claims/", "delayed": "delayed/", "gated": "gates/"}


@dataclass(slots=True, eq=False)
class Intent:
    """What one update is to do: the auditor holds what is applied against it."""

    claims: set[str]
    decided: dict[bytes, Meant] = field(default_factory=dict)
    added: set[bytes] = field(default_factory=set)
    #: The version that each of these tasks must have.
    demands: dict[str, str] = field(default_factory=dict)
    applied: bool = False


class Auditor(keyed.Auditor):
    """S24, for the updates in `intents`, by their marks."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.intents: dict[str, Intent] = {}

    def applied(self, fiber: Fiber, ops: Sequence[Op], results: list[Any]) -> None:
        super().applied(fiber, ops, results)
        made = [op for op in ops if type(op) is Create]
        marks = [op.path for op in made if f"/add-ids/{UPDATE}" in op.path]
        data = {op.data for op in made if op.path.endswith("/result")}
        data |= {name_in(op.data).encode() for op in made if op.path.endswith("/task-")}
        again = _told_again(ops)
        for mark, intent in self.intents.items():
            pieces = intent.decided.keys() | intent.added
            if intent.applied:
                pieces -= again
            if mark not in marks and pieces & data:
                raise Violation(f"S24 a part of {mark} is applied without it")
        for mark in marks:
            self._whole(mark, self.intents[mark], ops, data)

    def _whole(self, mark: str, intent: Intent, ops: Sequence[Op], data: set[bytes]) -> None:
        ended = {op.path for op in ops if type(op) is Delete}
        if intent.applied:
            raise Violation(f"S24 {mark} is applied twice")
        if not intent.claims <= ended or not intent.decided.keys() | intent.added <= data:
            raise Violation(f"S24 only a part of {mark} is applied")
        # The update itself may give a waiting task its last argument, behind the check.
        own = {op.path for op in ops if type(op) is Create}
        for task, version in intent.demands.items():
            if not _stands_as(self.tasks[task], version, own):
                raise Violation(f"S24 {mark} demands {version} of {task}, which is elsewhere")
        intent.applied = True


def _told_again(ops: Sequence[Op]) -> set[bytes]:
    """The failures of dead tasks that become their outcomes once more (`decisions.send_failure`).

    No update does that: a cancel takes no task from there, and a skip is no failure.
    """
    letters = {op.path for op in ops if type(op) is Delete and "/dead/" in op.path}
    results = [op for op in ops if type(op) is Create and op.path.endswith("/result")]
    return {
        op.data
        for op in results
        if op.data.startswith(FAILED)
        and op.path.removesuffix("/result").replace("/task-", "/dead/") in letters
    }


def _stands_as(task: Meant, version: str, own: set[str]) -> bool:
    """Whether the task is in the place that a version tells, as far as its number says."""
    state, n = version.split(".")[:2]
    if state == "waiting":
        return own.issuperset(task.places)
    for path in task.places:
        name = path.rpartition("/")[2]
        claim, later, gate = parse_claim(name), parse_delayed(name), parse_gate(name)
        entry = later.entry if later else gate.entry if gate else parse_entry(name)
        found = claim.n if claim is not None else entry.n if entry is not None else None
        kind = "/dead/" in path if state == "dead" else f"/{_ROOMS.get(state, '')}" in path
        if kind and (found is None or str(found) == n):
            return True
    return False
