"""How long an attempt to connect may take: little at first, and as long as kazoo's in the end."""

from __future__ import annotations

import pytest

from zkplan.keeper.attempts import ATTEMPT_S, Attempts

MOST_S = 10.0


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_each_attempt_that_took_all_its_time_gives_the_next_one_twice() -> None:
    clock = Clock()
    given: list[float] = []

    def hang(within_s: float) -> None:
        given.append(within_s)
        clock.now += within_s
        raise OSError("timed out")

    made = Attempts(clock)
    for _ in range(5):
        with pytest.raises(OSError, match="timed out"):
            made.make(MOST_S, hang)
    assert given == [ATTEMPT_S, 2 * ATTEMPT_S, 4 * ATTEMPT_S, MOST_S, MOST_S]


def test_an_attempt_that_fails_at_once_changes_nothing() -> None:
    def refuse(within_s: float) -> None:
        raise OSError("refused")

    made = Attempts(Clock())
    for _ in range(3):
        with pytest.raises(OSError, match="refused"):
            made.make(MOST_S, refuse)
    assert made.within_s == ATTEMPT_S


def test_less_than_kazoos_own_time_is_left_as_it_is() -> None:
    given: list[float] = []
    Attempts().make(0.5, given.append)
    assert given == [0.5]
