"""Broken variants of wide adds: the simulation must find each of them."""

from __future__ import annotations

from collections.abc import Sequence

from zkplan.protocol.core import wide_adds
from zkplan.protocol.layout import ADDED, ADDS, STAGED
from zkplan.protocol.requests import Delete

from . import mixes
from .mutant import Mutant, without


def _all_of_them(names: Sequence[str], _n: int, _count: int) -> list[str]:
    """What any claim has staged counts."""
    return sorted(name for name in names if name.startswith(STAGED))


def _none_held(*_: object) -> bool:
    """A task that needs nothing runs while others that need it are not added yet."""
    return False


OF_ADDS = (
    Mutant(
        "wide delivery that loses adds",
        without(lambda fiber, op: op.path.endswith(f"/{ADDS}")),
        mix=mixes.growing,
    ),
    Mutant(
        "added tasks that run before the others are there",
        patches=((wide_adds._Adds, "is_held", _none_held),),
        mix=mixes.growing,
    ),
    Mutant(
        "adds of an earlier claim that count",
        without(lambda fiber, op: type(op) is Delete and f"/{STAGED}" in op.path),
        patches=((wide_adds, "_counting", _all_of_them),),
        mix=mixes.growing,
    ),
    Mutant(
        "tasks added without their record",
        without(lambda fiber, op: f"/{ADDED}" in op.path),
        mix=mixes.growing,
    ),
)
