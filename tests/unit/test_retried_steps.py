"""A step obstructed by foreign znodes is retried, each time after a longer rest."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

from zkplan.errors import TransactionRejected
from zkplan.protocol.requests import ReadData, Request, Step
from zkplan.runtime.statistics import Counters
from zkplan.runtime.steps import REST_FIRST_S, REST_MAX_S, Steps
from zkplan.transport import Transport
from zkplan.transport.server_clock import Clock
from zkplan.transport.transport import start_step


class Obstructed:
    """Stands for a transport: something is in the way of the first `times` steps."""

    def __init__(self, times: int) -> None:
        self.left = times
        self.made: list[str] = []
        self.results: list[str] = []
        self.now = 0.0
        self.steps = Steps(
            transport=cast("Transport", self),
            put=lambda event: event(),
            counters=Counters(),
            clock=Clock(monotonic=lambda: self.now),
        )

    def make(self, name: str) -> Step[str]:
        self.made.append(name)
        yield ReadData(name)
        return f"the end of {name}"

    def start(self, step: Step[str], post: Callable[..., Any], done: Callable[..., Any]) -> None:
        start_step(step, self.submit, lambda answered: answered(), done)

    def submit(self, request: Request, done: Callable[..., Any]) -> None:
        self.left -= 1
        in_the_way = TransactionRejected("a znode of somebody else is in the way")
        done(None, in_the_way if self.left >= 0 else None)


def test_a_retried_step_rests_longer_each_time_up_to_a_minute_until_it_succeeds() -> None:
    loop, rests = Obstructed(9), []
    again, loop.now = loop.steps, 1000.0
    again.until_done(partial(loop.make, "step"), loop.results.append, "it")
    while again.next_due() < float("inf"):
        made = len(loop.made)
        again.advance(again.next_due() - 0.001)
        assert len(loop.made) == made
        assert not loop.results
        rests.append(again.next_due() - loop.now)
        loop.now = again.next_due()
        again.advance(loop.now)
    assert loop.made == ["step"] * 10
    assert loop.results == ["the end of step"]
    assert rests == [min(REST_MAX_S, REST_FIRST_S * 2**count) for count in range(9)]


def test_steps_due_at_the_same_moment_are_all_retried() -> None:
    loop = Obstructed(3)
    again, loop.now = loop.steps, 7.0
    for name in "abc":
        again.until_done(partial(loop.make, name), loop.results.append, "it")
    again.advance(7.0 + REST_FIRST_S)
    assert loop.made == list("abcabc")
    assert loop.results == [f"the end of {name}" for name in "abc"]


def test_a_step_that_was_given_up_is_not_retried() -> None:
    loop = Obstructed(2)
    again = loop.steps
    given_up: list[str] = []
    for name in "ab":
        dropped = partial(given_up.append, name)
        again.until_done(partial(loop.make, name), loop.results.append, "it", given_up=dropped)
    again.give_up()
    assert given_up == ["a", "b"]
    assert again.next_due() == float("inf")
    again.advance(loop.now + REST_MAX_S)
    assert loop.made == ["a", "b"]
