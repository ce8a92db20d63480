"""Let the sides of a comparison take turns, so that a disturbance hits all alike."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import quantiles
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


def by_turns(sides: Mapping[K, Callable[[int], T]], rounds: int) -> dict[K, list[T]]:
    """The results of each side, round by round. A side is called with the number of the round.

    Round 0 warms up and does not count. Every other round is in reverse, and after two rounds
    another side begins, so that no side has the better place.
    """
    names, found = list(sides), {name: list[T]() for name in sides}
    for turn in range(1 + rounds):
        first = turn // 2 % len(names)
        order = names[first:] + names[:first]
        for name in order[:: -1 if turn % 2 else 1]:
            given = sides[name](turn)
            if turn:
                found[name].append(given)
    return found


@dataclass(frozen=True)
class Spread:
    """A median with its quartiles."""

    low: float
    median: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.3f} [{self.low:.3f} to {self.high:.3f}]"


def spread(values: Sequence[float]) -> Spread:
    """The median and quartiles of one value or more."""
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    return Spread(*quantiles(values, n=4, method="inclusive"))


def number(text: str) -> int:
    """Parse a number from 1 on of a command line. Raises ValueError."""
    found = int(text)
    if found < 1:
        raise ValueError(f"{text} is less than 1")
    return found
