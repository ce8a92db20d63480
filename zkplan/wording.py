"""Words for people: a noun in the number that goes with a count, and its article."""

from __future__ import annotations


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
