"""The functions that the measured tasks run: as little work as a checkable result allows."""

from __future__ import annotations

import time


def nothing() -> None:
    """A task without a value."""


def zero() -> int:
    return 0


def successor(value: int) -> int:
    return value + 1


def depth(*depths: int) -> int:
    """One more than the deepest argument, so that a wrong value on any edge changes the result."""
    return 1 + max(depths, default=0)


def total(values: list[int]) -> int:
    return sum(values)


def take(seconds: float, *_: object) -> float:
    """Sleep for `seconds`. The other arguments are the tasks to run after."""
    time.sleep(seconds)
    return seconds


def refuse(what: str) -> None:
    raise TimeoutError(f"{what} does not answer")
