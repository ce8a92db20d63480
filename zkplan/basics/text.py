"""Text for people: counted nouns, dates with their age, and foreign text made printable.

Whoever may write the tree chooses the names, errors and tracebacks in it. Unescaped, such a text
could move the cursor, change the colours or the title of the terminal, or pretend to be other
lines.
"""

from __future__ import annotations

import re
import time
from datetime import datetime


def count(number: int, noun: str) -> str:
    """
    >>> count(1, "file"), count(1200, "file")
    ('1 file', '1,200 files')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


_UNITS = ("B", "kB", "MB", "GB", "TB")


def size(number: float) -> str:
    """
    >>> size(2_000_000_000), size(1536), size(7)
    ('2 GB', '1.54 kB', '7 B')
    """
    unit = 0
    while number >= 1000 and unit < len(_UNITS) - 1:
        number, unit = number / 1000, unit + 1
    return f"{number:.3g} {_UNITS[unit]}"


def size_from(text: str | int) -> int:
    """Bytes, from a number of them or a text. Raises ValueError, which says what is wanted.

    >>> size_from("2GB"), size_from("1.5 MiB"), size_from(300)
    (2000000000, 1572864, 300)
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", str(text).strip().lower())
    if isinstance(text, bool) or found is None:
        raise ValueError('a size such as "500MB", "2GB" or "2GiB"')
    number, unit, binary = found.groups()
    return int(float(number) * (1024 if binary else 1000) ** " kmgt".index(unit or " "))


def duration(seconds: float) -> str:
    """
    >>> duration(3), duration(5000), duration(400_000)
    ('3 s', '83 min', '4 days')
    """
    number, unit = seconds, "s"
    for size, larger in ((60, "min"), (60, "h"), (24, "days")):
        if number < 2 * size:
            break
        number, unit = number / size, larger
    return f"{int(number)} {unit}"


def took(ms: int) -> str:
    """How long something took, in milliseconds: two units at most.

    >>> took(42), took(48_100), took(428_900), took(12_000_000), took(200_000_000)
    ('0.04 s', '48.1 s', '7 min 8 s', '3 h 20 min', '2 days 7 h')
    """
    if ms < 120_000:
        return f"{ms / 1000:.2f} s" if ms < 10_000 else f"{ms / 1000:.1f} s"
    minutes, seconds = divmod(ms // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days > 1:
        return f"{days:,} days {hours} h"
    hours += 24 * days
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"


def age(seconds: float) -> str:
    """
    >>> age(3), age(5000), age(400_000), age(-90)
    ('3 s ago', '83 min ago', '4 days ago', 'in 90 s')
    """
    told = duration(abs(seconds))
    return f"in {told}" if seconds < 0 else f"{told} ago"


def date_time(seconds: float, people: bool) -> str:
    """Wall-clock seconds as local date and time. People get the age too; programs get ISO 8601 with
    its offset."""
    local = datetime.fromtimestamp(seconds)
    if people:
        return f"{local.isoformat(' ', 'seconds')} ({age(time.time() - seconds)})"
    return local.astimezone().isoformat(timespec="seconds")


def printable(text: str) -> str:
    """Control characters as Python writes them, but for line ends and tabs.

    >>> printable("a\\x1b[2J\\n"), printable("\\u202e")
    ('a\\\\x1b[2J\\n', '\\\\u202e')
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in "\n\t" else each.encode("unicode_escape").decode()
        for each in text
    )


def without_login(url: str) -> str:
    """A URL, or a host, for people: without a user and a password.

    >>> without_login("s3://key:word@bucket/folder"), without_login("file:///folder")
    ('s3://***@bucket/folder', 'file:///folder')
    >>> without_login("me:word@zk1:2181/chroot")
    '***@zk1:2181/chroot'
    """
    scheme, found, rest = url.rpartition("://")
    place, slash, path = rest.partition("/")
    login, at, host = place.rpartition("@")
    return f"{scheme}{found}{'***@' if login else at}{host}{slash}{path}"


def one_line(text: str) -> str:
    """The same, with line ends and tabs escaped, too.

    >>> one_line("failed\\n12:00:00 INFO all is well")
    'failed\\\\n12:00:00 INFO all is well'
    """
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")
