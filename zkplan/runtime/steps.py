"""Steps of the protocol in the background of a worker's loop: started, contained, made again.

Nobody else may settle a claim while the worker that holds it lives. So a step that settles one and
met what somebody else left in the tree is made again after a rest: what was in its way may be gone
then, because an operator deletes a znode, or takes an access list back.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import time
from collections.abc import Callable
from typing import TypeVar

from ..errors import UNREACHABLE, InvariantViolated, PayloadUndecodable, ZooKeeperError
from ..protocol.requests import Step
from ..transport import Transport
from .statistics import Counters

T = TypeVar("T")
D = TypeVar("D")
logger = logging.getLogger("zkplan.worker")

#: The rest before a step is made again, in seconds, doubled each time up to.
REST_FIRST_S, REST_MAX_S = 1.0, 60.0
#: Messages remembered; beyond that some are told again.
TOLD_MAX = 1000


class Complaints:
    """Tells each message once, however often what it tells of is met."""

    def __init__(self) -> None:
        self._told: dict[str, None] = {}

    def tell(self, message: str) -> None:
        """Log a warning, unless this very one was logged before."""
        if message in self._told:
            return
        if len(self._told) >= TOLD_MAX:
            del self._told[next(iter(self._told))]
        self._told[message] = None
        logger.warning("%s", message)


class Steps:
    """The steps of one worker; only the loop's thread calls it, but for `post`."""

    def __init__(
        self, transport: Transport, put: Callable[[Callable[[], None]], None], counters: Counters
    ) -> None:
        self._transport, self._put, self._counters = transport, put, counters
        self.complaints = Complaints()
        self.under_way = 0
        #: The error of a step: it ends the worker, and others take over.
        self.failure: BaseException | None = None
        self._count = itertools.count()
        #: When it is due, a number that no two share, what makes it again and what gives it up.
        self._resting: list[tuple[float, int, Callable[[], None], Callable[[], None]]] = []

    def post(self, event: Callable[[], None]) -> None:
        """Have `event` called on the loop's thread."""
        self._put(event)

    def start(self, step: Step[T], done: Callable[[T], None]) -> None:
        """Run a step in the background; an error in it ends the worker."""
        self.under_way += 1

        def ended(result: T | None, error: BaseException | None) -> None:
            self.under_way -= 1
            if error is not None:
                self.failure = error
            else:
                done(result)  # type: ignore[arg-type]

        self._counters.steps += 1
        self._transport.start(step, self.post, ended)

    def start_contained(
        self, step: Step[T], done: Callable[[T | D], None], what: str, *, instead: D
    ) -> None:
        """As `start`, but where somebody else's znodes are in the way, `done` gets `instead`."""
        self.start(contained(step, self.complaints, what, instead), done)

    # ---- again, after a rest

    def until_done(
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
                self.until_done(make, done, what, given_up=given_up, rest_s=longer_s)

            self.rest(time.monotonic() + rest_s, once_more, given_up)

        self.start_contained(make(), ended, what, instead=None)

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


def contained(step: Step[T], complaints: Complaints, what: str, instead: D) -> Step[T | D]:
    """Run `step`; where the tree is in its way, tell that of `what` and give `instead`.

    Otherwise one znode that zkplan did not make would end this worker, then the next one that meets
    it, and so all of them. A connection that is closed or silent is no matter of the tree.
    """
    try:
        return (yield from step)
    except UNREACHABLE:
        raise
    except (ZooKeeperError, PayloadUndecodable, InvariantViolated) as error:
        complaints.tell(f"{what}: {error}")
        return instead
