"""Times on the command line: a number of seconds, or a number with a unit, such as 30m."""

from __future__ import annotations

import re

import click

_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def seconds(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """The callback of an option. Raises BadParameter."""
    if value is None:
        return None
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)([smhdw]?)", value.strip())
    if found is None:
        raise click.BadParameter(f"{value!r} is no time: write 90s, 30m, 12h, 7d or 2w", ctx, param)
    return float(found[1]) * _SECONDS[found[2]]
