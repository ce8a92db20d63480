"""Decide how long to wait for a plan, and prove when a wait is in vain.

Watches wake a waiter. It also looks without a watch, ever more rarely, because a watch may be lost,
and because nothing announces that a plan can never go on.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..basics.log import get_logger
from ..basics.public_calls import Duration, in_seconds
from ..errors import UNREACHABLE, PlanCancelled, WaitTimeout, ZkplanError, ZooKeeperError
from ..protocol.core.plan_life import PlanStatus
from ..protocol.core.plan_life import status as read_status
from ..protocol.core.workers import WorkerRecord
from ..protocol.layout import number_of
from ..protocol.requests import ReadChildren
from ..values.connection import Connection
from ..views.deadlock import (
    dead_if_deadlocked,
    may_stand,
    no_worker,
    not_taken,
    raise_in_vain,
    watch_a_claim,
)
from ..views.queues import no_server, resting, unserved
from ..views.workers import living_workers, no_free_slot, waiting_in_slot

logger = get_logger("zkplan.plan")

#: One look: (True, what was waited for), or (False, the status of the plan). The status may be None
#: if the plan goes on and nothing in it has failed.
Look = Callable[[], tuple[bool, Any]]

#: Seconds until the first look without a watch; the factor by which each pause is longer than the
#: one before; the longest pause. The pauses begin anew when a plan that moved stands still.
LOOK_S, LOOK_FACTOR, LOOK_MAX_S = 1.0, 4.0, 30.0
#: The longest pause while the plan moves, and while no watch announces a failure for good.
MOVING_MAX_S, UNWATCHED_MAX_S = 15.0, 4.0
#: If tasks are dead and others are claimed, the end of a claim wakes the waiter. It watches one
#: claim at a time, and the next one after this many seconds, so that short tasks do not cost a
#: proof each.
CLAIM_WATCH_GAP_S = 0.2
#: Seconds between two looks, without a request, whether a coroutine has given up its wait.
GIVEN_UP_LOOK_S = 1.0
#: Up to this many dead tasks, each further one wakes the waiter. Above, reading the whole list
#: again each time would cost too much.
WATCHED_DEAD_MAX = 1000


@contextmanager
def wake_up(
    client: Connection, plan_path: str, woken: threading.Event | None = None
) -> Iterator[threading.Event]:
    """An event that is set whenever a watched znode or claim of the plan changes."""
    woken = threading.Event() if woken is None else woken
    claim = f"/{number_of(plan_path)}-"

    def listener(path: str | None) -> None:
        if path is None or path.startswith(plan_path) or claim in path:
            woken.set()

    client.transport.listen(listener)
    try:
        with waiting_in_slot():
            yield woken
    finally:
        client.transport.unlisten(listener)


def checked_timeout(timeout: Duration | None) -> float | None:
    """The time-out in seconds. Raises ZkplanError unless it is a time of 0 or more."""
    seconds = in_seconds(timeout)
    if seconds is not None and not (isinstance(seconds, int | float) and seconds >= 0):
        raise ZkplanError(f"a time-out must be 0 or more seconds, not {timeout!r:.50}")
    return seconds


def _pause(seconds: float, woken: threading.Event, given_up: threading.Event | None) -> None:
    """Wait until one of these is set. `given_up` is looked at once a second."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0.0:
        if woken.wait(left if given_up is None else min(left, GIVEN_UP_LOOK_S)):
            return
        if given_up is not None and given_up.is_set():
            return


class Patience:
    """Decides how long to wait, and notices whether the plan makes progress."""

    def __init__(
        self, client: Connection, plan_path: str, timeout: Duration | None, what: str
    ) -> None:
        timeout = checked_timeout(timeout)
        self._client, self._plan = client, plan_path
        self._timeout, self._what = timeout, what
        self._deadline = math.inf if timeout is None else time.monotonic() + timeout
        self.last: PlanStatus | None = None
        #: Whether the plan had not changed at the last look.
        self._is_still = False
        #: When to look next without a watch (monotonic), and the pause before that look.
        self._look_at = 0.0
        self._pause_s = 0.0
        self._next_claim_watch = 0.0
        #: Whether a watch announces the next failure for good.
        self._watches_dead = True
        #: Whether no task could run at the last look, without proof that none ever will.
        self._stands = False
        #: Why this client cannot find out whether the plan can go on.
        self._unseen = ""
        self._warned: set[str] = set()

    @property
    def dead(self) -> int:
        """The number of dead tasks at the last look."""
        return self.last.dead if self.last is not None else 0

    @property
    def left_s(self) -> float:
        """Seconds until the next look without a watch."""
        return max(0.0, self._look_at - time.monotonic())

    def watch_the_dead(self) -> None:
        """Let each further failure for good wake this waiter."""
        self._watches_dead = self.dead < WATCHED_DEAD_MAX
        if not self._watches_dead:
            return
        try:
            self._client.transport.ask(ReadChildren(f"{self._plan}/dead", watch=True))
        except UNREACHABLE:
            raise
        except ZooKeeperError:
            # A client that may not read the list sees a failure at its next look without a watch.
            self._watches_dead = False
            logger.debug("this client cannot watch failures of %s", self._plan, exc_info=True)

    def wait(
        self,
        look: Look,
        longest: float = math.inf,
        given_up: threading.Event | None = None,
    ) -> Any:
        """Call `look` until it has found its aim. Raises the reason if the wait is in vain.

        Looks whenever a watch fires, at least every `longest` seconds, and as LOOK_S says; also
        soon after `given_up` is set. When the time is over, looks once more, and raises WaitTimeout
        if the plan can go on.
        """
        with wake_up(self._client, self._plan) as woken:
            while True:
                is_over = time.monotonic() >= self._deadline
                found, seen = look()
                if not found:
                    found, seen = self.judge(seen, look, is_over)
                if found:
                    return seen
                if is_over:
                    raise WaitTimeout(f"{self._what} after {self._timeout:g} s; {self.why()}")
                left = max(0.0, self._deadline - time.monotonic())
                _pause(min(longest, self.left_s, left), woken, given_up)
                woken.clear()

    def judge(self, seen: PlanStatus | None, look: Look, is_over: bool = False) -> tuple[bool, Any]:
        """Judge a look that has not found its aim. Returns the result of the last look.

        Raises the reason if the wait is in vain.
        """
        if seen is None and not is_over:
            self._pause_s, self._look_at = LOOK_S / LOOK_FACTOR, time.monotonic() + LOOK_S
            return False, None
        found, seen = False, seen or self._client.transport.run(read_status(self._plan))
        while not found and self._seems_in_vain(seen, is_over):
            dead, before = self._prove(), seen
            if dead is None:
                break
            # This look finds everything that happened before the proof. If it finds no change, the
            # wait is in vain.
            found, seen = look()
            self._stands = not found and seen[:-1] == before[:-1]
            if self._stands:
                self._in_vain(seen, dead, is_over)
                break
        return found, seen

    def _seems_in_vain(self, status: PlanStatus, is_over: bool) -> bool:
        """Whether to prove that no task can run. Logs what keeps the plan waiting."""
        moved = self.last is None or status[:-1] != self.last[:-1]
        self.last, self._stands = status, False
        must_prove = self._set_next_look(moved)
        if status.state == "cancelled":
            reason = f": {status.reason}" if status.reason else ""
            raise PlanCancelled(status.path, f"{status.path} was cancelled{reason}")
        if status.state == "defining":
            self._warn(
                f"{status.path} is not marked ready, so no task runs before `mark_ready` or the "
                "end of its `with` block"
            )
        if (status.dead and moved) or is_over:  # perhaps the last task that could run has ended
            return may_stand(status)
        if not must_prove or status.state != "running":
            return False
        if told := no_free_slot(self._client):
            self._warn(f"{self._what}: {told}")
        if status.runnable and (told := self._nobody_takes(status, living_workers(self._client))):
            self._warn(told)
        return not status.runnable

    def _set_next_look(self, moved: bool) -> bool:
        """Decide when to look next without a watch. Returns whether such a look was due, and the
        plan had stood still before it, too."""
        now = time.monotonic()
        is_due, was_still, self._is_still = now >= self._look_at, self._is_still, not moved
        if self._is_still and not was_still:
            self._pause_s, is_due = LOOK_S, False
        elif is_due:
            longest_s = MOVING_MAX_S if moved else LOOK_MAX_S
            longest_s = longest_s if self._watches_dead else UNWATCHED_MAX_S
            self._pause_s = min(longest_s, max(LOOK_S, LOOK_FACTOR * self._pause_s))
        elif self.dead:
            # The end of the last claim may leave only dead tasks, and only one claim is watched.
            self._pause_s, self._look_at = LOOK_S, min(self._look_at, now + LOOK_S)
            return False
        else:
            return False
        self._look_at = now + self._pause_s
        return is_due and was_still

    def _nobody_takes(self, status: PlanStatus, workers: Sequence[WorkerRecord]) -> str:
        """Why no worker can take the runnable tasks; empty if one can."""
        if not workers:
            return no_worker(self._client)
        queues = unserved(self._client, status.path, workers)
        if queues:
            return f"{status.path}: {no_server(self._client, queues)}"
        active = [worker for worker in workers if worker.state == "running"]
        if len(active) == len(workers):
            return ""
        for queue in unserved(self._client, status.path, active):
            text, advice = resting(self._client, queue, workers)
            return f"{status.path}: {text}; {advice}"
        return ""

    def _prove(self) -> int | None:
        """The number of dead tasks if no task can run; None if one can, or if this is unknown."""
        run, paths = self._client.transport.run, self._client.paths
        try:
            dead = run(dead_if_deadlocked(paths, self._plan))
            now = time.monotonic()
            if dead is None and self.dead and now >= self._next_claim_watch:
                self._next_claim_watch = now + CLAIM_WATCH_GAP_S
                run(watch_a_claim(paths, self._plan))
            return dead
        except UNREACHABLE:
            raise
        except ZooKeeperError as error:
            self._unseen = f"this client cannot see whether the plan can go on: {error}"
            self._warn(f"{self._plan}: {self._unseen}")
            return None

    def _in_vain(self, status: PlanStatus, dead: int, is_over: bool) -> None:
        """Raise the error, if the reason is known."""
        # The last look must not repair, because an author may be adding tasks at this moment.
        why = raise_in_vain(self._client, status, dead, repair=not is_over)
        if why:
            self._warn(why)

    @contextmanager
    def log_ctrl_c(self) -> Iterator[None]:
        """Log at Ctrl-C that only the wait has ended."""
        try:
            yield
        except KeyboardInterrupt:
            self.log_that_it_goes_on()
            raise

    def log_that_it_goes_on(self) -> None:
        """Log that the plan goes on, and how to see it, unless the plan ends with this process."""
        has_looked = self._look_at > 0.0
        if not has_looked or self._client.ends_with_process:
            return
        known = self.last.name if self.last is not None else ""
        name = f" ({known})" if known.isprintable() and known else ""
        logger.warning(
            "%s%s goes on; only this wait has ended. To look at the plan: %s",
            *(self._plan, name, self._client.command(f"plan show {int(number_of(self._plan))}")),
        )

    def _warn(self, message: str) -> None:
        """Log each message only once."""
        if message not in self._warned:
            self._warned.add(message)
            logger.warning("%s", message)

    def why(self) -> str:
        """Why the plan has not ended, as far as this client knows."""
        status = self.last
        if status is not None and status.state == "defining":
            return "the plan is not marked ready, so its tasks do not run"
        if status is not None and status.state == "paused":
            return "the plan is paused until `resume`"
        dead = f"{status.dead} of its tasks out of attempts; " if status and status.dead else ""
        try:
            if self._stands:
                check = self._client.command(f"plan check {int(number_of(self._plan))}")
                return dead + (
                    f"none of its tasks can run now (`{check}` shows why, and repairs what it can)"
                )
            if told := no_free_slot(self._client):
                return dead + told
            if status is not None and status.state == "running" and status.tasks:
                if told := self._client.values.why_away(self._plan):
                    return dead + told
                workers = living_workers(self._client)
                if told := self._nobody_takes(status, workers):
                    return dead + told
                if status.runnable and not any(worker.claims for worker in workers):
                    return dead + not_taken(self._client, self._plan, status.runnable)
        except ZooKeeperError:
            return dead + "ZooKeeper does not answer now"
        return dead + (self._unseen or "it goes on")
