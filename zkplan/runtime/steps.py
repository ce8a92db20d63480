"""Run steps of the protocol in the background of the loop, and retry steps that others block.

While a worker lives, no other worker may settle its claims. So if foreign znodes or access lists
stop a step that settles a claim, the step is retried after a delay. By then an operator may have
removed the obstacle.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable
from typing import TypeVar

from ..basics.log import get_logger
from ..errors import ZkplanError
from ..protocol.requests import Step
from ..protocol.transactions import or_error
from ..transport import Transport
from ..transport.server_clock import Clock
from .statistics import Counters

T = TypeVar("T")
D = TypeVar("D")
logger = get_logger("zkplan.worker")

#: Seconds between two looks of a part that has nothing to do. Watches announce what happens; these
#: looks are for a watch that was lost.
SAFETY_LOOK_S = 120.0
#: Seconds before a step is retried: the first delay, doubled each time, and the longest.
REST_FIRST_S, REST_MAX_S = 1.0, 60.0
#: How many messages are remembered. With more messages, some are logged again.
TOLD_MAX = 1000


class Complaints:
    """Logs each message only once, however often its cause is met."""

    def __init__(self) -> None:
        self._told: dict[str, None] = {}

    def tell(self, message: str) -> None:
        """Log `message` as a warning, unless it was logged before."""
        if message in self._told:
            return
        if len(self._told) >= TOLD_MAX:
            del self._told[next(iter(self._told))]
        self._told[message] = None
        logger.warning("%s", message)


class Steps:
    """The steps of one worker. Any thread may call `post`; only the loop calls the rest."""

    def __init__(
        self,
        *,
        transport: Transport,
        put: Callable[[Callable[[], None]], None],
        counters: Counters,
        clock: Clock,
    ) -> None:
        self._transport, self._put, self._counters = transport, put, counters
        self._clock = clock
        self.complaints = Complaints()
        self.under_way = 0
        #: The error of a step, which ends the worker; others take over.
        self.failure: BaseException | None = None
        self._count = itertools.count()
        #: A heap of retries: when it is due, a unique number, what retries it, what gives it up.
        self._resting: list[tuple[float, int, Callable[[], None], Callable[[], None]]] = []

    def post(self, event: Callable[[], None]) -> None:
        """Call `event` on the loop's thread."""
        self._put(event)

    def unwatch(self, paths: Iterable[str]) -> None:
        """See `Transport.unwatch`."""
        try:
            self._transport.unwatch(paths)
        except ZkplanError:
            pass  # the transport is being closed, and its watches end with the session

    def start(self, step: Step[T], done: Callable[[T], None]) -> None:
        """Run a step in the background, and call `done` with its result. An error of the step ends
        the worker."""
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
        """As `start`, but if foreign znodes or access lists stop the step, `done` gets `instead`,
        and the reason is logged with `what`."""
        self.start(contained(step, self.complaints, what, instead), done)

    # ---- retries

    def until_done(
        self,
        make: Callable[[], Step[T]],
        done: Callable[[T], None],
        what: str,
        *,
        given_up: Callable[[], None] = lambda: None,
        rest_s: float = REST_FIRST_S,
    ) -> None:
        """Retry the step that `make()` returns until nothing stops it. `what` is logged once.

        The step must not return None. If the worker ends first, `given_up` is called instead of
        `done`; then the claim stays until another worker clears the claims node.
        """

        def ended(result: T | None) -> None:
            if result is not None:
                done(result)
                return

            def once_more() -> None:
                longer_s = min(REST_MAX_S, 2 * rest_s)
                self.until_done(make, done, what, given_up=given_up, rest_s=longer_s)

            self.rest(self._clock.monotonic() + rest_s, once_more, given_up)

        self.start_contained(make(), ended, what, instead=None)

    def rest(self, at: float, then: Callable[[], None], given_up: Callable[[], None]) -> None:
        """Call `then` at the monotonic time `at`, or `given_up` if the worker ends before."""
        heapq.heappush(self._resting, (at, next(self._count), then, given_up))

    def next_due(self) -> float:
        """The monotonic time at which the next retry is due; infinite if there is none."""
        return self._resting[0][0] if self._resting else float("inf")

    def advance(self, now: float) -> None:
        """Start the retries that are due."""
        while self._resting and self._resting[0][0] <= now:
            _, _, once_more, _ = heapq.heappop(self._resting)
            once_more()

    def give_up(self) -> None:
        """Give up all retries, as the grace of a stopping worker is over."""
        resting, self._resting = self._resting, []
        for *_, given_up in resting:
            given_up()


def contained(step: Step[T], complaints: Complaints, what: str, instead: D) -> Step[T | D]:
    """Run `step`. If foreign znodes or access lists stop it, log the reason and return `instead`.

    Otherwise one znode that zkplan did not make would end one worker after another. Raises errors
    of a closed or silent connection.
    """
    result = yield from or_error(step)
    if not isinstance(result, ZkplanError):
        return result
    complaints.tell(f"{what}: {result}")
    return instead
