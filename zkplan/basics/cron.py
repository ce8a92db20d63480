"""Compute when a cron expression is due in a time zone, across changes of summer time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta, timezone, tzinfo
from itertools import takewhile
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

_NAMED = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_SECOND, _MINUTE = timedelta(seconds=1), timedelta(minutes=1)
_DAY_S = 86_400.0
#: Files beside the time zones whose content differs between machines.
_OF_A_MACHINE = ("localtime", "posixrules")


def zone_of(name: str) -> tzinfo:
    """Return the time zone `name`. Raises ValueError if there is none."""
    if not isinstance(name, str) or name.lower() in _OF_A_MACHINE:
        raise ValueError(
            f"{name!r:.50} does not name the same time zone on every machine: give a name such as "
            "Europe/Berlin, or UTC"
        )
    try:
        return timezone.utc if name == "UTC" else ZoneInfo(name)
    except (OSError, KeyError, ValueError) as error:  # an unknown zone is a KeyError
        raise ValueError(
            f"this machine has no time zone {name!r}: give a name such as Europe/Berlin, or "
            "install the package tzdata, which has all zones"
        ) from error


class Cron:
    """A cron expression in a time zone. It has five fields, or six with seconds first.

    A time of day that the change to summer time skips is due right after the gap; a time that comes
    twice at the change back is due once. But with seconds, or if the minutes or hours begin with a
    star, the expression follows real time: a skipped time is never due, a repeated one twice.
    """

    def __init__(self, text: str, zone: str) -> None:
        """Parse the expression `text`. Raises ValueError if it or `zone` is wrong."""
        if not isinstance(text, str):
            raise ValueError(
                f"a cron expression must be a text such as '30 6 * * MON-FRI', not {text!r}"
            )
        self._expression = _NAMED.get(text.strip().lower(), text.strip())
        first, _, rest = self._expression.partition(" ")
        if first == "0" and len(rest.split()) == 5:
            self._expression = rest  # equal, except at the changes of summer time
        self.zone = zone_of(zone)
        try:
            next(CronSim(self._expression, datetime.now()))
        except StopIteration:
            raise ValueError(f"{text!r} is never due: no date matches all its fields") from None
        except CronSimError as error:
            raise ValueError(
                f"{text!r} is not a cron expression: {error}. Give the fields minute, hour, day of "
                "the month, month and day of the week, for example '30 6 * * MON-FRI'; the second "
                "may stand before them"
            ) from None
        fields = self._expression.split()
        starred = any(field.startswith("*") for field in fields[:2])
        self._by_wall_clock = len(fields) == 5 and not starred

    def after(self, seconds: float) -> Iterator[float]:
        """Yield the due times after `seconds`, in seconds since 1970."""
        # After clocks were set back, earlier clock times come again: start with them.
        wall = self._wall(seconds) - self._set_back(seconds, seconds + _DAY_S)
        for due in self._in_order(CronSim(self._expression, wall)):
            if due > seconds:
                seconds = due  # two clock times in one gap are due once, right after the gap
                yield due

    def latest(self, seconds: float) -> float:
        """Return the last due time at or before `seconds`."""
        # After clocks were set back, later clock times have already passed: start with them.
        wall = self._wall(seconds) + self._set_back(seconds - _DAY_S, seconds)
        found = next(
            due[0]
            for each in CronSim(self._expression, wall + _SECOND, reverse=True)
            if (due := self._due(each)) and due[0] <= seconds
        )
        # After a change back, an earlier clock time may be due later, when it comes again.
        return max(takewhile(lambda due: due <= seconds, self.after(found)), default=found)

    def _in_order(self, walls: Iterable[datetime]) -> Iterator[float]:
        """Yield in order the moments at which the clock times `walls`, which rise, are due."""
        again: deque[float] = deque()
        for wall in walls:
            due = self._due(wall)
            while again and due and again[0] < due[0]:
                yield again.popleft()
            yield from due[:1]
            again += due[1:]
        yield from again

    def _due(self, wall: datetime) -> list[float]:
        """Return when a clock time is due: two moments if it comes twice, none if it is skipped."""
        # CronSim gets no time zone: with one, it loses times at shifts of half an hour.
        first, second = self._moments(wall)
        if first == second:
            return [first]
        if not self._by_wall_clock:
            return [first, second] if first < second else []
        while first > second:  # in a gap the order is reversed: see PEP 495
            wall += _MINUTE
            first, second = self._moments(wall)
        return [first]

    def _moments(self, wall: datetime) -> tuple[float, float]:
        first, second = (wall.replace(tzinfo=self.zone, fold=fold) for fold in (0, 1))
        return first.timestamp(), second.timestamp()

    def _wall(self, seconds: float) -> datetime:
        """Return the date and time that a clock in the zone shows."""
        return datetime.fromtimestamp(seconds, self.zone).replace(tzinfo=None)

    def _set_back(self, since: float, until: float) -> timedelta:
        """Return how far clocks were set back between two times."""
        passed = timedelta(seconds=until - since)
        return max(timedelta(), passed - (self._wall(until) - self._wall(since)))
