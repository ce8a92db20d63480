"""Pickle by value with dill: lambdas, closures, and what is defined in `__main__`."""

from __future__ import annotations

import importlib
import io
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import dill

from .classes import reduce_by_value
from .global_names import global_names

#: What pickle is to put in place of an object, or None where that is no task.
ReduceTask = Callable[[Any], Any]
# dill's own function reads what `dis` prints, and replaces `sys.stdout` for all threads meanwhile.
# Of two threads that pickled functions at once, one function lost its globals, and what others
# printed was swallowed.
dill.detect.nestedglobals = global_names

_FILES = frozenset(
    (io.TextIOWrapper, io.BufferedReader, io.BufferedWriter, io.BufferedRandom, io.FileIO)
)
#: Each process has its own of these: they need not travel.
_STREAMS = ("<stdin>", "<stdout>", "<stderr>")

_dill_lock = threading.Lock()


def is_importable_module(obj: Any) -> bool:
    """Whether it is a module that an import finds."""
    if type(obj) is not ModuleType or obj.__name__ == "__main__":
        return False
    return sys.modules.get(obj.__name__) is obj


class _DillPickler(dill.Pickler):  # type: ignore[misc]
    """dill, with something else in place of tasks."""

    def __init__(self, file: io.BytesIO, reduce_task: ReduceTask | None) -> None:
        # recurse: carry only the globals that a function uses, not the author's whole `__main__`.
        super().__init__(file, 5, recurse=True)
        self.reduce_task = reduce_task

    def save_global(self, obj: Any, name: str | None = None) -> None:
        """Raises PicklingError for a name of `__main__`: each process has its own."""
        if getattr(obj, "__module__", None) == "__main__":
            told = name or getattr(obj, "__qualname__", type(obj).__qualname__)
            raise pickle.PicklingError(
                f"{told} of __main__ goes by its name, which workers do not find in their own "
                "__main__: move it into a module that they import"
            )
        super().save_global(obj, name)

    def reducer_override(self, obj: Any) -> Any:
        if is_importable_module(obj):
            # dill would carry all variables of a module that does not come with Python.
            return importlib.import_module, (obj.__name__,)
        if type(obj) is pickle.PickleBuffer:
            return _reduce_buffer(obj)
        if type(obj) in _FILES and not obj.closed and getattr(obj, "name", "") not in _STREAMS:
            # dill would open it again in the worker, and mode `w` would empty it.
            raise TypeError(f"{obj!r} is open here only: pass its path, open it in the function")
        task = self.reduce_task(obj) if self.reduce_task is not None else None
        return reduce_by_value(obj) if task is None else task


def _reduce_buffer(buffer: pickle.PickleBuffer) -> Any:
    """As bytes: after an empty bytearray as a buffer, Python's pickler takes each b"" for it."""
    with buffer.raw() as view:
        return bytes if view.readonly else bytearray, (bytes(view),)


def dump_by_value(value: Any, prefix: bytes, reduce_task: ReduceTask | None = None) -> bytes:
    """The pickle of `value`, after `prefix`. Raises whatever dill raises."""

    def dumped() -> bytes:
        file = io.BytesIO(prefix)
        file.seek(len(prefix))
        _DillPickler(file, reduce_task).dump(value)
        return file.getvalue()

    try:
        return dumped()
    except RecursionError:
        with _functions_that_call_each_other():
            return dumped()


@contextmanager
def _functions_that_call_each_other() -> Iterator[None]:
    """Keep dill from following for ever two functions by value that call each other.

    Within the block it stops at a function that it is looking at already. All other results are the
    same: other threads that use dill meanwhile are not disturbed.
    """
    busy = threading.local()

    def globals_used(function: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        seen: set[int] = busy.__dict__.setdefault("seen", set())
        if id(function) in seen:
            return {}
        seen.add(id(function))
        try:
            return original(function, *args, **kwargs)  # type: ignore[no-any-return]
        finally:
            seen.discard(id(function))

    with _dill_lock:
        original = dill.detect.globalvars
        dill.detect.globalvars = globals_used
        try:
            yield
        finally:
            dill.detect.globalvars = original
