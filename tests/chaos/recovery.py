"""How long plans may stand at most while no new fault comes: a bound that nothing restarts."""

from __future__ import annotations

import time
from typing import NamedTuple

from zkplan.runtime.delays_and_deadlines import DELAYED_PERIOD_S
from zkplan.runtime.lost_claims import CLAIMS_PERIOD_S, HEAD_START_S
from zkplan.runtime.maintenance import CHECK_FIRST_S

from .validate.evidence import noticed_s
from .validate.validator import HALF_DEFINED_S, SHOWN_S, Validator


def repair_s(session_s: float) -> float:
    """How long after the last fault its damage is repaired at the latest.

    What may have to happen one after the other: a worker notices its loss; others find its claims
    node in a look without a watch, after a head start for the preferred worker; the longest look
    without a watch finds what was delayed; the second background check finds what nobody was told
    of; what an author left half defined is cancelled, judged at rest, and removed.
    """
    cleared_s = CLAIMS_PERIOD_S + HEAD_START_S
    checked_s = CHECK_FIRST_S * 3
    given_up_s = HALF_DEFINED_S + 2 * SHOWN_S
    return noticed_s(session_s) + cleared_s + DELAYED_PERIOD_S + checked_s + given_up_s


class Recovery:
    """A time without new faults, and when the plans that stand have to be done.

    Each plan adds the time of its work, as if plans ran one after another; damage is repaired
    meanwhile. Authors that are still to end may bring more plans, nothing else prolongs it.
    """

    def __init__(self, validator: Validator, session_s: float) -> None:
        self._validator = validator
        self._repair_s = repair_s(session_s)
        self._began = time.monotonic()
        self._work_s: dict[str, float] = {}
        self.see()

    def see(self) -> None:
        """Add the plans that stand now."""
        for name in self._validator.standing:
            history = self._validator.history.plans.get(name)
            if name not in self._work_s and history is not None:
                self._work_s[name] = history.workload.work_s

    @property
    def standing(self) -> set[str]:
        """The added plans that are not done yet."""
        return set(self._work_s) & set(self._validator.standing)

    @property
    def taken(self) -> Taken:
        """So far."""
        allowed_s = self._repair_s + sum(self._work_s.values())
        return Taken(time.monotonic() - self._began, allowed_s)


class Taken(NamedTuple):
    """How long a recovery took, and how long it was allowed to take."""

    seconds: float
    allowed_s: float

    @property
    def too_long(self) -> bool:
        return self.seconds > self.allowed_s

    def __str__(self) -> str:
        return f"{self.seconds:.1f} s of {self.allowed_s:.0f} s allowed"


NOTHING_TAKEN = Taken(0.0, 0.0)
