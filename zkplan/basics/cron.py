"""When a cron expression is due in a time zone, across changes of summer time. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone, tzinfo
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

_NAMED = {
    "@yearly": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@hourly": "0 * * * *",
}


def zone_of(name: str) -> tzinfo:
    """Raises ValueError, whose text says what is wrong."""
    try:
        return timezone.utc if name == "UTC" else ZoneInfo(name)
    except (OSError, KeyError, ValueError) as error:  # one that is not found is a KeyError
        raise ValueError(
            f"{name!r} is no time zone that this machine knows: give a name such as Europe/Berlin "
            "(the package tzdata brings all of them)"
        ) from error


class Cron:
    """A cron expression of five fields, or of six with the second before them, in a time zone.

    A time of day that the change to summer time skips is due right after the gap; one that comes
    twice at the change back is due once. With a star in the field of minutes or hours, or with
    seconds, the expression follows the real time: then such a time is due not at all, or twice.
    """

    def __init__(self, text: str, zone: str) -> None:
        """Raises ValueError, whose text says what is wrong."""
        self._expression = _NAMED.get(text.strip().lower(), text.strip())
        first, _, rest = self._expression.partition(" ")
        if first == "0" and len(rest.split()) == 5:
            self._expression = rest  # the same, but for the changes of summer time
        self.zone = zone_of(zone)
        try:
            CronSim(self._expression, datetime.now(self.zone))
        except CronSimError as error:
            raise ValueError(
                f"{text!r} is no cron expression: {error}. It has the fields minute, hour, day of "
                "the month, month, day of the week, or the second before them, such as "
                "'30 6 * * MON-FRI'"
            ) from None

    def after(self, seconds: float) -> Iterator[float]:
        """The times after that one, in wall-clock seconds since 1970."""
        for found in CronSim(self._expression, datetime.fromtimestamp(seconds, self.zone)):
            if found.timestamp() > seconds:  # in the hour that comes twice, it may be earlier
                yield found.timestamp()

    def latest(self, seconds: float) -> float:
        """The last time that is not after that one."""
        start = datetime.fromtimestamp(seconds + 1, self.zone)
        for found in CronSim(self._expression, start, reverse=True):
            if found.timestamp() <= seconds:
                break
        return found.timestamp()
