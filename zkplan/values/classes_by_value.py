"""Pickle classes by value that workers cannot import, so that each is one class per process.

dill makes a new class each time it loads one: `isinstance` would fail on results, `except` would
miss the task's own exceptions, and enumerations would not load at all. Here a class has an ID, and
a process that knows the ID uses the class that it has. So results are instances of the author's own
classes, and a worker makes each class once.
"""

from __future__ import annotations

import abc
import dataclasses
import enum
import inspect
import sys
import threading
import types
import typing
import uuid
import weakref
from collections.abc import Hashable, Mapping
from functools import lru_cache
from types import FunctionType
from typing import Any, cast

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

    Raises TypeError for an object that lives in one process alone.
    """
    if id(obj) in _SINGLETONS:
        return getattr, (dataclasses, _SINGLETONS[id(obj)])
    if type(obj) is _RLOCK:
        # Each `cached_property` has one up to Python 3.11, and dill's copy could not be released.
        return threading.RLock, ()
    if type(obj) is _LOCK:
        # dill's copy of a held lock would be held for ever.
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
    # Its own metaclass needs the bases as they were written, and loses which keys are required.
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


# ---- Pickle parts of annotations by value if no worker can import them.


#: The types whose objects pickle finds by name, if this Python has them.
TYPING_BY_NAME: frozenset[Any] = frozenset(
    getattr(typing, name)
    for name in ("TypeVar", "ParamSpec", "TypeVarTuple", "NewType", "TypeAliasType")
    if hasattr(typing, name)
)
_OPTIONS = ("bound", "covariant", "contravariant")


def reduce_typing(made: Any) -> Any:
    """For `reducer_override`: NotImplemented if a worker can find it by name, too."""
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
    made.__module__ = module  # Python sets the module of the caller
    return made


def resolved(cls: type, annotations: Mapping[str, Any]) -> dict[str, Any]:
    """The annotations of a class, with each text replaced by the type that it names.

    A worker would look such names up in its own `__main__`, where they are missing, so
    `typing.get_type_hints` would fail there. Texts that cannot be resolved here stay.
    """
    if not any(isinstance(each, str | typing.ForwardRef) for each in annotations.values()):
        return dict(annotations)
    try:
        hints = typing.get_type_hints(cls, include_extras=True)
    except Exception:  # most likely a name that only a type checker sees
        return dict(annotations)
    return {name: hints.get(name, each) for name, each in annotations.items()}


# ---- Refuse classes that were made with keywords, because Python does not store these.


def require_no_keywords(cls: type) -> None:
    """Raises TypeError if `class X(Base, keyword=…)` needs its keywords: without them no worker
    could make the class."""
    kind: Any = type(cls)
    made: tuple[Any, ...] = (kind, cls.__name__, cls.__bases__, {})
    subclassed: Any = super(cls, cls).__init_subclass__  # type: ignore[arg-type]
    makers: list[tuple[Any, tuple[Any, ...]]]
    makers = [(subclassed, ()), (kind.__new__, made), (kind.__init__, made)]
    for maker, arguments in makers:
        if not isinstance(getattr(maker, "__func__", maker), FunctionType):
            continue  # Python's own, which needs none
        try:
            inspect.signature(maker).bind(*arguments)
        except TypeError as error:
            raise TypeError(
                f"the class {cls.__qualname__} is made with keywords, which cannot travel "
                f"({maker.__qualname__}: {error}): move it into a module that workers import"
            ) from None


# ---- Refuse objects that live in one process: a copy elsewhere is not connected to the original.
#
# dill could pickle a future, an event or a queue, with a new lock for each lock in it. But a task
# that waits for such a copy would wait for ever. So zkplan refuses these objects, as pickle does.


_FUTURE = "pass its result, or the zkplan task that makes it"
_RUNS = "pass what it works on"
_SHARED = "tasks share no memory: pass a value, depend on a task, or wait for a znode (zkplan.when)"
#: By name, so that no module is imported for it.
_LIVE = {
    "concurrent.futures._base:Future": _FUTURE,
    "_asyncio:Future": _FUTURE,
    "asyncio.futures:Future": _FUTURE,
    "threading:Thread": _RUNS,
    "subprocess:Popen": _RUNS,
    "queue:Queue": _SHARED,
    "_queue:SimpleQueue": _SHARED,
    "asyncio.queues:Queue": _SHARED,
    **{
        f"{module}:{name}": _SHARED
        for module in ("threading", "asyncio.locks")
        for name in ("Event", "Condition", "Semaphore", "Barrier")
    },
}


def refuse_live(obj: Any) -> None:
    """Raises TypeError for an object that lives in one process, and says what to pass instead."""
    instead = _instead_of(cast("Hashable", type(obj)))
    if instead:
        kind = type(obj)
        raise TypeError(
            f"a copy of a {kind.__module__}.{kind.__qualname__} would never change, as it lives in "
            f"one process: {instead}. A class that holds one can leave it out in __getstate__"
        )


@lru_cache(maxsize=1024)  # called for each object
def _instead_of(kind: Any) -> str:
    """What to pass instead; empty if objects of that class may be pickled."""
    for each in kind.__mro__:
        if each is not object and not {"__reduce__", "__reduce_ex__", "__getstate__"}.isdisjoint(
            vars(each)
        ):
            return ""  # the class itself defines what is pickled
        instead = _LIVE.get(f"{each.__module__}:{each.__qualname__}")
        if instead:
            return instead
    return ""
