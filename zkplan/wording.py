"""Words: a noun in the number that goes with a count, its article, a date and time."""

from __future__ import annotations

from datetime import datetime


def count(number: int, noun: str) -> str:
    """
    >>> count(1, "file"), count(1200, "file")
    ('1 file', '1,200 files')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def article(noun: str) -> str:
    """
    >>> article("author"), article("worker")
    ('an author', 'a worker')
    """
    return f"{'an' if noun[0] in 'aeio' else 'a'} {noun}"


def date_time(seconds: float, people: bool) -> str:
    """Wall-clock seconds as local date and time; for programs in ISO 8601 with its offset."""
    local = datetime.fromtimestamp(seconds)
    if people:
        return local.isoformat(" ", "seconds")
    return local.astimezone().isoformat(timespec="seconds")
