"""Why a value cannot travel: the error names the part of it that pickle refuses."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import CellType, FunctionType, MethodType
from typing import Any

from ..basics.exceptions import summary_of
from ..errors import NotSerialisable, ZkplanError
from .by_value import ReduceTask, dump_by_value
from .global_names import global_names


def not_serialisable(
    what: str, value: Any, error: Exception, reduce_task: ReduceTask | None = None
) -> NotSerialisable:
    """The error to raise from `error`, with which pickle has refused `value`. `what` names it."""
    if isinstance(error, RecursionError):
        return NotSerialisable(
            f"{what} cannot be serialised: it is nested too deeply, or holds itself in a way that "
            "pickle cannot follow; keep it flat, for example as a list of its parts"
        )
    told = f"{what} cannot be serialised: {summary_of(error)}"
    path = None if isinstance(error, ZkplanError) else _path(value, reduce_task, {id(value)})
    if not path:
        return NotSerialisable(told)
    uses = ", which uses ".join(name for name, _ in path)
    return NotSerialisable(
        f"{told}. It uses {uses}, {kind_of(path[-1][1])}: make that inside the function"
    )


def kind_of(value: Any) -> str:
    """What an error says of a value: its type. Errors go to logs, and values may be secret."""
    name = type(value).__qualname__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _path(
    value: Any, reduce_task: ReduceTask | None, seen: set[int]
) -> list[tuple[str, Any]] | None:
    """The parts, each in the one before it, that lead to what pickle refuses; empty if that is
    `value` itself, None if what it has was seen before: functions may call each other."""
    refused = [part for part in _parts(value) if not _travels(part[1], reduce_task)]
    for name, part in refused:
        if id(part) not in seen:
            seen.add(id(part))
            path = _path(part, reduce_task, seen)
            if path is not None:
                return [(name, part), *path]
    return None if refused else []


def _travels(value: Any, reduce_task: ReduceTask | None) -> bool:
    try:
        dump_by_value(value, b"", reduce_task)
    except Exception:
        return False
    return True


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """What goes along with a function, a class or an object by value. Their names are code, and so
    no secrets."""
    match value:
        case functools.partial():
            yield _name_of(value.func), value.func
            yield from ((f"its argument {at}", each) for at, each in enumerate(value.args))
            yield from ((f"its argument {name!r}", each) for name, each in value.keywords.items())
        case MethodType():
            yield "its object", value.__self__
            yield from _parts(value.__func__)
        case FunctionType():
            names = value.__globals__
            yield from ((name, names[name]) for name in global_names(value) if name in names)
            for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
                if cell != CellType():  # empty until the variable has a value
                    yield name, cell.cell_contents
            defaults = (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values())
            yield from (("the default of an argument", each) for each in defaults)
        case staticmethod() | classmethod():
            yield from _parts(value.__func__)
        case property():
            yield from _parts(value.fget)
        case _:
            attributes = getattr(value, "__dict__", None) or {}
            yield from ((f"its attribute {name}", each) for name, each in attributes.items())
            classes = value.__bases__ if isinstance(value, type) else (type(value),)
            yield from ((each.__qualname__, each) for each in classes)


def _name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", type(function).__qualname__)
