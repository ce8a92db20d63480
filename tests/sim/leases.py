"""Leases of the simulation: workers that claim for programs without a session, and S23."""

from __future__ import annotations

import random
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

from zkplan.protocol.core.commit_part import Part
from zkplan.protocol.features import leases
from zkplan.protocol.layout import parse_claim, parse_lease
from zkplan.protocol.requests import Create, Delete, Op, ReadChildren, SetData
from zkplan.protocol.transactions import NO_ALLOWANCE, Allowance, Dependent, Registration

from . import intents, updates
from .auditor import DECIDES
from .network import Fiber
from .story import Violation
from .transaction import CLEARS
from .worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from .world import World

Script = Generator[Any, Any, None]
#: The share of runs with leases, and of the workers there that claim under them.
SHARE, SERVICES = 0.3, 0.6
#: How likely a lease is renewed, or taken on by somebody else, each time there is a choice.
RENEWED, ADOPTED = 0.3, 0.1
#: Steps for which a lease counts while faults happen, and once they have stopped.
SHORT, LONG = (10, 200), 5000


def drawn(seed: int) -> random.Random | None:
    """What draws leases, in a run that has any."""
    rng = random.Random(f"leases {seed}")
    return rng if rng.random() < SHARE else None


def new_worker(world: World, name: str, client: Any) -> Worker:
    rng = world.leases
    of_leases = rng is not None and rng.random() < SERVICES
    return (Service if of_leases else Worker)(world, name, client)


def served(world: World, claims_node: str) -> list[str]:
    """The queues that who claims on that claims node serves."""
    if claims_node in world.lease_queues:
        return world.lease_queues[claims_node]
    name = claims_node.partition(".")[0]
    return next((each.queues for each in world.all_workers if each.name == name), [])


def standing(world: World) -> list[str]:
    return [name for name in world.nodes[world.paths.claims].children if parse_lease(name)]


def due(world: World, lease: str) -> int:
    return int(world.nodes[world.paths.claims_of(lease)].mtime) + (parse_lease(lease) or 0)


def is_vacant(world: World, claims_node: str) -> bool:
    """Whether a claims node without a worker is to be cleared now."""
    return parse_lease(claims_node) is None or due(world, claims_node) <= world.now


def expire_all(world: World) -> Script:
    """What any worker does about leases whose time is over."""
    names = (yield ReadChildren(world.paths.claims)) or []
    for lease in [name for name in names if parse_lease(name)]:
        yield from leases.expire(world.paths, lease, lambda: world.now)


def help_on(world: World) -> bool:
    """Once nothing else goes on: let the next lease lapse."""
    ends = [due(world, lease) for lease in standing(world)]
    if ends:
        world.now = max(world.now + 1, min(ends))
    return bool(ends)


class Service(Worker):
    """Claims under a lease, and commits with a registration of its own.

    What it holds stands as long as the lease, whether it lives or not. So another one may take it
    on, as a program that goes to another service.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._updates = updates.drawn(self.world, self.name)

    def _begin_commit(self) -> None:
        rng = self._updates
        if rng is None or rng.random() >= updates.UPDATED or not updates.begin(self, rng):
            super()._begin_commit()

    def update(self, script: Script, under: dict[str, str]) -> None:
        """Begin an update; `under` are the claims that it completes."""
        self._start(DECIDES, script, under)

    def publish_for(self, full: Sequence[Dependent], pending: str) -> Script:
        """Publish what an update has made complete."""
        yield from self._publish(list(full), pending, NO_ALLOWANCE)

    def _claims_with(self) -> Registration | None:
        if self.me is None:
            return None
        rng = self.world.leases or self.world.rng
        lease_ms = LONG if self.world.calm else rng.randint(*SHORT)
        self.world.lease_count += 1
        made = leases.new_lease(self.world.paths, lease_ms, f"{self.world.lease_count:x}")
        self.world.lease_queues[made.worker] = self.queues
        return made

    def _allowance(self) -> Allowance:
        return NO_ALLOWANCE  # what it claimed directly would be its own, not a program's

    def _records_before(self, parts: list[Part]) -> list[str]:
        """The lease goes with its last claim."""
        ended = {part.loaded.claim.path.rpartition("/")[0] for part in parts}
        return [*super()._records_before(parts), *sorted(p for p in ended if _of(p))]

    def _duties(self) -> list[Callable[[], None]]:
        options, world = super()._duties(), self.world
        names = standing(world)
        rng = world.leases
        if names and rng is not None and not world.calm:
            lease = rng.choice(names)
            if rng.random() < RENEWED:
                options.append(lambda: self._start("renew", self._renew(lease)))
            if rng.random() < ADOPTED and self.held < self.slots:
                options.append(lambda: self._start("adopt", self._adopt(lease)))
        return options

    def _renew(self, lease: str) -> Script:
        for renewed in (yield from leases.renew(self.world.paths, [lease])):
            path = self.world.paths.claims_of(renewed.lease)
            for name in renewed.names or ():
                if f"{path}/{name}" not in self.world.nodes:
                    raise Violation(f"S23 {name} is said to be held under {lease}, and is not")

    def _adopt(self, lease: str) -> Script:
        names = (yield ReadChildren(self.world.paths.claims_of(lease))) or []
        wanted = [(lease, name) for name in names if parse_claim(name)]
        found = yield from leases.claims_under(self.world.paths, wanted)
        self.to_load += [claim for claim in found if claim is not None]


def _of(claims_node: str) -> bool:
    return parse_lease(claims_node.rpartition("/")[2]) is not None


class Auditor(intents.Auditor):
    """S23: a lease is made once, with claims; a release of it comes after its time."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        #: When each lease was changed last, also of those that are gone.
        self._changed: dict[str, int] = {}

    def applied(self, fiber: Fiber, ops: Sequence[Op], results: list[Any]) -> None:
        super().applied(fiber, ops, results)
        for op in ops:
            above, _, name = op.path.rpartition("/")
            is_lease = above == f"{self.root}/claims" and parse_lease(name) is not None
            if is_lease and type(op) is Create:
                self._made(op.path, ops)
            elif is_lease and type(op) is SetData:
                self._changed[op.path] = self.now()
            elif type(op) is Delete and fiber.kind == CLEARS and (is_lease or _of(above)):
                self._released(op.path if is_lease else above, fiber)

    def _made(self, lease: str, ops: Sequence[Op]) -> None:
        if lease in self._changed:
            raise Violation(f"S23 {lease} came back")
        if not any(type(op) is Create and op.path.startswith(f"{lease}/") for op in ops):
            raise Violation(f"S23 {lease} is made without a claim")
        self._changed[lease] = self.now()

    def _released(self, lease: str, fiber: Fiber) -> None:
        over = self._changed[lease] + (parse_lease(lease.rpartition("/")[2]) or 0)
        if over > self.now():
            raise Violation(f"S23 {lease} is released by {fiber.client.name} before {over}")
