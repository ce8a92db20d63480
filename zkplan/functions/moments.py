"""Moments as users give them: a date with a zone, or a delay from now; to seconds since 1970."""

from __future__ import annotations

import time
from datetime import datetime, timedelta

#: A date and time with a zone, or a delay from now: in seconds, or as a timedelta.
Moment = datetime | timedelta | float
#: The tree has room for times up to the year 2286.
LATEST_S = 9_999_999_999.0


def seconds_of(moment: Moment, what: str) -> float:
    """Wall-clock seconds since 1970. Raises ValueError, whose text says what to give.

    >>> from datetime import timezone
    >>> seconds_of(datetime(1970, 1, 2, tzinfo=timezone.utc), "deadline")
    86400.0
    """
    if isinstance(moment, datetime):
        if moment.utcoffset() is None:
            raise ValueError(
                f"{what}: {moment!r} has no time zone, so it means another moment on each machine: "
                "give it one, such as datetime(…, tzinfo=ZoneInfo('Europe/Berlin'))"
            )
        at = moment.timestamp()
    elif isinstance(moment, timedelta):
        at = time.time() + moment.total_seconds()
    elif isinstance(moment, (int, float)) and not isinstance(moment, bool):
        at = time.time() + moment
    else:
        raise ValueError(
            f"{what}: a datetime with a time zone, a timedelta, or seconds from now, not {moment!r}"
        )
    if not 0 <= at <= LATEST_S:  # NaN, too
        raise ValueError(f"{what}: a moment between 1970 and 2286, not {moment!r}")
    return at
