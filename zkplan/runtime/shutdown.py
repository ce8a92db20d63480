"""How a worker leaves: it drains, hands back, signs off, and does not wait for ever."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from ..protocol.membership import unregister
from ..text import count

if TYPE_CHECKING:
    from .loop import Loop

#: How long a worker that holds nothing any more waits for ZooKeeper, to sign off.
SIGN_OFF_S = 2.0
#: How long after its grace a worker waits at least for the answers to what it delivers.
DELIVER_S = 5.0

logger = logging.getLogger("zkplan.worker")


class Shutdown:
    """The end of one worker, from the first `begin` on."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._hurry_at: float | None = None
        self._give_up_at = 0.0
        self._empty_since: float | None = None

    @property
    def begun(self) -> bool:
        return self._hurry_at is not None

    def begin(self, grace_s: float) -> None:
        """Give running tasks `grace_s` seconds. A later call can only shorten that."""
        hurry_at = time.monotonic() + grace_s
        if self._hurry_at is None:
            logger.info(
                "draining: %s running, up to %g s; again to hand them back at once",
                count(len(self._loop.slots.running), "task"),
                grace_s,
            )
        elif hurry_at >= self._hurry_at:
            return
        self._hurry_at = hurry_at
        self._give_up_at = hurry_at + max(DELIVER_S, self._loop.transport.session_timeout_s)

    def drain(self, now: float) -> None:
        """One turn of the loop: hand back what waits, after the grace also what runs; sign off."""
        loop = self._loop
        loop.claims.give_back(loop.slots.take_waiting())
        if self._hurry_at is not None and now >= self._hurry_at:
            for job in list(loop.slots.running):
                job.stop_reason = "the worker stops"
                loop.write_off(job)
                loop.claims.give_back([job])
            loop.again.give_up()
        if not self._holds_anything() and not loop.flying and loop.me is not None:
            me, loop.me = loop.me, None
            loop.go(unregister(me), lambda gone: None)

    def done(self) -> bool:
        """Whether the loop may end. What a silent ZooKeeper leaves here is taken over by others."""
        if not self.begun:
            return False
        now = time.monotonic()
        if self._holds_anything():
            self._empty_since = None
        elif self._empty_since is None:
            self._empty_since = now
        elif now - self._empty_since > SIGN_OFF_S:
            return True
        loop = self._loop
        return now > self._give_up_at or (
            loop.me is None and not loop.flying and not loop.claims.held
        )

    def _holds_anything(self) -> bool:
        # `jobs` too: one that moves from the queue to its thread, or from there to the ended ones,
        # is in neither for a moment, and leaving then would drop its result.
        loop = self._loop
        return bool(loop.claims.jobs or loop.claims.held or loop.delivery.waiting)
