"""The delay before a task that has failed is tried again."""

from __future__ import annotations

from ..backoff import CHANCE, Backoff
from ..protocol.options import TaskOptions

#: The longest delay, whatever the number of failures, unless `retry_delay` itself is longer.
RETRY_DELAY_MAX_S = 300.0
#: The latest due time that fits into a name. Only a record made by hand has a later one.
DELAY_S_MAX = 365 * 24 * 3600.0


def retry_delay_s(options: TaskOptions, attempts: int) -> float:
    """Seconds to wait after a failure; `attempts` were used up before it."""
    if options.retry_delay <= 0:
        return 0.0
    backoff = Backoff(options.retry_delay, 2.0, max(RETRY_DELAY_MAX_S, options.retry_delay), 0.3)
    # An entry made by hand may have so many attempts that the delay cannot be calculated.
    return min(backoff.delay_s(min(attempts, 1000), CHANCE.random()), DELAY_S_MAX)
