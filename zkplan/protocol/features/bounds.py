"""The bounds of a root: retention, archiving, the budget, and how much room plans take.

One znode holds them, from the first setting on. Authors read it in a batch that they send anyway.
Workers read it if a plan may be due for removal, or if they count the room of plans.
"""

from __future__ import annotations

import math
import random
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ...backoff import CHANCE
from ...basics.text import count, size
from ...errors import BudgetSpent, PayloadUndecodable
from ..core.load import read_all
from ..core.plans_and_queues import ended_at, names_on_claims_nodes, readable_record
from ..fields import as_lasting, as_whole_from_0, from_json, lasting_to_json, to_json
from ..layout import Paths, number_of, parse_claim, parse_task
from ..records import PlanRecord
from ..requests import (
    Multi,
    Node,
    ReadChildren,
    ReadData,
    ReadMany,
    SetData,
    Step,
)
from ..transactions import REFUSALS_MAX, ensure, is_applied, too_busy

_Data = bytes  # a field below is named `bytes`
#: The default retention of a finished plan, in seconds.
RETENTION_S = 30 * 86400.0
#: Authors and workers are warned from this share of the budget on.
WARN_SHARE = 0.8


class Used(NamedTuple):
    """The room that plans took at the last count: `bytes` of data, and `counted`, the server's time
    in seconds since 1970. `exact`: no plan was estimated by a sample."""

    plans: int
    znodes: int
    bytes: int
    counted: float
    exact: bool


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of a root. `retention`: how many seconds a finished plan stays if its author gives
    no retention; infinity means forever. `archive`: plans are archived before their removal.
    `znodes` and `bytes` are the budget, None without one. `used` is the last count."""

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
        """The share of the budget that was used at the last count; 1.0 is all of it."""
        if self.used is None or not self.has_budget:
            return 0.0
        pairs = ((self.used.znodes, self.znodes), (self.used.bytes, self.bytes))
        # A budget of 0 is spent: it lets no plan in.
        return max((used / most if most else 1.0 for used, most in pairs if most is not None))

    @property
    def text(self) -> str:
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
        """Raises PayloadUndecodable. A damaged part neither removes nor refuses plans."""
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


# ---- The budget.


def refuse_if_spent(paths: Paths, node: Node | None) -> Bounds | None:
    """Returns the bounds if there is a budget. Raises BudgetSpent if it is used up. Damaged bounds
    refuse nothing."""
    try:
        found = Bounds.from_bytes(node.data) if node is not None else None
    except PayloadUndecodable:
        return None
    if found is None or not found.has_budget:
        return None
    if found.share >= 1.0:
        raise BudgetSpent(
            paths.root,
            f"the plans under {paths.root} take {found.text}, all of their budget, so no new plan "
            "can be created; existing plans go on. Remove finished plans (`zkplan plan gc`) or "
            "raise the budget (`zkplan root budget set`)",
        )
    return found


def warning_of(paths: Paths, found: Bounds) -> str:
    """The warning if the budget is nearly spent; else empty. Its text changes with each twentieth
    of the budget, so at most four different texts are logged."""
    if not WARN_SHARE <= found.share < 1.0:
        return ""
    percent = int(found.share * 20) * 5
    return (
        f"the plans under {paths.root} take {percent} % or more of their budget; at 100 % new "
        "plans are refused: remove finished ones (`zkplan plan gc`), or raise the budget"
    )


# ---- Read and change the bounds.


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
            "and no budget counts until it is deleted, or set again (`zkplan root retention set`)"
        ) from None


def change_bounds(paths: Paths, changes: dict[str, Any], anew: bool = False) -> Step[Bounds]:
    """Change these fields of the bounds of an existing root. `anew`: replace damaged bounds. Raises
    TransactionRejected."""
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
            # Empty: with sealing keys a first version never counts, so an old one put back is void.
            yield from ensure(paths.bounds)
            continue
        answer = yield Multi([SetData(paths.bounds, data, node.version)])
        if is_applied(answer, f"changing {paths.bounds}"):
            return after
    raise too_busy(f"changing {paths.bounds}")


# ---- Plans whose retention is over.


class Over(NamedTuple):
    """A plan that may be removed: it has ended, and its retention is over."""

    path: str
    record: PlanRecord | None
    state: str
    ended: float
    #: Identifies that end: see `remove_plan.remove`.
    end: int = 0


def is_over(paths: Paths, plan: str, now: float) -> Step[Over | None]:
    """Read whether the plan may be removed at `now`, the server's time.

    A plan that is done or cancelled gets no more claims (S9). The claims are read after its state,
    so the answer stays true. Raises PayloadUndecodable for damaged bounds.
    """
    path = paths.plan(plan)
    parts = [path, f"{path}/ready", f"{path}/done", paths.bounds]
    node, ready, done, bounds = yield ReadMany([ReadData(each) for each in parts], True)
    state, ended = ended_at(ready, done)
    if node is None or not state:
        return None
    record = readable_record(node.data)
    if record is None:
        return None  # written by a later zkplan, which knows its retention
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


# ---- How much room plans take: small plans are counted, large ones estimated by a sample.
#
# A server that is asked for the size of a subtree looks at all of its znodes, and not every server
# can be asked. So a client reads what it counts.


#: The most znodes of one kind that are read, as a sample for the others.
SAMPLE = 1000


class Room(NamedTuple):
    """The room of a plan: znodes, its own included, and bytes of data. `exact`: all were read."""

    znodes: float
    bytes: float
    exact: bool = True

    def plus(self, other: Room) -> Room:
        return Room(
            self.znodes + other.znodes, self.bytes + other.bytes, self.exact and other.exact
        )


NONE = Room(0, 0)


def room_of(plan_path: str, chance: random.Random = CHANCE) -> Step[Room]:
    """How much room a plan takes; none if it does not exist. Reads a few thousand znodes at most.
    What changes meanwhile may be counted or not."""
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
    """The room of these znodes of one kind, and of all znodes below them."""
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
    """The room of these plans together. `known` caches the room of ended plans: they never grow."""
    total = NONE
    for plan in plans:
        found = known.get(plan)
        if found is None:
            found = yield from room_of(paths.plan(plan))
            if plan in ended:
                known[plan] = found
        total = total.plus(found)
    return total
