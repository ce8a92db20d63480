"""Durations as programs give them: in seconds, or as a timedelta."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, overload

Duration = timedelta | float


@overload
def in_seconds(duration: Duration) -> float: ...
@overload
def in_seconds(duration: Duration | None) -> float | None: ...
def in_seconds(duration: Any) -> Any:
    """Anything but a timedelta is returned as it is: whoever takes it says what is wrong with it.

    >>> in_seconds(timedelta(minutes=2)), in_seconds(5), in_seconds(None)
    (120.0, 5, None)
    """
    return duration.total_seconds() if isinstance(duration, timedelta) else duration
