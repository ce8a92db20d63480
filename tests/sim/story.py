"""What the simulation knows beside the tree: the tasks as they were meant, and their history."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from zkplan.protocol.core.edges import NUMBER_BYTES, outcome_in
from zkplan.protocol.layout import lane_of
from zkplan.protocol.records import Dead

if TYPE_CHECKING:
    from zkplan.protocol.core.load import Loaded
    from zkplan.protocol.transactions import Claim


from zkplan.protocol.features.gates import Condition

FAILED = b"F"
#: An operator has skipped the task; what follows is unique to that call.
SKIPPED = b"vK"
#: The outcome lies in the store, and this refers to it (`store.sealed`).
STORED = b"S"


class Violation(AssertionError):
    """An invariant is broken; the message starts with its number."""


def name_in(record: bytes) -> str:
    """The name of the task with this definition. Numbers of tasks follow, whose first byte is 0."""
    return record.partition(b"\0")[0].decode(errors="replace")


def outcome_from(dep: Meant, argument: bytes) -> bytes:
    """The outcome that an argument holds. Raises Violation if it says that it is another one's."""
    if argument[:NUMBER_BYTES].decode() != dep.number:
        raise Violation(f"S3 {argument!r} arrives, and it waits for {dep.name} ({dep.number})")
    return outcome_in(argument)


def outcomes_in(item: Loaded) -> list[bytes]:
    """The arguments of a task, without the numbers of the tasks that they come from."""
    return list(map(outcome_in, item.arguments))


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
    limits: list[str] = field(default_factory=list)
    pure: bool = False
    adds: list[Meant] = field(default_factory=list)
    #: Its name is its key, too: two authors may add it.
    keyed: bool = False
    stored: bool = False
    #: The digest of what it shares with other tasks of its plan; empty if it shares nothing.
    shares: str = ""
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
    #: What operators have sent as its outcome, and what of that the tree accepted.
    decisions: list[bytes] = field(default_factory=list)
    accepted: list[bytes] = field(default_factory=list)
    #: The outcome that an operator has decided, until it is delivered or the task is dead.
    verdict: bytes | None = None
    #: The attempts that its dead letter says are used up.
    used_up: int = 0
    #: An operator has cut its open edges.
    cut: bool = False
    #: Somebody has deleted by hand what said where it stands.
    is_lost: bool = False
    #: Its `run_if`: `all_succeeded`, `all_finished` or `any_failed`.
    run_if: str = "all_succeeded"
    #: What has arrived at each position. A failure may come from a task that is retried later.
    given: dict[int, bytes] = field(default_factory=dict)

    @property
    def lane(self) -> str:
        return lane_of(self.queue, self.limits)

    @property
    def record(self) -> bytes:
        return self.name.encode()

    def outcome(self, arguments: list[bytes]) -> bytes:
        """What the function of this task makes of its arguments; a failure travels on as one."""
        arguments = [] if self.gate is not None else arguments
        text = self.record + b"|" + b"|".join(arguments)
        failed = any(argument.startswith(FAILED) for argument in arguments)
        if self.run_if == "any_failed" and not failed:
            return SKIPPED + b"0000"
        failed = failed and not self.takes_failures
        return (FAILED if failed else b"v") + hashlib.md5(text).hexdigest().encode()

    @property
    def takes_failures(self) -> bool:
        return self.run_if != "all_succeeded"

    @property
    def arguments(self) -> list[bytes | None]:
        """What its function gets: what has arrived, or else what will."""
        return [self.given.get(index, dep.fixed) for index, dep in enumerate(self.deps)]

    @property
    def failure(self) -> bytes:
        return FAILED + self.record

    def dead(self, claim: Claim, worker: str) -> Dead:
        used_up = min(claim.a + 1, max(claim.a, self.attempts))
        return Dead(claim.rank, claim.n, used_up, self.name, "", worker, claim.queue)

    def may_be(self, outcome: bytes) -> bool:
        """Whether `outcome` is the right result for the dependencies' outcomes, a failure, or what
        an operator has decided."""
        if outcome in self.accepted:
            return True
        known = [argument for argument in self.arguments if argument is not None]
        if len(known) < len(self.deps):
            return False
        if outcome.startswith(STORED):
            outcome = b"v" + outcome.rpartition(b"-")[2]
        return outcome in (self.outcome(known), self.failure)
