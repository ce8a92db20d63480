"""Text for people: counted nouns, dates with their age."""

from __future__ import annotations

import time
from datetime import datetime


def count(number: int, noun: str) -> str:
    """
    >>> count(1, "file"), count(1200, "file")
    ('1 file', '1,200 files')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def age(seconds: float) -> str:
    """
    >>> age(3), age(5000), age(400_000), age(-90)
    ('3 s ago', '83 min ago', '4 days ago', 'in 90 s')
    """
    number, unit = abs(seconds), "s"
    for size, larger in ((60, "min"), (60, "h"), (24, "days")):
        if number < 2 * size:
            break
        number, unit = number / size, larger
    return f"in {int(number)} {unit}" if seconds < 0 else f"{int(number)} {unit} ago"


def date_time(seconds: float, people: bool) -> str:
    """Wall-clock seconds as local date and time. People get the age too; programs get ISO 8601 with
    its offset."""
    local = datetime.fromtimestamp(seconds)
    if people:
        return f"{local.isoformat(' ', 'seconds')} ({age(time.time() - seconds)})"
    return local.astimezone().isoformat(timespec="seconds")
