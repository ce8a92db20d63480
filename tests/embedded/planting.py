"""How a bug is planted: a named replacement of one attribute, here and in other processes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

_Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class Bug(NamedTuple):
    """`owner.attribute` is replaced by `value`; the test `finder`, called with `given`, fails."""

    owner: Any
    attribute: str
    value: Any
    finder: str
    given: dict[str, Any]


BUGS: dict[str, Bug] = {}
_planted: list[str] = [""]


def value(name: str, owner: Any, attribute: str, new: Any, finder: str, **given: Any) -> None:
    """A bug that is another value."""
    assert hasattr(owner, attribute), f"there is no {attribute} any more"
    BUGS[name] = Bug(owner, attribute, new, finder, given)


def instead(owner: Any, attribute: str, finder: str = "", **given: Any) -> _Decorator:
    """A bug that is another function; its name is the sentence that the function's name makes."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        name = function.__name__.replace("_", " ")
        value(name, owner, attribute, function, finder, **given)
        return function

    return register


def around(owner: Any, attribute: str, finder: str = "", **given: Any) -> _Decorator:
    """The same for a function that gets the real one first."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        return instead(owner, attribute, finder, **given)(_wrapped(owner, attribute, function))

    return register


def wrap(patch: pytest.MonkeyPatch, owner: Any, name: str, other: Callable[..., Any]) -> None:
    """Replace a method by `other`, which gets the real one first."""
    patch.setattr(owner, name, _wrapped(owner, name, other))


def _wrapped(owner: Any, name: str, other: Callable[..., Any]) -> Callable[..., Any]:
    real = getattr(owner, name)

    @functools.wraps(other)
    def call(*args: Any, **named: Any) -> Any:
        return other(real, *args, **named)

    return call


def now_planted() -> str:
    """The bug of the moment, so that a server in another process has it as well."""
    return _planted[-1]


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Servers have this bug meanwhile; '' is none."""
    with pytest.MonkeyPatch.context() as patch:
        if name:
            bug = BUGS[name]
            patch.setattr(bug.owner, bug.attribute, bug.value)
        _planted.append(name)
        try:
            yield
        finally:
            _planted.pop()
