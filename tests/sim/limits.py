"""Limits of the simulation: which a task names, how a worker takes permits, and S11."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any

from zkplan.embedded import operations as server
from zkplan.embedded.znodes import Node
from zkplan.protocol.core.claim import NO_PERMITS, Permits
from zkplan.protocol.core.plans_and_queues import PlanLook
from zkplan.protocol.features.limits import (
    period_from_bytes,
    read_limit,
    set_limit,
    size_from_bytes,
)
from zkplan.protocol.layout import (
    DEFAULT_QUEUE,
    OWN_LIMIT,
    PERMIT,
    Paths,
    limit_path,
    limits_in,
    parse_claim,
)
from zkplan.protocol.requests import Create, Delete, Op, Step
from zkplan.protocol.transactions import claim_facts

from .by_hand import BY_HAND
from .network import Fiber
from .story import Meant, Violation

if TYPE_CHECKING:
    from .world import World

#: The share of runs with limits, and how often an operator changes one there.
SHARE, CHANGES = 0.35, 14
NAMES = ("api", "db")
#: The name of a rate, and its period in steps.
RATE, PERIOD = "rate", 40
#: Kinds of fibers that take away what belongs to a plan, whoever holds it.
REMOVES = "remove"


def set_up(world: World) -> None:
    world.network.clock = lambda: world.now
    if world.limits is None:
        return
    above = f"{world.paths.root}/limits"
    sizes = {name: b"%d" % world.limits.randint(0, 3) for name in NAMES}
    sizes[RATE] = b"%d %d" % (world.limits.randint(1, 2), PERIOD)
    world.network.tree.apply(server.Create(above))
    for name, size in sizes.items():
        op = Create(f"{above}/{name}", size)
        if world.network.sealing is not None:
            op = world.network.sealing.sealed(op)
        world.network.tree.apply(server.Create(op.path, op.data))


def draw(world: World, task: Meant) -> list[str]:
    """The limits of a task, with that of its plan."""
    rng = world.limits
    if rng is None:
        return []
    own = any(plan.own_limit and task.name.startswith(f"{plan.name}.") for plan in world.plans)
    rate = [RATE] * (rng.random() < 0.3)
    return [*rng.sample(NAMES, rng.choice((0, 1, 1, 2))), *rate, *[OWN_LIMIT] * own]


def of_plan(world: World) -> int:
    """The size of a plan's own limit; 0 without one."""
    rng = world.limits
    return rng.randint(1, 2) if rng is not None and rng.random() < 0.3 else 0


def drawn(seed: int) -> random.Random | None:
    """What draws limits, in a run that has any."""
    rng = random.Random(f"limits {seed}")
    return rng if rng.random() < SHARE else None


def change(world: World) -> None:
    rng = world.limits
    assert rng is not None
    world.operate("limit", set_limit(world.paths, rng.choice(NAMES), rng.choice((1, 3))))


def help_on(world: World) -> bool:
    """Once nothing else goes on: let the period of the rate end, and raise a limit of 0."""
    if world.limits is None:
        return False
    above = f"{world.paths.root}/limits"
    if _held(world, f"{above}/{RATE}"):
        world.now += PERIOD
        return True
    for name in NAMES:
        if size_from_bytes(world.opened(f"{above}/{name}") or b"") < 1:
            world.operate("limit", set_limit(world.paths, name, 1))
            return True
    return False


def may_run(world: World, plan: str, name: str) -> bool:
    """As watches on the limits of an entry would tell; a worker that is behind tries in vain."""
    for limit in limits_in(name):
        path = limit_path(world.paths.root, plan, limit)
        size = size_from_bytes(world.opened(path) or b"")
        if path not in world.nodes or _held(world, path) >= size:
            return world.chance(0.1)
    return True


def _held(world: World, path: str) -> int:
    node = world.nodes[path]
    period = period_from_bytes(world.opened(path) or b"")
    made = [world.nodes[f"{path}/{name}"].mtime for name in node.children]
    return sum(not period or each + period > world.now for each in made)


def choose_entries(
    world: World, plan: str, seen: PlanLook, most: int
) -> Generator[Any, Any, tuple[list[str], str, Permits]]:
    """Entries of the first queue that has some whose limits have room, and the permits to try."""
    limits: dict[str, Any] = {}
    rng, paths = world.rng, world.paths

    def server_ms() -> Step[float]:
        yield from ()
        return world.now

    for queue, names in seen.listed:
        shuffled = list(names or ())
        rng.shuffle(shuffled)
        wanted = {
            limit_path(paths.root, plan, each) for name in shuffled for each in limits_in(name)
        }
        for path in sorted(wanted - limits.keys()):
            limits[path] = yield from read_limit(path, server_ms)
        chosen, permits = _choose(rng, paths, plan, shuffled[:], limits, most)
        if chosen:
            return chosen, queue, permits
    return [], DEFAULT_QUEUE, NO_PERMITS


def _choose(
    rng: random.Random,
    paths: Paths,
    plan: str,
    names: list[str],
    limits: dict[str, Any],
    most: int,
) -> tuple[list[str], Permits]:
    free = {path: found.free for path, found in limits.items() if found is not None}
    chosen: list[str] = []
    starts: dict[str, int] = {}
    permits = Permits({}, {}, starts)
    for name in names:
        wanted = [limit_path(paths.root, plan, each) for each in limits_in(name)]
        if len(chosen) == most or not all(free.get(path) for path in wanted):
            continue
        taken = []
        for path in wanted:
            number = free[path].pop()  # the highest, so that more stand above a lowered size
            taken.append(f"{path}/{PERMIT}{number}")
            if limits[path].period_ms:
                starts[taken[-1]] = limits[path].versions.get(number, -1)
            permits.versions[path] = limits[path].version
        chosen.append(name)
        if taken:
            permits.taken[name] = tuple(taken)
    return chosen, permits


class Judge:
    """S11: permits are never more than the size of their limit when one is made, and each belongs
    to a standing claim, which has one of each limit of its task. That of a rate has a number below
    its size, and is taken at most once in each period."""

    def __init__(
        self, nodes: dict[str, Node], paths: Paths, opened: Callable[[str], bytes]
    ) -> None:
        self._nodes, self._paths, self._opened = nodes, paths, opened
        #: Of each permit of a rate, when it was taken last, and the claims that took one.
        self._taken: dict[str, int] = {}
        self._started: set[tuple[str, str]] = set()
        self._limits, self._claims = f"{paths.root}/limits/", f"{paths.claims}/"
        #: By claim, the permits that it holds.
        self._of: dict[str, set[str]] = {}

    def applied(self, fiber: Fiber, ops: Sequence[Op]) -> None:
        claims: list[Create] = []
        ended: list[str] = []
        made: list[str] = []
        for op in ops:
            if op.path.startswith(self._claims):
                if type(op) is Create:
                    claims.append(op)
                elif type(op) is Delete:
                    ended.append(op.path)
            elif op.path.startswith(self._limits) and f"/{PERMIT}" in op.path:
                if type(op) is not Delete and self._period(op.path):
                    self._judge_start(op)
                elif type(op) is Create:
                    claim = self._claims + op.data.decode()
                    self._of.setdefault(claim, set()).add(op.path)
                    made.append(op.path)
                elif type(op) is Delete:
                    self._given_back(fiber, op.path)
        for path in made:
            limit = path.rpartition("/")[0]
            size, held = size_from_bytes(self._opened(limit)), len(self._nodes[limit].children)
            if held > size:
                raise Violation(f"S11 {path} makes {held} of {size} permits")
        for op in claims:
            self._judge_claim(op)
        for claim in ended:
            # Whoever puts the task of a claim back that was deleted by hand frees them.
            left = None if fiber.kind == BY_HAND else self._of.pop(claim, None)
            if left:
                raise Violation(f"S11 permits of {claim} are left behind")

    def _period(self, permit: str) -> int:
        return period_from_bytes(self._opened(permit.rpartition("/")[0]))

    def _judge_start(self, op: Any) -> None:
        limit, _, number = op.path.rpartition(f"/{PERMIT}")
        now, last = self._nodes[op.path].mtime, self._taken.get(op.path)
        if last is not None and now < last + self._period(op.path):
            raise Violation(f"S11 {op.path} is taken at {last} and {now}")
        if int(number) >= size_from_bytes(self._opened(limit)):
            raise Violation(f"S11 {op.path} is above the size of its rate")
        self._taken[op.path] = now
        self._started.add((self._claims + op.data.decode(), limit))

    def _given_back(self, fiber: Fiber, path: str) -> None:
        for claim, permits in self._of.items():
            if path in permits:
                permits.remove(path)
                if claim in self._nodes and fiber.kind != REMOVES:
                    raise Violation(f"S11 {path} is taken from {claim}, which stands")

    def _judge_claim(self, op: Create) -> None:
        claim = parse_claim(op.path.rpartition("/")[2])
        if claim is None:
            return
        facts = claim_facts(op.data)
        permits = facts.permit_paths(self._paths, claim.plan)
        limits = [limit_path(self._paths.root, claim.plan, name) for name in limits_in(facts.queue)]
        rates = sum((op.path, limit) in self._started for limit in limits)
        short = len(permits) + rates != len(limits)
        if short or set(permits) != self._of.get(op.path, set()):
            raise Violation(f"S11 {op.path} for {facts.queue} holds {self._of.get(op.path)}")

    def judge_end(self) -> None:
        left = [permit for permits in self._of.values() for permit in permits]
        if left:
            raise Violation(f"S11 permits are left at the end: {left}")
