"""Broken variants of leases, for `mutants.py`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from zkplan.protocol.core import wide_delivery
from zkplan.protocol.core.end_claims import clear_claims
from zkplan.protocol.features import leases
from zkplan.protocol.features.leases import Renewed
from zkplan.protocol.interference import LateCopies
from zkplan.protocol.layout import Paths, parse_claim, parse_lease
from zkplan.protocol.requests import (
    Applied,
    Check,
    Create,
    Delete,
    Multi,
    Op,
    ReadChildren,
    ReadMany,
    SetData,
    Step,
)

from . import leases as of_world
from . import maintenance, mixes
from .mutant import Mutant, only
from .network import Fiber
from .world import ROOT, World


def _is_lease(path: str) -> bool:
    above, _, name = path.rpartition("/")
    return above == f"{ROOT}/claims" and parse_lease(name) is not None


def _release_at_any_version(world: World, fiber: Fiber, op: Op) -> Op:
    """Who has read that the time was over releases, whatever came since."""
    return Check(op.path) if type(op) is Check and _is_lease(op.path) else op


def _taken_for_a_lost_worker(paths: Paths) -> Step[list[str]]:
    """A claims node without a registration is cleared, also one of a lease."""
    found, workers = yield ReadMany([ReadChildren(paths.claims), ReadChildren(paths.workers)])
    return sorted(set(found or ()) - set(workers or ()))


def _clears_leases(world: World) -> Step[Any]:
    vacant = yield from _taken_for_a_lost_worker(world.paths)
    for worker in vacant:
        yield from clear_claims(world.paths, worker)


def _renew_what_is_gone(paths: Paths, wanted: Iterable[str]) -> Step[list[Renewed]]:
    """A lease that has lapsed is made again."""
    for lease in wanted:
        path = paths.claims_of(lease)
        if not isinstance((yield Multi([SetData(path)])), Applied):
            yield Multi([Create(path)])
    return [Renewed(lease, frozenset()) for lease in wanted]


def _trust_what_was_known(paths: Paths, wanted: Iterable[str]) -> Step[list[Renewed]]:
    """What a lease holds is told as it was before the write."""
    found = []
    for lease in wanted:
        names = yield ReadChildren(paths.claims_of(lease))
        held = isinstance((yield Multi([SetData(paths.claims_of(lease))])), Applied)
        claims = frozenset(name for name in names or () if not name.startswith("pending-"))
        found.append(Renewed(lease, claims if held else None))
    return found


def _end_whoever_claims(world: World, fiber: Fiber, op: Op) -> Op:
    """A completion deletes the claim that its task has now, not the one that it was made under."""
    if fiber.kind != "commit" or type(op) is not Delete or op.path in world.nodes:
        return op
    claim = parse_claim(op.path.rpartition("/")[2])
    if claim is None:
        return op
    task = world.auditor.tasks[f"{ROOT}/plan-{claim.plan}/task-{claim.task}"]
    now = [place for place in task.places if "/claims/" in place]
    return Delete(now[0]) if now else op


def _never(world: World) -> Step[None]:
    """Nobody releases what has lapsed."""
    yield from ()


_applied = LateCopies.applied


def _look_once(copies: Any, *arguments: Any) -> Step[Any]:
    """Only the transaction that was refused last may have been applied."""
    copies._sent.clear()
    return (yield from _applied(copies, *arguments))


OF_LEASES = only(
    lambda world: world.leases is not None,
    Mutant("lease released at any version", _release_at_any_version),
    Mutant(
        "lease taken for a lost worker",
        patches=((maintenance, "clear", _clears_leases),),
    ),
    Mutant(
        "lease released before its time",
        patches=((leases, "due_ms", lambda lease, node: node.modified_ms),),
    ),
    Mutant("lease renewed after it lapsed", patches=((leases, "renew", _renew_what_is_gone),)),
    Mutant("renewal that tells what was", patches=((leases, "renew", _trust_what_was_known),)),
    Mutant(
        "late copy of a commit looked for once",
        patches=((LateCopies, "applied", _look_once),),
        mix=mixes.mostly_late,
    ),
    Mutant(
        "second report that goes on with the first outcome",
        patches=((wide_delivery, "_is_ours", lambda part, result: True),),
        mix=mixes.told_widely,
    ),
    Mutant("completion without the fence", _end_whoever_claims),
    Mutant("lapsed leases left alone", patches=((of_world, "expire_all", _never),)),
)
