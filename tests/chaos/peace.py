"""How long a plan may stand at most while there are no faults: what has to happen, added up."""

from __future__ import annotations

import time
from typing import NamedTuple

from zkplan.runtime.maintenance import (
    CHECK_FIRST_S,
    CLAIMS_PERIOD_S,
    DELAYED_PERIOD_S,
    HEAD_START_S,
)

from .validate.evidence import noticed_s
from .validate.validator import HALF_DEFINED_S, SHOWN_S, Validator


def recovery_s(session_s: float) -> float:
    """How long after the last fault at most something still stands that it has left behind.

    One after the other, as each may wait for the one before it: what is lost is noticed; the claims
    node of the lost is seen by a look without a watch, and the preferred worker has a head start;
    what was delayed, or is runnable and nobody was told of, is found by the longest of the looks
    that need no watch; what is only found by a check stands still until the second one; what an
    author has half defined is given up, judged when it rests, and removed.
    """
    cleared_s = CLAIMS_PERIOD_S + HEAD_START_S
    checked_s = CHECK_FIRST_S * 3
    given_up_s = HALF_DEFINED_S + 2 * SHOWN_S
    return noticed_s(session_s) + cleared_s + DELAYED_PERIOD_S + checked_s + given_up_s


class Peace:
    """From its beginning on, until when the plans that stand have to be done.

    Each plan gets the time of its work, all as if one after the other, and what faults have left
    behind is mended meanwhile. Nothing starts the bound anew: more plans come only from authors
    that were still to end.
    """

    def __init__(self, validator: Validator, session_s: float) -> None:
        self._validator = validator
        self._recovery_s = recovery_s(session_s)
        self._began = time.monotonic()
        self._work_s: dict[str, float] = {}
        self.see()

    def see(self) -> None:
        """Those that stand now count too."""
        for name in self._validator.standing:
            history = self._validator.history.plans.get(name)
            if name not in self._work_s and history is not None:
                self._work_s[name] = history.workload.work_s

    @property
    def names(self) -> set[str]:
        return set(self._work_s)

    @property
    def standing(self) -> set[str]:
        """Those that are not done as yet."""
        return self.names & set(self._validator.standing)

    @property
    def lasted_s(self) -> float:
        return time.monotonic() - self._began

    @property
    def allowed_s(self) -> float:
        return self._recovery_s + sum(self._work_s.values())


class Breath(NamedTuple):
    """No new faults for `lasted_s` of `allowed_s`, until the `plans` that had stood were done.

    Or until something was violated: that they stood for longer, say.
    """

    plans: int
    lasted_s: float
    allowed_s: float
