"""Pickle a function by value once, as long as nothing that it holds has changed.

What can change unseen, an object of a class or a long list for example, is never taken for
unchanged: a function that holds it is pickled anew each time.
"""

from __future__ import annotations

import builtins
import functools
import sys
import threading
import typing
from collections import OrderedDict
from collections.abc import Callable, Mapping
from types import BuiltinFunctionType, CodeType, FunctionType, GenericAlias, ModuleType, UnionType
from typing import Any

from .pickle_by_value import global_names, is_importable_module

_ATOMS = frozenset(
    (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented))
)
_MISSING = object()
#: What is pickled by its name, where workers can import it.
_BY_NAME = (FunctionType, BuiltinFunctionType, type)
#: What `dill` pickles of a function, beside its code, its globals and its closure.
_ATTRIBUTES = ("__code__", "__defaults__", "__doc__", "__module__", "__name__", "__qualname__")
_MAPPINGS = ("__kwdefaults__", "__annotations__", "__dict__")
#: The most parts that are compared: more cost as much as to pickle.
PARTS_MAX = 200


class _Unknown(Exception):
    """A part may change, and nobody can see it."""


class Parts:
    """All that a function holds, compared by identity with what it held before."""

    def __init__(self, function: Callable[..., Any]) -> None:
        """Raises _Unknown."""
        self._attributes: list[tuple[Any, str, object]] = []
        #: A mapping, a key of it, and the value. `_MISSING`: the key is not in it.
        self._items: list[tuple[Mapping[Any, Any], Any, object]] = []
        #: Lists and mappings, and what was in them.
        self._containers: list[tuple[Any, list[Any]]] = []
        self._cells: list[tuple[Any, object]] = []
        self._by_name: list[Any] = []
        self._seen: set[int] = set()
        self._add(function)

    def are_the_same(self) -> bool:
        """Whether the function would be pickled to the same bytes."""
        try:
            return (
                all(getattr(holder, name) is value for holder, name, value in self._attributes)
                and all(each.get(key, _MISSING) is value for each, key, value in self._items)
                and all(_is_same(list(each), was) for each, was in self._containers)
                and all(cell.cell_contents is value for cell, value in self._cells)
                and all(map(is_importable, self._by_name))
            )
        except ValueError:  # a cell that was emptied
            return False

    def _add(self, value: Any) -> None:
        kind = type(value)
        if kind in _ATOMS or id(value) in self._seen:
            return
        self._seen.add(id(value))
        if len(self._seen) > PARTS_MAX:
            raise _Unknown
        if kind in (tuple, frozenset):
            for each in value:
                self._add(each)
        elif kind is list and len(value) <= PARTS_MAX:
            self._containers.append((value, list(value)))
            for each in value:
                self._add(each)
        elif kind is dict and len(value) <= PARTS_MAX:
            self._add_mapping(value)
        elif kind in (GenericAlias, UnionType):
            self._add(typing.get_origin(value))
            for each in typing.get_args(value):
                self._add(each)
        elif kind is ModuleType and is_importable_module(value):
            self._items.append((sys.modules, value.__name__, value))
        elif isinstance(value, _BY_NAME) and is_importable(value):
            self._by_name.append(value)
        elif kind is FunctionType:
            self._add_function(value)
        elif kind is functools.partial and not value.__dict__:
            for name in ("func", "args", "keywords"):
                self._add_attribute(value, name)
        else:
            raise _Unknown

    def _add_function(self, function: FunctionType) -> None:
        self._attributes += [(function, name, getattr(function, name)) for name in _ATTRIBUTES]
        self._add(function.__defaults__)
        for name in _MAPPINGS:
            self._add_attribute(function, name)
        for name in _names_of(function.__code__):
            value = function.__globals__.get(name, _MISSING)
            self._items.append((function.__globals__, name, value))
            if value is _MISSING:
                value = vars(builtins).get(name, _MISSING)
                self._items.append((vars(builtins), name, value))
            if value is not _MISSING:
                self._add(value)
        for cell in function.__closure__ or ():
            try:
                value = cell.cell_contents
            except ValueError:  # empty, until the variable has a value
                raise _Unknown from None
            self._cells.append((cell, value))
            self._add(value)

    def _add_attribute(self, holder: Any, name: str) -> None:
        value = getattr(holder, name)
        self._attributes.append((holder, name, value))
        self._add(value)

    def _add_mapping(self, mapping: dict[Any, Any]) -> None:
        self._containers.append((mapping, list(mapping)))
        for key, value in list(mapping.items()):
            self._items.append((mapping, key, value))
            self._add(key)
            self._add(value)


def _is_same(now: list[Any], was: list[Any]) -> bool:
    return len(now) == len(was) and all(a is b for a, b in zip(now, was, strict=True))


@functools.lru_cache(maxsize=1000)
def _names_of(code: CodeType) -> list[str]:
    return global_names(code)


def is_importable(value: Any) -> bool:
    """Whether its module and name lead to this very object."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module == "__main__":
        return False
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is value


class PickledFunctions:
    """The functions pickled last, with the bytes. It is thread-safe."""

    def __init__(self, functions_max: int = 100, bytes_max: int = 16 * 1024 * 1024) -> None:
        self._functions_max, self._bytes_max = functions_max, bytes_max
        self._lock = threading.Lock()
        #: By the identity of the function, the one used last at the end.
        self._known: OrderedDict[int, tuple[Any, Parts, bytes]] = OrderedDict()
        self._bytes = 0

    def pickled(
        self, function: Callable[..., Any], pickle: Callable[[Callable[..., Any]], bytes]
    ) -> bytes:
        """What `pickle` returns for the function, or returned before if the function is unchanged.
        Raises what `pickle` raises."""
        with self._lock:
            known = self._known.get(id(function))
            if known is not None:
                self._known.move_to_end(id(function))
        if known is not None and known[1].are_the_same():
            return known[2]
        try:
            parts = Parts(function)
        except _Unknown:
            self._forget(id(function))
            return pickle(function)
        made = pickle(function)
        # Another thread may have changed a part meanwhile: then the bytes may be of either.
        if len(made) <= self._bytes_max and parts.are_the_same():
            self._keep(function, parts, made)
        return made

    def _keep(self, function: Callable[..., Any], parts: Parts, made: bytes) -> None:
        with self._lock:
            self._remove(id(function))
            self._known[id(function)] = function, parts, made
            self._bytes += len(made)
            while len(self._known) > self._functions_max or self._bytes > self._bytes_max:
                self._remove(next(iter(self._known)))

    def _forget(self, identity: int) -> None:
        with self._lock:
            self._remove(identity)

    def _remove(self, identity: int) -> None:
        known = self._known.pop(identity, None)
        if known is not None:
            self._bytes -= len(known[2])
