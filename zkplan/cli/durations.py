"""Times on the command line: a number with a unit, such as 30m, or a moment, such as 03:12."""

from __future__ import annotations

import re
import time
from datetime import datetime, timedelta

import click

_OF_DAY = re.compile(r"\d\d:\d\d(:\d\d)?")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def seconds(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """The callback of an option. Raises BadParameter."""
    if value is None:
        return None
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)([smhdw]?)", value.strip())
    if found is None:
        raise click.BadParameter(f"{value!r} is no time: write 90s, 30m, 12h, 7d or 2w", ctx, param)
    return float(found[1]) * _SECONDS[found[2]]


MOMENT = (
    "A time ago (90s, 10m, 12h), the last time that the clock here showed it (03:12), or a date "
    "and time (2026-11-25T03:12, also with a zone)."
)


def moment(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """The callback of an option: a moment in seconds since 1970. Raises BadParameter."""
    if value is None:
        return None
    try:
        if _OF_DAY.fullmatch(value):
            now = datetime.now()
            at = datetime.fromisoformat(f"{now.date()}T{value}")
            return (at if at <= now else at - timedelta(days=1)).timestamp()
        return datetime.fromisoformat(value).timestamp()
    except ValueError:
        ago = seconds(ctx, param, value)
        return None if ago is None else time.time() - ago
