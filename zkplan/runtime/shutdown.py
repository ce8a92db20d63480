"""Drain a worker and sign it off, on request or once abandoned functions hold too many threads."""

from __future__ import annotations

from dataclasses import dataclass

from ..basics.log import get_logger
from ..basics.text import count
from ..transport.server_clock import Clock
from .attempt_end import Settler
from .claims import Claims
from .membership import Membership
from .slots import Slots
from .steps import Steps

#: Seconds that a worker without claims waits for ZooKeeper to sign it off.
SIGN_OFF_S = 2.0
#: The least seconds after its grace that a worker waits for the answers to its commits.
DELIVER_S = 5.0

#: The grace, in seconds, of a worker that an operator drains: its tasks may take any time.
PATIENT_S = 10 * 365 * 24 * 3600.0

logger = get_logger("zkplan.worker")


@dataclass(eq=False)
class Shutdown:
    """The shutdown of one worker, from the first `begin` on."""

    steps: Steps
    membership: Membership
    claims: Claims
    pool: Slots
    settler: Settler
    clock: Clock
    session_timeout_s: float
    _hurry_at: float = 0.0
    _give_up_at: float = 0.0
    _empty_since: float | None = None

    @property
    def begun(self) -> bool:
        return self.claims.draining

    def begin(self, grace_s: float) -> None:
        """Give running tasks `grace_s` seconds to end. A later call can only shorten this grace."""
        hurry_at = self.clock.monotonic() + grace_s
        if not self.begun:
            logger.info(
                "draining: %s running, %s to end; a second signal hands them back at once",
                count(len(self.pool.running), "task"),
                f"{grace_s:g} s" if grace_s < PATIENT_S else "with as much time as they need",
            )
        elif hurry_at >= self._hurry_at:
            return
        self.claims.draining = True
        self._hurry_at = hurry_at
        self._give_up_at = hurry_at + max(DELIVER_S, self.session_timeout_s)

    def drain(self, now: float) -> None:
        """In one turn of the loop, hand back waiting tasks, and after the grace running ones. Sign
        off once nothing is left."""
        self.claims.hand_back(self.pool.take_waiting())
        if now >= self._hurry_at:
            for job in list(self.pool.running):
                self.settler.write_off(job, job.stop_reason or "the worker stops")
                self.claims.hand_back([job])
            self.steps.give_up()
        if not self._holds_anything() and not self.steps.under_way:
            self.membership.leave()

    def done(self) -> bool:
        """Whether the loop may end. If ZooKeeper does not answer, it may end with claims left,
        which others take over."""
        if not self.begun:
            return False
        now = self.clock.monotonic()
        if self._holds_anything():
            self._empty_since = None
        elif self._empty_since is None:
            self._empty_since = now
        elif now - self._empty_since > SIGN_OFF_S:
            return True
        left = self.membership.me is None and not self.steps.under_way
        return now > self._give_up_at or (left and not self.claims.held)

    def _holds_anything(self) -> bool:
        # Check `jobs`, too: a job on its way from the queue to its thread, or from its thread to
        # the ended jobs, is in none of these for a moment. An end then would drop its result.
        claims = self.claims
        return bool(claims.jobs or claims.held or claims.uncommitted)


# ---- Wear: a worker ends once too many abandoned functions hold its threads.


#: Seconds that the other tasks of such a worker have to end.
WORN_OUT_GRACE_S = 30.0
#: Seconds for which these functions must hold their threads: a process or command ends slowly.
WORN_AFTER_S = 10.0


class Wear:
    """Ends the worker if abandoned functions hold too many threads. Only a new process gets rid of
    such threads."""

    def __init__(self, *, pool: Slots, shutdown: Shutdown, most: int | None) -> None:
        """`most` is `max_abandoned` of the worker. None: the worker goes on with fewer slots."""
        self._pool, self._shutdown, self._most = pool, shutdown, most
        self._since = float("inf")
        self.is_worn_out = False

    def look(self, now: float) -> None:
        """Begin to drain if abandoned functions hold too many threads for too long."""
        if self._most is None or self._shutdown.begun:
            return
        self._since = min(self._since, now) if self._pool.abandoned >= self._most else float("inf")
        if now < self._since + WORN_AFTER_S:
            return
        self.is_worn_out = True
        logger.error(
            "%d functions that were given up (timed out, cancelled) have not returned, and hold as "
            "many threads, the limit (max_abandoned): this worker claims nothing more, and ends. "
            "Give the calls that hang a time-out of their own",
            self._most,
        )
        self._shutdown.begin(WORN_OUT_GRACE_S)
