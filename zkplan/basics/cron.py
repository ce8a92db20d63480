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
#: Files beside the zones that differ between machines.
_OF_A_MACHINE = ("localtime", "posixrules")


def zone_of(name: str) -> tzinfo:
    """Return the time zone of that name. Raises ValueError with what is wrong."""
    if not isinstance(name, str) or name.lower() in _OF_A_MACHINE:
        raise ValueError(
            f"{name!r:.50} is not the name of a time zone, and each machine may have another one: "
            "give a name such as Europe/Berlin, or UTC"
        )
    try:
        return timezone.utc if name == "UTC" else ZoneInfo(name)
    except (OSError, KeyError, ValueError) as error:  # one that is not found is a KeyError
        raise ValueError(
            f"this machine knows no time zone {name!r}: give a name such as Europe/Berlin (the "
            "package tzdata has all of them)"
        ) from error


class Cron:
    """A cron expression of five fields, or of six with the second before them, in a time zone.

    A time of day that the change to summer time skips is due right after the gap; a time that comes
    twice at the change back is due once. An expression with a star for minutes or hours, or with
    seconds, follows the real time: then a skipped time is never due, and a repeated one twice.
    """

    def __init__(self, text: str, zone: str) -> None:
        """Raises ValueError with what is wrong."""
        if not isinstance(text, str):
            raise ValueError(
                f"a cron expression is a text such as '30 6 * * MON-FRI', not {text!r}"
            )
        self._expression = _NAMED.get(text.strip().lower(), text.strip())
        first, _, rest = self._expression.partition(" ")
        if first == "0" and len(rest.split()) == 5:
            self._expression = rest  # the same, but for the changes of summer time
        self.zone = zone_of(zone)
        try:
            next(CronSim(self._expression, datetime.now()))
        except StopIteration:
            raise ValueError(f"{text!r} is never due: no day is in all its fields") from None
        except CronSimError as error:
            raise ValueError(
                f"{text!r} is no cron expression: {error}. It has the fields minute, hour, day of "
                "the month, month, day of the week, or the second before them, such as "
                "'30 6 * * MON-FRI'"
            ) from None
        fields = self._expression.split()
        starred = any(field.startswith("*") for field in fields[:2])
        self._by_wall_clock = len(fields) == 5 and not starred

    def after(self, seconds: float) -> Iterator[float]:
        """Yield the due times after that time, in seconds since 1970."""
        # The hour that comes twice shows earlier clock times again.
        wall = self._wall(seconds) - self._set_back(seconds, seconds + _DAY_S)
        for due in self._in_order(CronSim(self._expression, wall)):
            if due > seconds:
                seconds = due  # Two clock times in one gap are due once, right after it.
                yield due

    def latest(self, seconds: float) -> float:
        """Return the last due time that is not after that time."""
        # In the hour that comes twice, later clock times have been already.
        wall = self._wall(seconds) + self._set_back(seconds - _DAY_S, seconds)
        found = next(
            due[0]
            for each in CronSim(self._expression, wall + _SECOND, reverse=True)
            if (due := self._due(each)) and due[0] <= seconds
        )
        # Of these clock times an earlier one may have come later, for the second time.
        return max(takewhile(lambda due: due <= seconds, self.after(found)), default=found)

    def _in_order(self, walls: Iterable[datetime]) -> Iterator[float]:
        """Yield the moments at which rising clock times are due, in order."""
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
        while first > second:  # in the gap, as PEP 495 has it
            wall += _MINUTE
            first, second = self._moments(wall)
        return [first]

    def _moments(self, wall: datetime) -> tuple[float, float]:
        first, second = (wall.replace(tzinfo=self.zone, fold=fold) for fold in (0, 1))
        return first.timestamp(), second.timestamp()

    def _wall(self, seconds: float) -> datetime:
        """Return what a clock of the zone shows."""
        return datetime.fromtimestamp(seconds, self.zone).replace(tzinfo=None)

    def _set_back(self, since: float, until: float) -> timedelta:
        """Return how far clocks were set back between two times."""
        passed = timedelta(seconds=until - since)
        return max(timedelta(), passed - (self._wall(until) - self._wall(since)))
