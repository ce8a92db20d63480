"""What the simulation knows beside the tree: the tasks as they were meant, and their history."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from zkplan.protocol.records import Dead

if TYPE_CHECKING:
    from zkplan.protocol.shared import Claim


from zkplan.protocol.gates import Condition

FAILED = b"F"
#: The outcome lies in the store, and this refers to it (`store.sealed`).
STORED = b"S"


class Violation(AssertionError):
    """An invariant is broken; the message starts with its number."""


@dataclass(slots=True, eq=False)
class Meant:
    """One task as its author meant it, and its history.

    `fixed` is the outcome that the tree accepted, `delivered` says that it went to a dependent.
    `numbers` counts the znodes created for it,
    `commits` the transactions that finished it. `stored` says that its values are large.
    `gate` is what it waits for outside, and `could_open` says that this has held meanwhile.
    """

    name: str
    deps: list[Meant]
    attempts: int = 3
    keep: bool | None = None
    queue: str = "default"
    pure: bool = False
    adds: list[Meant] = field(default_factory=list)
    foreign: bool = False
    #: Its name is its key, too: two authors may add it.
    keyed: bool = False
    stored: bool = False
    acknowledged: bool = False
    path: str = ""
    number: str = ""
    numbers: int = 0
    commits: int = 0
    removed: bool = False
    fixed: bytes | None = None
    delivered: bool = False
    alive: bool = False
    places: list[str] = field(default_factory=list)
    pending_records: int = 0
    last_n: int = -1
    released_for: list[str] = field(default_factory=list)
    gate: Condition | None = None
    could_open: bool = False

    @property
    def record(self) -> bytes:
        return self.name.encode()

    def outcome(self, arguments: list[bytes]) -> bytes:
        """What the function of this task makes of its arguments; a failure travels on as one."""
        arguments = [] if self.gate is not None else arguments
        text = self.record + b"|" + b"|".join(arguments)
        failed = any(argument.startswith(FAILED) for argument in arguments)
        return (FAILED if failed else b"v") + hashlib.md5(text).hexdigest().encode()

    @property
    def failure(self) -> bytes:
        return FAILED + self.record

    def dead(self, claim: Claim, worker: str) -> Dead:
        return Dead(claim.rank, claim.n, claim.a, self.name, "", worker, claim.queue)

    def may_be(self, outcome: bytes) -> bool:
        """Whether `outcome` is the right result for the dependencies' outcomes, or a failure."""
        arguments = [dep.fixed for dep in self.deps]
        known = [argument for argument in arguments if argument is not None]
        if len(known) < len(arguments):
            return False
        if outcome.startswith(STORED):
            outcome = b"v" + outcome.rpartition(b"-")[2]
        return outcome in (self.outcome(known), self.failure)
