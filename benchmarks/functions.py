"""The functions that the measured tasks run: as little work as a checkable result allows."""

from __future__ import annotations


def nothing() -> None:
    """A task without a value."""


def zero() -> int:
    return 0


def successor(value: int) -> int:
    return value + 1


def depth(*depths: int) -> int:
    """One more than the deepest argument; wrong as soon as one edge carried a wrong value."""
    return 1 + max(depths, default=0)


def total(values: list[int]) -> int:
    return sum(values)
