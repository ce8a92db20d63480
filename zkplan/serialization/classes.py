"""Classes that no worker can import travel by value, and stay one class in each process.

dill makes a new class each time it loads one: `isinstance` would fail on results, `except` would
miss the task's own exceptions, and enumerations would not load at all. Here a class travels with an
ID, and a process that knows the ID uses the class that it has. So an author gets results back as
instances of its own classes, and a worker makes each class once.
"""

from __future__ import annotations

import abc
import dataclasses
import enum
import threading
import types
import typing
import uuid
import weakref
from collections.abc import Mapping
from typing import Any

from .annotations import TYPING_BY_NAME, reduce_typing, resolved
from .class_keywords import require_no_keywords
from .live import refuse_live

_lock = threading.Lock()
_ids: weakref.WeakKeyDictionary[type, str] = weakref.WeakKeyDictionary()
_classes: weakref.WeakValueDictionary[str, type] = weakref.WeakValueDictionary()
#: Classes of this process that have all their attributes.
_complete: weakref.WeakSet[type] = weakref.WeakSet()

#: Objects of the standard library that are compared by identity.
_SINGLETONS = {
    id(vars(dataclasses)[name]): name
    for name in ("MISSING", "KW_ONLY", "_FIELD", "_FIELD_CLASSVAR", "_FIELD_INITVAR")
    if name in vars(dataclasses)
}
_LOCK, _RLOCK = type(threading.Lock()), type(threading.RLock())
#: Attributes that Python makes with each class.
_MADE = ("__dict__", "__weakref__", "__module__", "__slots__", "_abc_impl")
_MADE_FOR_ENUMS = (
    *("_generate_next_value_", "_member_names_", "_member_map_", "_member_type_"),
    *("_value2member_map_", "_unhashable_values_", "_hashable_values_", "_use_args_", "__new__"),
    *("_new_member_", "_value_repr_", "_boundary_", "_flag_mask_", "_singles_mask_", "_all_bits_"),
    *("_inverted_", "_unhashable_values_map_"),
)


def reduce_by_value(obj: Any) -> Any:
    """For `reducer_override` of a pickler. NotImplemented: leave `obj` to the pickler.

    Raises TypeError for what lives in one process alone.
    """
    if id(obj) in _SINGLETONS:
        return getattr, (dataclasses, _SINGLETONS[id(obj)])
    if type(obj) is _RLOCK:
        # Each `cached_property` has one up to Python 3.11; nobody could ever release dill's copy.
        return threading.RLock, ()
    if type(obj) is _LOCK:
        # dill's copy of a lock that is held now would be held for ever.
        return threading.Lock, ()
    if type(obj) in TYPING_BY_NAME:
        return reduce_typing(obj)
    if not isinstance(obj, type):
        refuse_live(obj)
        return NotImplemented
    if obj.__module__ != "__main__" and "<locals>" not in obj.__qualname__:
        return NotImplemented
    if isinstance(obj, enum.EnumMeta):
        return _reduce_enumeration(obj)
    if type(obj).__name__ == "_TypedDictMeta":  # of typing, or of typing_extensions
        return _reduce_typed_dict(obj)
    return _reduce_class(obj)


def _reduce_class(cls: type) -> Any:
    require_no_keywords(cls)
    # A class cannot be made from the bare Generic: take `Generic[T]` as it was written.
    generic = typing.Generic in cls.__bases__
    bases = vars(cls)["__orig_bases__"] if generic else cls.__bases__
    slots = vars(cls).get("__slots__", ())
    slots = (slots,) if isinstance(slots, str) else tuple(slots)
    given = {name: vars(cls)[name] for name in ("__module__", "__slots__") if name in vars(cls)}
    given["__qualname__"] = cls.__qualname__
    made = (_identity_of(cls), type(cls), cls.__name__, bases, given)
    return _class, made, _attributes(cls, {*_MADE, *slots}), None, None, _complete_class


def _reduce_typed_dict(cls: type) -> Any:
    made = (_identity_of(cls), type(cls), cls.__name__, cls.__bases__)
    state = _attributes(cls, {*_MADE}) | {"__module__": cls.__module__}
    return _typed_dict, made, state, None, None, _complete_class


def _reduce_enumeration(cls: enum.EnumMeta) -> Any:
    named: Mapping[str, Any] = cls.__members__
    members = {name: member.value for name, member in named.items()}
    names = (cls.__name__, cls.__qualname__, cls.__module__)
    made = (_identity_of(cls), *names, cls.__bases__, members)
    skipped = {*_MADE, *_MADE_FOR_ENUMS, *members}
    return _enumeration, made, _attributes(cls, skipped), None, None, _complete_class


def _identity_of(cls: type) -> str:
    with _lock:
        identity = _ids.get(cls)
        if identity is None:
            identity = _ids[cls] = uuid.uuid4().hex
            _classes[identity] = cls
            _complete.add(cls)
        return identity


def _attributes(cls: type, skipped: set[str]) -> dict[str, Any]:
    state = {name: value for name, value in vars(cls).items() if name not in skipped}
    if isinstance(cls, abc.ABCMeta):
        state.pop("__abstractmethods__", None)
        state["__abstractmethods__"] = frozenset(getattr(cls, "__abstractmethods__", ()))
    if "__annotations__" in state:
        state["__annotations__"] = resolved(cls, state["__annotations__"])
    return state


def _known(identity: str, made: type) -> type:
    """The class of that ID: the first that any thread of this process made."""
    with _lock:
        known = _classes.setdefault(identity, made)
        _ids[known] = identity
        return known


def _class(
    identity: str, kind: type, name: str, bases: tuple[Any, ...], given: dict[str, Any]
) -> type:
    known = _classes.get(identity)
    if known is not None:
        return known
    made = types.new_class(name, bases, {"metaclass": kind}, lambda space: space.update(given))
    return _known(identity, made)


def _typed_dict(identity: str, kind: type, name: str, bases: tuple[Any, ...]) -> type:
    known = _classes.get(identity)
    # Its own metaclass wants the bases as they were written, and loses which keys are required.
    return known or _known(identity, type.__new__(kind, name, bases, {}))


def _enumeration(
    identity: str,
    name: str,
    qualname: str,
    module: str,
    bases: tuple[Any, ...],
    members: dict[str, Any],
) -> type:
    known = _classes.get(identity)
    if known is not None:
        return known
    kind = type(bases[-1])
    space: Any = kind.__prepare__(name, bases)
    space["__module__"], space["__qualname__"] = module, qualname
    for member, value in members.items():
        space[member] = value
    return _known(identity, kind(name, bases, space))


def _complete_class(cls: type, state: dict[str, Any]) -> None:
    # Two threads may complete the same class: both set the same attributes.
    if cls in _complete:
        return
    for name, value in state.items():
        setattr(cls, name, value)
    _complete.add(cls)
