"""One worker's place in the queue of idle workers: when it sleeps, and whom it wakes.

A worker that sleeps starts no look and no claim. It keeps what its watches announce, so it costs
nothing until it wakes up, and then knows what has changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from ..protocol.core import idle_queue
from ..protocol.layout import Paths
from ..protocol.requests import Step
from ..protocol.transactions import Registration
from ..transport.server_clock import Clock
from .claims import Claims
from .membership import Membership
from .plan_candidates import Candidates
from .steps import SAFETY_LOOK_S, Steps

#: Seconds without work after which a worker takes a place in the queue.
IDLE_S = 1.0
#: A worker that has had a task for this many seconds leaves the queue. Shorter tasks are no reason:
#: one worker can run many of them, one after the other.
LEAVE_S = 0.05
#: Seconds after which the first may wake others again.
WAKE_AGAIN_S = 0.1
#: Seconds between two looks of a worker that sleeps, and how long it looks: a watch may be lost.
LOOK_PERIOD_S, LOOK_S = 2 * SAFETY_LOOK_S, 1.0
#: Seconds after which a worker that sleeps looks again who is before it.
LINE_UP_S = 50.0
#: The most workers to wake at once.
WAKE_MAX = 500
_NEVER = float("inf")
T = TypeVar("T")


@dataclass(eq=False)
class IdleQueue:
    """Only the loop's thread calls it. `group`: see `idle_queue.group_of`."""

    steps: Steps
    paths: Paths
    membership: Membership
    claims: Claims
    candidates: Candidates
    clock: Clock
    group: str
    #: Whether this worker has a place behind the first of its group, or is the first.
    is_asleep: bool = field(default=False, init=False)
    is_first: bool = field(default=False, init=False)
    #: How many workers had a place when this one was last in line.
    _idle: int = field(default=0, init=False)
    #: The registration that the place belongs to, and the path of the place; empty without one.
    _me: Registration | None = field(default=None, init=False)
    _place: str = field(default="", init=False)
    #: The path of the last place, which may stand again by a late copy.
    _left: str = field(default="", init=False)
    _is_moving: bool = field(default=False, init=False)
    _must_line_up: bool = field(default=False, init=False)
    #: Since when this worker has tasks (monotonic), and when it was last busy with them.
    _has_tasks_since: float = field(default=_NEVER, init=False)
    _busy_at: float = field(default=0.0, init=False)
    _look_at: float = field(default=_NEVER, init=False)
    _line_up_at: float = field(default=_NEVER, init=False)
    _wake_at: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._busy_at = self.clock.monotonic()

    @property
    def share(self) -> tuple[int, int]:
        """This worker's share of the checks of plans: the first makes those of all that sleep."""
        return (0, 1) if self.is_first else self.membership.share

    @property
    def others_are_idle(self) -> bool:
        """Whether this worker is the first, and all others have a place, too."""
        return self.is_first and self._idle >= len(self.membership.living)

    def may_look(self, now: float) -> bool:
        """Whether this worker looks for work now."""
        return not self.is_asleep or self._look_at <= now

    def next_event(self, now: float) -> float:
        """The monotonic time at which `advance` has something to do."""
        if self._is_moving:
            return _NEVER
        if not self._place:
            return self._busy_at + IDLE_S if self._may_enter else _NEVER
        look_at = self._look_at + LOOK_S if self._look_at <= now else self._look_at
        return min(look_at, self._line_up_at, self._has_tasks_since + LEAVE_S)

    @property
    def _may_enter(self) -> bool:
        has_work = self._has_tasks_since != _NEVER or self.candidates.has_stock
        return not has_work and self._serves_well and self.membership.me is not None

    @property
    def _serves_well(self) -> bool:
        """Whether others may sleep because this worker is awake. One that stops, is paused, or
        cannot run something that others can run has no place in the queue."""
        claims = self.claims
        can_claim = not claims.starts_nothing and claims.slots > 0 and self.membership.answers
        return can_claim and not self.candidates.leaves_some

    def last_place(self) -> str:
        """The place to delete when this worker ends at once; empty if it never had one."""
        return self._place or self._left

    def touched(self, path: str | None) -> None:
        """A watch fired. None: the connection changed, so any watch may have fired."""
        in_queue = self._place or self._is_moving
        if path in (None, self._left) or (in_queue and path.startswith(self.paths.idle)):
            self._must_line_up = True

    def advance(self, now: float) -> None:
        """Take a place, leave it, or find out who is before this worker."""
        self._note_tasks(now)
        may_wake = self.is_first and now >= self._wake_at
        is_full = may_wake and self.claims.held >= self.claims.slots
        if is_full and (plans := self.candidates.without_claims(now)):
            self._wake(plans)
        if self._is_moving:
            return
        if self._left and self._must_line_up:
            self._must_line_up = False
            self._leave(self._left)  # where a late copy has made it again
        elif not self._place:
            me = self.membership.me
            if now >= self._busy_at + IDLE_S and me is not None and self._may_enter:
                self._enter(me)
        elif not self._serves_well or self._me is not self.membership.me or self._is_busy(now):
            self._leave(self._place)
        elif self._must_line_up or now >= self._line_up_at:
            self._line_up()
        elif self.is_asleep and now >= self._look_at + LOOK_S:
            self._look_at = now + LOOK_PERIOD_S

    def _note_tasks(self, now: float) -> None:
        # Jobs first: to count what is held takes longer, and this runs at each turn of the loop.
        if not (self.claims.jobs or self.claims.held):
            self._has_tasks_since = _NEVER
        elif self._has_tasks_since == _NEVER:
            self._has_tasks_since = now
        elif self._is_busy(now):
            self._busy_at = now

    def _is_busy(self, now: float) -> bool:
        return now >= self._has_tasks_since + LEAVE_S

    # ---- places

    def _start(self, step: Step[T], done: Callable[[T | None], None], what: str) -> None:
        self._is_moving = True

        def ended(found: T | None) -> None:
            self._is_moving = False
            done(found)

        self.steps.start_contained(step, ended, what, instead=None)

    def _enter(self, me: Registration) -> None:
        place = self._left = self.paths.idle_place(self.group, me.worker)

        def entered(has_place: bool | None) -> None:
            if has_place:
                self._me, self._place, self._left, self._must_line_up = me, place, "", True
                return
            self._leave(place)
            self._busy_at = self.clock.monotonic() + SAFETY_LOOK_S  # not again soon

        self._start(idle_queue.enter(me, place), entered, f"worker {me.worker} cannot rest")

    def _line_up(self) -> None:
        self._must_line_up = False

        def lined_up(queue: idle_queue.Queue | None) -> None:
            if queue is None:  # somebody wakes this worker
                self._leave(self._place)
                return
            if queue.is_first:
                self._look_at = _NEVER
            elif not self.is_asleep:
                self._look_at = self.clock.monotonic() + LOOK_PERIOD_S
            self.is_first, self.is_asleep = queue.is_first, not queue.is_first
            self._line_up_at = self.clock.monotonic() + LINE_UP_S if self.is_asleep else _NEVER
            self._idle = queue.idle

        step = idle_queue.line_up(self.paths, self.group, self._place)
        self._start(step, lined_up, f"the queue {self.paths.idle} cannot be read")

    def _leave(self, place: str) -> None:
        self._me, self._place, self.is_first, self.is_asleep = None, "", False, False
        self._left, self._busy_at = place, self.clock.monotonic()
        self._look_at = self._line_up_at = _NEVER
        self._start(idle_queue.leave(place), lambda _: None, f"{place} cannot be left")

    # ---- waking others

    def seen(self, entries: int) -> None:
        """Wake others if one plan has more than one of these runnable entries."""
        if self.is_first and entries > 1 and self.clock.monotonic() >= self._wake_at:
            self._wake(entries - 1)

    def _wake(self, most: int) -> None:
        self._wake_at = self.clock.monotonic() + WAKE_AGAIN_S
        step = idle_queue.wake(self.paths, self.group, self._place, min(most, WAKE_MAX))
        what = f"the workers in {self.paths.idle} cannot be woken"
        self.steps.start_contained(step, lambda _: None, what, instead=None)
