"""What annotations are made of travels by value where no worker can import it."""

from __future__ import annotations

import sys
import typing
from collections.abc import Mapping
from typing import Any

#: The types of objects that pickle takes by their names: those of later Pythons are missing here.
TYPING_BY_NAME: frozenset[Any] = frozenset(
    getattr(typing, name)
    for name in ("TypeVar", "ParamSpec", "TypeVarTuple", "NewType", "TypeAliasType")
    if hasattr(typing, name)
)
_OPTIONS = ("bound", "covariant", "contravariant")


def reduce_typing(made: Any) -> Any:
    """For `reducer_override`: NotImplemented where its name leads to it in a worker, too."""
    module = sys.modules.get(made.__module__)
    if made.__module__ != "__main__" and getattr(module, made.__name__, None) is made:
        return NotImplemented
    kind, name = type(made), made.__name__
    match kind.__name__:
        case "NewType":
            return _new_type, (name, made.__module__, made.__supertype__)
        case "TypeAliasType":
            return _made, (kind, (name, made.__value__), {"type_params": made.__type_params__})
        case "TypeVarTuple":
            return _made, (kind, (name,), {})
    constraints = getattr(made, "__constraints__", ())
    options = {each: getattr(made, f"__{each}__") for each in _OPTIONS}
    return _made, (kind, (name, *constraints), options)


def _made(kind: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    return kind(*arguments, **options)


def _new_type(name: str, module: str, supertype: Any) -> Any:
    new_type: Any = typing.NewType  # the name is no literal here
    made = new_type(name, supertype)
    made.__module__ = module  # Python takes that of its caller
    return made


def resolved(cls: type, annotations: Mapping[str, Any]) -> dict[str, Any]:
    """The annotations of a class, with what their texts stand for.

    A worker looks such texts up in its own `__main__`, where the names are missing: so
    `typing.get_type_hints` and all that uses it would fail there. Texts that say nothing here stay.
    """
    if not any(isinstance(each, str | typing.ForwardRef) for each in annotations.values()):
        return dict(annotations)
    try:
        hints = typing.get_type_hints(cls, include_extras=True)
    except Exception:  # a name that only a type checker sees, most likely
        return dict(annotations)
    return {name: hints.get(name, each) for name, each in annotations.items()}
