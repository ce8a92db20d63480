"""Broken variants of limits, for `mutants.py`."""

from __future__ import annotations

from collections.abc import Callable

from zkplan.protocol.features.limits import Limit
from zkplan.protocol.layout import PERMIT
from zkplan.protocol.requests import Check, Create, Delete, Op, SetData

from .mutant import Mutant, only, without
from .network import Fiber
from .world import World


def left_behind(*kinds: str) -> Callable[[Fiber, Op], bool]:
    """Steps of these kinds end claims and keep their permits."""

    def leaves_out(fiber: Fiber, op: Op) -> bool:
        return fiber.kind in kinds and type(op) is Delete and f"/{PERMIT}" in op.path

    return leaves_out


def not_taken(fiber: Fiber, op: Op) -> bool:
    """A claim takes no permit."""
    return type(op) is Create and f"/{PERMIT}" in op.path


def unchecked(fiber: Fiber, op: Op) -> bool:
    """A claim does not check the size under which it chose its permits."""
    return type(op) is Check and "/limits/" in op.path


def at_any_version(world: World, fiber: Fiber, op: Op) -> Op:
    """A permit of a rate is taken over, whoever has taken it since it was read."""
    if type(op) is SetData and f"/{PERMIT}" in op.path:
        return op._replace(version=-1)
    return op


def all_below(limit: Limit) -> list[int]:
    """Permits that stand above a lowered size are not counted."""
    return [number for number in range(limit.size) if number not in limit.held]


OF_LIMITS = only(
    lambda world: world.limits is not None,
    *(
        Mutant(f"permit left behind by a {kind}", without(left_behind(kind)))
        for kind in ("clear", "commit", "decide", "fail", "hand back")
    ),
    Mutant("claim without its permit", without(not_taken)),
    Mutant("permit of a rate at any version", at_any_version),
    Mutant("permit of an earlier size", without(unchecked)),
    Mutant(
        "permits above the size not counted",
        patches=((Limit, "free", property(all_below)),),
    ),
)
