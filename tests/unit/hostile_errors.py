"""Exceptions whose text, attributes or traceback cannot be had: what each can show is known."""

from __future__ import annotations

import builtins
import itertools
from collections.abc import Callable
from typing import Any, cast


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


class Leaving(Exception):
    def __str__(self) -> str:
        raise SystemExit


class NotText(Exception):
    def __str__(self) -> str:
        return 7  # type: ignore[return-value]


class Locked(Exception):
    """No attribute of it can be read."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError("the archive is closed")


class Lookup(Exception):
    """The module `traceback` asks each exception for its notes."""

    def __getattr__(self, name: str) -> Any:
        raise KeyError(name)


class Masked(Exception):
    """Its class, its traceback and its notes are other things."""

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise RuntimeError("the archive is closed")

    __traceback__ = __cause__ = __context__ = 7  # type: ignore[assignment]
    __notes__ = itertools.count()


class Nameless(type):
    def __getattribute__(cls, name: str) -> Any:
        raise RuntimeError("the archive is closed")


def anonymous() -> Exception:
    class Anonymous(Exception, metaclass=Nameless):
        pass

    return Anonymous()


class Loader:
    def get_source(self, name: str) -> str:
        raise RuntimeError("the archive is closed")


def from_a_closed_archive() -> None:
    code = compile("def render():\n    raise ValueError('no page')\nrender()", "page.py", "exec")
    exec(code, {"__name__": 7, "__loader__": Loader()})


def in_a_circle() -> Exception:
    one, other = ValueError("one"), Mute()
    one.__cause__, other.__cause__ = other, one
    return one


def from_a_cause() -> Exception:
    error = ValueError("no data")
    error.__cause__ = parser_error()
    return error


def parser_error() -> Exception:
    return SyntaxError("unexpected token", ("rules.cfg", 3, 7, cast("str", b"when x then y")))


def of_a_group() -> BaseException:
    group = getattr(builtins, "ExceptionGroup", None)
    return ValueError("one") if group is None else group("all", [ValueError("one"), parser_error()])


#: What makes each, its kind, and a part of what is shown of it.
HOSTILE: list[tuple[Callable[[], BaseException], str, str]] = [
    (Mute, "Mute", "RuntimeError"),
    (Leaving, "Leaving", "SystemExit"),
    (NotText, "NotText", "TypeError"),
    (Locked, "Locked", ""),
    (Lookup, "Lookup", ""),
    (Masked, "Masked", ""),
    (anonymous, "Exception", ""),
    (parser_error, "SyntaxError", "unexpected token"),
    (from_a_cause, "ValueError", "no data"),
    (in_a_circle, "ValueError", "one"),
    (of_a_group, "", "one"),
    (lambda: ValueError("\udcff"), "ValueError", "\udcff"),
]
