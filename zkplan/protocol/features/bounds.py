"""The bounds of a root: retention, archiving, the budget, and how much room plans take.

All of it is one znode, which a root has from the first setting on. Authors read it in a batch that
they send anyway, and workers only where a plan may be due, or where one of them counts.
"""

from __future__ import annotations

import math
import random
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ...backoff import CHANCE
from ...basics.text import count, size
from ...errors import BudgetSpent, PayloadUndecodable, TransactionRejected
from ..core.load import read_all
from ..core.plans_and_queues import ended_at, names_on_claims_nodes, readable_record
from ..fields import as_lasting, as_whole_from_0, from_json, lasting_to_json, to_json
from ..layout import Paths, number_of, parse_claim, parse_task
from ..records import PlanRecord
from ..requests import (
    Applied,
    Create,
    Multi,
    Node,
    ReadChildren,
    ReadData,
    ReadMany,
    Reason,
    SetData,
    Step,
)
from ..transactions import REFUSALS_MAX, rejected

_Data = bytes  # which is the name of a field below
#: How long a finished plan stays where neither its author nor the root says anything, in seconds.
RETENTION_S = 30 * 86400.0
#: From this share of the budget on authors and workers are warned.
WARN_SHARE = 0.8


class Used(NamedTuple):
    """The room that plans took when they were counted: `bytes` of data, `counted` in wall-clock
    seconds since 1970 of the server. `exact`: no plan was so large that a sample stands for it."""

    plans: int
    znodes: int
    bytes: int
    counted: float
    exact: bool


@dataclass(frozen=True, slots=True)
class Bounds:
    """What holds for a root. `retention`: how many seconds a finished plan stays whose author says
    nothing; infinite: for ever. `archive`: it is archived before it is removed. `znodes` and
    `bytes` are the budget, and None where there is none. `used` is what was counted last."""

    retention: float = RETENTION_S
    archive: bool = False
    znodes: int | None = None
    bytes: int | None = None
    used: Used | None = None

    @property
    def has_budget(self) -> bool:
        return self.znodes is not None or self.bytes is not None

    @property
    def share(self) -> float:
        """The share of the budget that is used, as far as it was counted: 1.0 is all of it."""
        if self.used is None or not self.has_budget:
            return 0.0
        pairs = ((self.used.znodes, self.znodes), (self.used.bytes, self.bytes))
        # A budget of 0 is spent by nothing: it lets no plan in.
        return max((used / most if most else 1.0 for used, most in pairs if most is not None))

    @property
    def told(self) -> str:
        """How much of the budget is used, for people."""
        if self.used is None or not self.has_budget:
            return "no plan was counted yet"
        parts = []
        if self.znodes is not None:
            parts.append(f"{self.used.znodes:,} of {count(self.znodes, 'znode')}")
        if self.bytes is not None:
            parts.append(f"{size(self.used.bytes)} of {size(self.bytes)} of data")
        return ", ".join(parts)

    def to_bytes(self) -> _Data:
        value: dict[str, Any] = {}
        if self.retention != RETENTION_S:
            value["retention"] = lasting_to_json(self.retention)
        if self.archive:
            value["archive"] = True
        for name in ("znodes", "bytes"):
            if getattr(self, name) is not None:
                value[name] = getattr(self, name)
        if self.used is not None:
            value["used"] = self.used._asdict()
        return to_json(value)

    @classmethod
    def from_bytes(cls, data: _Data) -> Bounds:
        """Raises PayloadUndecodable. A damaged part removes nothing and refuses nothing."""
        value = from_json(data, "the bounds of a root") if data else {}
        retention = RETENTION_S
        if "retention" in value:
            known = as_lasting(value["retention"])
            retention = math.inf if known is None else known
        return cls(
            retention=retention,
            archive=value.get("archive", False) is not False,
            znodes=as_whole_from_0(value.get("znodes")),
            bytes=as_whole_from_0(value.get("bytes")),
            used=_used(value.get("used")),
        )


def _used(value: Any) -> Used | None:
    if not isinstance(value, dict):
        return None
    numbers = [as_whole_from_0(value.get(name)) for name in ("plans", "znodes", "bytes")]
    counted = as_lasting(value.get("counted"))
    if None in numbers or counted is None or counted == math.inf:
        return None
    return Used(*numbers, counted, value.get("exact") is True)  # type: ignore[call-arg,arg-type]


# ---- the budget


def refuse_if_spent(paths: Paths, node: Node | None) -> Bounds | None:
    """Raise BudgetSpent where the plans have used it up. Returns the bounds where there is a
    budget.

    An bounds that is damaged binds nobody.
    """
    try:
        found = Bounds.from_bytes(node.data) if node is not None else None
    except PayloadUndecodable:
        return None
    if found is None or not found.has_budget:
        return None
    if found.share >= 1.0:
        raise BudgetSpent(
            paths.root,
            f"the plans under {paths.root} take {found.told}, which is their budget, so no new "
            "plan is created; those that are there go on. Remove finished plans (`zkplan plan gc`) "
            "or raise the budget (`zkplan root budget set`)",
        )
    return found


def warning_of(paths: Paths, found: Bounds) -> str:
    """What to warn of where the budget is nearly spent; else empty. It changes with each twentieth,
    so that who tells each text once tells it four times at most."""
    if not WARN_SHARE <= found.share < 1.0:
        return ""
    percent = int(found.share * 20) * 5
    return (
        f"the plans under {paths.root} take {percent} % or more of their budget; at 100 % new "
        "plans are refused: remove finished ones (`zkplan plan gc`), or raise the budget"
    )


# ---- reading and changing it


def read_bounds(paths: Paths) -> Step[Bounds]:
    """Raises PayloadUndecodable."""
    node = yield ReadData(paths.bounds)
    return _of(paths, node)


def _of(paths: Paths, node: Node | None) -> Bounds:
    try:
        return Bounds() if node is None else Bounds.from_bytes(node.data)
    except PayloadUndecodable as error:
        raise PayloadUndecodable(
            f"{paths.bounds} is damaged, somebody changed it by hand ({error}): nothing is removed "
            "and no budget counts until it is deleted, or set anew (`zkplan root retention set`)"
        ) from None


def change_bounds(paths: Paths, changes: dict[str, Any], anew: bool = False) -> Step[Bounds]:
    """Change these fields, and leave the others. `anew`: a damaged bounds is replaced.

    The root exists. Raises TransactionRejected.
    """
    for _ in range(REFUSALS_MAX):
        node = yield ReadData(paths.bounds)
        try:
            before = _of(paths, node)
        except PayloadUndecodable:
            if not anew:
                raise
            before = Bounds()
        after = replace(before, **changes)
        data = after.to_bytes()
        if node is None:
            # Empty, so that no earlier bounds count again where somebody makes the znode anew.
            answer = yield Multi([Create(paths.bounds)])
            if isinstance(answer, Applied):
                continue
        else:
            answer = yield Multi([SetData(paths.bounds, data, node.version)])
        if isinstance(answer, Applied):
            return after
        if answer.reason not in (Reason.NO_NODE, Reason.NODE_EXISTS, Reason.BAD_VERSION):
            raise rejected(f"changing {paths.bounds}", answer)
        if answer.reason is Reason.NO_NODE and node is None:
            raise rejected(f"creating {paths.bounds}", answer)
    raise TransactionRejected(f"{paths.bounds} is changed by others all the time; try again")


# ---- whose retention is over


class Over(NamedTuple):
    """A plan that may be removed: it has ended for good, and its retention is over."""

    path: str
    record: PlanRecord | None
    state: str
    ended: float
    #: Which end that is: see `remove_plan.remove`.
    end: int = 0


def is_over(paths: Paths, plan: str, now: float) -> Step[Over | None]:
    """Read anew whether the plan may be removed at `now`, which is the server's time.

    Both states are final, and neither gets a claim any more (S9). So the claims are read behind
    them, and what is found holds for good. Raises PayloadUndecodable for a damaged bounds.
    """
    path = paths.plan(plan)
    parts = [path, f"{path}/ready", f"{path}/done", paths.bounds]
    node, ready, done, bounds = yield ReadMany([ReadData(each) for each in parts], True)
    state, ended = ended_at(ready, done)
    if node is None or not state:
        return None
    record = readable_record(node.data)
    if record is None:
        return None  # of a later zkplan, which knows its retention
    retention = record.retention
    if retention is None:
        retention = _of(paths, bounds).retention
    if now - ended < retention:
        return None
    for _, name in (yield from names_on_claims_nodes(paths, True)):
        claim = parse_claim(name)
        if claim is not None and claim.plan == number_of(path):
            return None
    return Over(path, record, state, ended, done.czxid if done is not None else 0)


# ---- How much room plans take: counted exactly where they are small, by a sample where they are
# large.
#
# A server that is asked for it would look at every znode that it has, and not every one can be
# asked. So a client counts, and reads what it counts.


#: Of more znodes of one kind only so many are read; they stand for the others.
SAMPLE = 1000


class Room(NamedTuple):
    """What a plan takes: znodes, itself included, and bytes of data. `exact`: all were read."""

    znodes: float
    bytes: float
    exact: bool = True

    def plus(self, other: Room) -> Room:
        return Room(
            self.znodes + other.znodes, self.bytes + other.bytes, self.exact and other.exact
        )


NONE = Room(0, 0)


def room_of(plan_path: str, chance: random.Random = CHANCE) -> Step[Room]:
    """How much room a plan takes; none where it does not exist.

    Reads some thousands of znodes at most, however large the plan is. What changes meanwhile may be
    counted or not.
    """
    names = yield ReadChildren(plan_path)
    node = yield ReadData(plan_path)
    if names is None or node is None:
        return NONE
    total = Room(1, len(node.data))
    fixed = [f"{plan_path}/{name}" for name in names if parse_task(name) is None]
    tasks = [f"{plan_path}/{name}" for name in names if parse_task(name) is not None]
    for kind in (*([each] for each in fixed), tasks):
        found = yield from _kind(kind, chance)
        total = total.plus(found)
    return total


def _kind(paths: Sequence[str], chance: random.Random) -> Step[Room]:
    """These znodes of one kind and all that is below them."""
    total, weight, exact = NONE, 1.0, True
    while paths:
        chosen = paths
        if len(paths) > SAMPLE:
            chosen, exact = chance.sample(paths, SAMPLE), False
        weight *= len(paths) / len(chosen)
        nodes = yield from read_all([ReadData(path) for path in chosen], strict=False)
        there = [(path, node) for path, node in zip(chosen, nodes, strict=True) if node is not None]
        data = sum(len(node.data) for _, node in there)
        total = total.plus(Room(weight * len(there), weight * data, exact))
        above = [path for path, node in there if node.child_count]
        lists = yield from read_all([ReadChildren(path) for path in above], strict=False)
        paths = [
            f"{path}/{name}"
            for path, names in zip(above, lists, strict=True)
            for name in names or ()
        ]
    return total


def count_plans(
    paths: Paths, plans: Sequence[str], known: dict[str, Room], ended: Container[str]
) -> Step[Room]:
    """What these plans take together. `known` holds those that have ended, which never grow; more
    are added to it."""
    total = NONE
    for plan in plans:
        found = known.get(plan)
        if found is None:
            found = yield from room_of(paths.plan(plan))
            if plan in ended:
                known[plan] = found
        total = total.plus(found)
    return total
