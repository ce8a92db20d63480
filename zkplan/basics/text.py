"""Write text for people: counts, durations, dates, errors, and foreign text made printable.

Anyone who may write to the tree chooses the names, errors and tracebacks in it. Unescaped, such a
text could move the cursor, change the colours or title of the terminal, or forge other lines.
"""

from __future__ import annotations

import math
import re
import time
import traceback
from collections.abc import Iterator
from datetime import datetime
from types import TracebackType
from typing import cast


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
    """Return a size in bytes. Raises ValueError, whose text says what is expected.

    >>> size_from("2GB"), size_from("1.5 MiB"), size_from(300)
    (2000000000, 1572864, 300)
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", str(text).strip().lower())
    if isinstance(text, bool) or found is None:
        raise ValueError('a size such as "500MB", "2GB" or "2GiB"')
    number, unit, binary = found.groups()
    return int(float(number) * (1024 if binary else 1000) ** " kmgt".index(unit or " "))


def duration(seconds: float, up: bool = False) -> str:
    """Write seconds in one unit, rounded down, as suits the past; with `up`, rounded up.

    >>> duration(3.9), duration(5000), duration(400_000)
    ('3 s', '83 min', '4 days')
    >>> duration(0.2, up=True), duration(5000, up=True), duration(119.5, up=True)
    ('1 s', '84 min', '120 s')
    """
    number, unit = seconds, "s"
    for size, larger in ((60, "min"), (60, "h"), (24, "days")):
        if number < 2 * size:
            break
        number, unit = number / size, larger
    return f"{math.ceil(number) if up else int(number)} {unit}"


def took(ms: int) -> str:
    """Write a duration in milliseconds with at most two units.

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
    text = duration(abs(seconds))
    return f"in {text}" if seconds < 0 else f"{text} ago"


def date_time(seconds: float, people: bool) -> str:
    """Write seconds since 1970 as local date and time: for `people` with the age, for programs as
    ISO 8601 with the offset."""
    local = datetime.fromtimestamp(seconds)
    if people:
        return f"{local.isoformat(' ', 'seconds')} ({age(time.time() - seconds)})"
    return local.astimezone().isoformat(timespec="seconds")


def printable(text: str) -> str:
    """Escape control characters as Python does, except for line ends and tabs.

    >>> printable("a\\x1b[2J\\n"), printable("\\u202e")
    ('a\\\\x1b[2J\\n', '\\\\u202e')
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in "\n\t" else each.encode("unicode_escape").decode()
        for each in text
    )


#: The beginning of a URL; fsspec chains several schemes.
_SCHEMES = re.compile(r"(?:[A-Za-z][\w+.-]*(?:::[A-Za-z][\w+.-]*)*://)?")


def without_login(url: str) -> str:
    """Return a URL, or hosts, without user, password and query.

    A password may have any character, so everything up to the last @ counts as the login.

    >>> without_login("s3://key:word@bucket/folder"), without_login("file:///folder/a@b")
    ('s3://***@bucket/folder', 'file:///folder/a@b')
    >>> without_login("me:word@zk1:2181/chroot"), without_login("s3://bucket/folder?key=word")
    ('***@zk1:2181/chroot', 's3://bucket/folder?***')
    >>> without_login("simplecache::s3://key:w/o://r?d@bucket"), without_login("s3://b?key=w@d")
    ('simplecache::s3://***', 's3://***')
    """
    found = _SCHEMES.match(url)
    scheme = found[0] if found else ""
    place, mark, query = url[len(scheme) :].partition("?")
    if "@" in query:
        return f"{scheme}***"  # the end of the password is unknown
    if not place.startswith("/"):  # a folder of this machine has no login
        login, at, host = place.rpartition("@")
        place = f"***@{host}" if login else at + host
    return f"{scheme}{place}{mark}{'***' if query else ''}"


def one_line(text: str) -> str:
    """Escape control characters, line ends and tabs.

    >>> one_line("failed\\n12:00:00 INFO all is well")
    'failed\\\\n12:00:00 INFO all is well'
    """
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


# ---- Exceptions as text. These functions never raise.
#
# Formatting an exception runs code of the user: its `__str__`, its attributes, the loader of its
# source lines. If that code raised in the thread of a slot, the worker would end.


#: The maximum of causes, notes, and members of a group in a traceback that Python cannot format.
PARTS_MAX = 20


def kind_of(error: BaseException) -> str:
    """Return the name of the class of `error`."""
    try:
        found = type(error).__qualname__
        return str.__str__(found) if isinstance(found, str) else "Exception"
    except BaseException:
        return "Exception"


def message_of(error: BaseException) -> str:
    """
    >>> message_of(ValueError("no data"))
    'no data'
    """
    try:
        return str.__str__(str(error))  # a subclass of str may do anything, too
    except BaseException as broken:
        return f"(making the message failed: {kind_of(broken)})"


def summary_of(error: BaseException) -> str:
    """
    >>> summary_of(ValueError("no data"))
    'ValueError: no data'
    """
    return f"{kind_of(error)}: {message_of(error)}"


def frames_of(error: BaseException) -> TracebackType | None:
    """Return the traceback of `error`, even if its class overrides `__traceback__`."""
    frames: TracebackType | None = BaseException.__dict__["__traceback__"].__get__(error)
    return frames


def formatted(error: BaseException, frames: TracebackType | None) -> str:
    """Format `error` with the traceback `frames` as Python does. If Python fails, do what works."""
    try:
        return "".join(traceback.format_exception(type(error), error, frames))
    except BaseException as broken:
        parts = [
            _part(each, frames if each is error else frames_of(each)) for each in _chain(error)
        ]
        parts.append(f"(Python cannot format this traceback: {kind_of(broken)})\n")
        return "\n".join(parts)


def _part(error: BaseException, frames: TracebackType | None) -> str:
    """Format one exception of a chain."""
    try:
        lines = traceback.format_exception(type(error), error, frames, chain=False)
        return "".join(lines)
    except BaseException:
        # Leave out the source lines, because their loader may be what raises.
        places = [
            f'  File "{frame.f_code.co_filename}", line {line}, in {frame.f_code.co_name}\n'
            for frame, line in traceback.walk_tb(frames)
        ]
        head = ["Traceback (most recent call last):\n"] if places else []
        notes = [f"{note}\n" for note in _items(error, "__notes__") if type(note) is str]
        members = [
            f"  | {summary_of(cast('BaseException', member))}\n"
            for member in _items(error, "exceptions")
            if issubclass(type(member), BaseException)
        ]
        return "".join([*head, *places, f"{summary_of(error)}\n", *notes, *members])


def _items(error: BaseException, name: str) -> list[object]:
    try:
        found = getattr(error, name, ())
    except BaseException:
        return []
    return list(found)[:PARTS_MAX] if type(found) in (list, tuple) else []


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Return the causes of `error`, the first one first, then `error`. A chain may be a circle."""
    found: list[BaseException] = []
    each: BaseException | None = error
    while each is not None and len(found) < PARTS_MAX and not any(each is old for old in found):
        found.append(each)
        has = BaseException.__dict__
        cause = has["__cause__"].__get__(each)
        hidden = has["__suppress_context__"].__get__(each)
        each = cause if cause is not None or hidden else has["__context__"].__get__(each)
    return reversed(found)
