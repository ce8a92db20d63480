"""How many requests each caller may send: a bucket that fills as time goes by."""

from __future__ import annotations

import time
from collections import OrderedDict

#: Buckets of so many callers are kept; who has not asked for longest begins anew.
CALLERS_MAX = 10_000


class Rates:
    """`rate` requests a second for each caller, `burst` at once; any number if `rate` is 0."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate, self._burst = rate, max(1.0, burst)
        #: How many requests each caller has left, and when that was.
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, caller: str, now: float | None = None) -> float:
        """Take one; returns 0, or in how many seconds there is one."""
        if self._rate <= 0:
            return 0.0
        now = time.monotonic() if now is None else now
        left, when = self._left.pop(caller, (self._burst, now))
        left = min(self._burst, left + (now - when) * self._rate)
        taken = left >= 1
        self._left[caller] = (left - taken, now)
        if len(self._left) > CALLERS_MAX:
            self._left.popitem(last=False)
        return 0.0 if taken else (1 - left) / self._rate
