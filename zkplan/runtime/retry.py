"""Steps that settle a claim and met what somebody else left in the tree: made again, after a rest.

Nobody else may settle a claim while the worker that holds it lives. So one that could not be read,
ended or handed back would stand until then, though what was in the way is long gone: an operator
deletes a znode, or takes an access list back.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from ..protocol.requests import Step

if TYPE_CHECKING:
    from .loop import Loop

T = TypeVar("T")

#: The rest before a step is made again, in seconds, doubled each time up to.
REST_FIRST_S, REST_MAX_S = 1.0, 60.0


class Retries:
    """What rests, of one engine; only the loop's thread calls it."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._count = itertools.count()
        #: When it is due, a number that no two share, what makes it again and what gives it up.
        self._resting: list[tuple[float, int, Callable[[], None], Callable[[], None]]] = []

    def go(
        self,
        make: Callable[[], Step[T]],
        done: Callable[[T], None],
        what: str,
        *,
        given_up: Callable[[], None] = lambda: None,
        rest_s: float = REST_FIRST_S,
    ) -> None:
        """Run the step that `make` makes, until nothing is in its way; `what` is told once.

        A step must not give None. `given_up` is called instead of `done` where the worker ends
        before: the claim stays on its claims node for whoever clears that.
        """

        def ended(result: T | None) -> None:
            if result is not None:
                done(result)
                return

            def once_more() -> None:
                longer_s = min(REST_MAX_S, 2 * rest_s)
                self.go(make, done, what, given_up=given_up, rest_s=longer_s)

            self.rest(time.monotonic() + rest_s, once_more, given_up)

        self._loop.go_contained(make(), ended, what, instead=None)

    def rest(self, at: float, then: Callable[[], None], given_up: Callable[[], None]) -> None:
        """Call `then` at that monotonic time, in seconds; `given_up` if the worker ends before."""
        heapq.heappush(self._resting, (at, next(self._count), then, given_up))

    def next_due(self) -> float:
        """Monotonic time, in seconds, at which the first of them is due."""
        return self._resting[0][0] if self._resting else float("inf")

    def advance(self, now: float) -> None:
        """Start what is due."""
        while self._resting and self._resting[0][0] <= now:
            _, _, once_more, _ = heapq.heappop(self._resting)
            once_more()

    def give_up(self) -> None:
        """Make nothing again any more: the grace of a worker that leaves is over."""
        resting, self._resting = self._resting, []
        for *_, given_up in resting:
            given_up()
