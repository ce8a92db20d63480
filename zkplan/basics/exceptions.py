"""What an exception says, whatever its class does when it is asked: these functions never raise.

Formatting an exception runs code of the user: its `__str__`, its attributes, the loader of its
source lines. If that raised in the thread of a slot, it would end the worker.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import cast

#: At most so many causes, notes, or members of a group are shown of what Python cannot format.
PARTS_MAX = 20


def kind_of(error: BaseException) -> str:
    """The name of its class."""
    return _text(lambda: type(error).__qualname__, "Exception")


def message_of(error: BaseException) -> str:
    """
    >>> message_of(ValueError("no data"))
    'no data'
    """
    try:
        return str.__str__(str(error))  # a subclass of str may do anything, too
    except BaseException as broken:
        return f"(its message cannot be made: {kind_of(broken)})"


def summary_of(error: BaseException) -> str:
    """
    >>> summary_of(ValueError("no data"))
    'ValueError: no data'
    """
    return f"{kind_of(error)}: {message_of(error)}"


def frames_of(error: BaseException) -> TracebackType | None:
    """Its traceback, also where the class has another attribute of that name."""
    frames: TracebackType | None = BaseException.__dict__["__traceback__"].__get__(error)
    return frames


def formatted(error: BaseException, frames: TracebackType | None) -> str:
    """Its traceback as Python writes it, from `frames` on. Where Python cannot write it, as much of
    it as can be shown."""
    try:
        return "".join(traceback.format_exception(type(error), error, frames))
    except BaseException as broken:
        parts = [
            _part(each, frames if each is error else frames_of(each)) for each in _chain(error)
        ]
        parts.append(f"(Python cannot format this traceback: {kind_of(broken)})\n")
        return "\n".join(parts)


def _part(error: BaseException, frames: TracebackType | None) -> str:
    """One exception of a chain."""
    try:
        lines = traceback.format_exception(type(error), error, frames, chain=False)
        return "".join(lines)
    except BaseException:
        # Without source lines: the loader that has them may be what raises.
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
    """The exception, behind those that it came from. None comes twice: a chain may be a circle."""
    found: list[BaseException] = []
    each: BaseException | None = error
    while each is not None and len(found) < PARTS_MAX and not any(each is old for old in found):
        found.append(each)
        has = BaseException.__dict__
        cause = has["__cause__"].__get__(each)
        hidden = has["__suppress_context__"].__get__(each)
        each = cause if cause is not None or hidden else has["__context__"].__get__(each)
    return reversed(found)


def _text(make: Callable[[], object], instead: str) -> str:
    try:
        found = make()
        return str.__str__(found) if isinstance(found, str) else instead
    except BaseException:
        return instead
