"""Kinds: `@zkplan.kind("resize")` names a function, so that a task needs nothing but that name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from ..errors import InvalidTask
from ..protocol.layout import parse_queue
from ..serialization.kinds import register

F = TypeVar("F", bound=Callable[..., Any])
#: What an error says of the names of kinds.
KIND_NAMES = "the name of a kind has 1 to 40 of the characters a-z 0-9 . _ -"
_ANY = inspect.Parameter


class Kind:
    """A name that stands for a function: of this program, of a worker, or of another language.

    As a decorator it says that tasks of the kind run that function in workers of this process.
    `Plan.add_task(kind, args)` adds a task of the kind, whoever runs it.
    """

    __signature__ = inspect.Signature(
        [
            _ANY("args", _ANY.VAR_POSITIONAL),
            _ANY("kwargs", _ANY.VAR_KEYWORD),
        ]
    )

    def __init__(self, name: str) -> None:
        if type(name) is not str or parse_queue(name) is None:
            raise InvalidTask("", f"{KIND_NAMES}, unlike {name!r:.60}")
        self.zkplan_kind = self.__name__ = self.__qualname__ = name

    def __call__(self, fn: F) -> F:
        if not callable(fn):
            raise InvalidTask("", f"@zkplan.kind is for a function, not for {fn!r:.60}")
        fn.zkplan_kind = self.zkplan_kind  # type: ignore[attr-defined]
        register(self.zkplan_kind, fn)
        return fn

    def __repr__(self) -> str:
        return f"zkplan.kind({self.zkplan_kind!r})"


def kind(name: str) -> Kind:
    """The kind of that name, for tasks of plans with serializer json.

    >>> @kind("resize")
    ... def resize(path, width):
    ...     return f"{path}-{width}.png"
    >>> resize("cat", 64)
    'cat-64.png'

    Workers of a process run the kinds that are registered there when they are made. A task of the
    kind is added with `plan.add_task(resize, [path, 64])`. Where the function is not known, such as
    one in another language, `zkplan.kind("resize")` stands for it. Raises InvalidTask for a name
    that does not fit.
    """
    return Kind(name)


def task_kind(fn: object) -> str:
    """The kind of a function that was registered, or of a `Kind`; empty for others."""
    found = getattr(fn, "zkplan_kind", "")
    return found if type(found) is str else ""
