"""Pickle objects that workers cannot import by value with dill, and explain refusals."""

from __future__ import annotations

import dis
import functools
import importlib
import io
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import dill

from ..basics.text import summary_of
from ..errors import NotSerialisable, ZkplanError
from .classes_by_value import reduce_by_value
from .json_values import kind_of


def global_names(function: Any, recurse: bool = True) -> list[str]:
    """Names that the code of `function`, and of definitions in it, looks up as globals.

    Empty for anything but a function, method or code object. Returns the same as
    `dill.detect.nestedglobals`, but is thread-safe, and adds `__package__` if the code imports
    something, because a relative import needs it.

    >>> global_names(lambda: [print(len(x)) for x in y])
    ['len', 'print', 'y']
    """
    code = _code_of(function)
    if code is None:
        return []
    names = set()
    for instruction in dis.get_instructions(code):
        if "_GLOBAL" in instruction.opname:
            names.add(instruction.argval)
        elif instruction.opname == "IMPORT_NAME":
            names.add("__package__")
    if recurse:
        for constant in code.co_consts:
            names.update(global_names(constant))
    return sorted(names)


def _code_of(function: Any) -> CodeType | None:
    if isinstance(function, MethodType):
        function = function.__func__
    if isinstance(function, FunctionType):
        function = function.__code__
    return function if isinstance(function, CodeType) else None


# ---- Pickle by value with dill: lambdas, closures, and what is defined in `__main__`.


#: Returns what pickle puts in place of a task; None for other objects.
ReduceTask = Callable[[Any], Any]
# dill's own function reads the output of `dis`, and replaces `sys.stdout` for all threads
# meanwhile. When two threads pickled functions at once, one function lost its globals, and the
# output of other threads was lost.
dill.detect.nestedglobals = global_names

_FILES = frozenset(
    (io.TextIOWrapper, io.BufferedReader, io.BufferedWriter, io.BufferedRandom, io.FileIO)
)
#: The names of files that each process has for itself.
_STREAMS = ("<stdin>", "<stdout>", "<stderr>")

_dill_lock = threading.Lock()


def is_importable_module(obj: Any) -> bool:
    """Whether `obj` is a module that an import finds."""
    if type(obj) is not ModuleType or obj.__name__ == "__main__":
        return False
    return sys.modules.get(obj.__name__) is obj


class _DillPickler(dill.Pickler):  # type: ignore[misc]
    """dill's pickler, which also replaces tasks."""

    def __init__(self, file: io.BytesIO, reduce_task: ReduceTask | None) -> None:
        # recurse: pickle only the globals that a function uses, not the author's whole `__main__`.
        super().__init__(file, 5, recurse=True)
        self.reduce_task = reduce_task

    def save_global(self, obj: Any, name: str | None = None) -> None:
        """Raises PicklingError for a name of `__main__`: each process has its own."""
        if getattr(obj, "__module__", None) == "__main__":
            name = name or getattr(obj, "__qualname__", type(obj).__qualname__)
            raise pickle.PicklingError(
                f"{name} of __main__ is pickled by name, which workers do not find in their own "
                "__main__: move it into a module that they import"
            )
        super().save_global(obj, name)

    def reducer_override(self, obj: Any) -> Any:
        if is_importable_module(obj):
            # dill would pickle all variables of a module that does not come with Python.
            return importlib.import_module, (obj.__name__,)
        if type(obj) is pickle.PickleBuffer:
            return _reduce_buffer(obj)
        if type(obj) in _FILES and not obj.closed and getattr(obj, "name", "") not in _STREAMS:
            # dill would open it again in the worker, where mode `w` would empty it.
            raise TypeError(f"{obj!r} is open here only: pass its path and open it in the function")
        task = self.reduce_task(obj) if self.reduce_task is not None else None
        return reduce_by_value(obj) if task is None else task


def _reduce_buffer(buffer: pickle.PickleBuffer) -> Any:
    """Pickle the bytes: else Python's pickler reuses an empty bytearray buffer for each b""."""
    with buffer.raw() as view:
        return bytes if view.readonly else bytearray, (bytes(view),)


def dump_by_value(value: Any, prefix: bytes, reduce_task: ReduceTask | None = None) -> bytes:
    """The pickle of `value`, after `prefix`. Raises what dill raises."""

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
    """Prevent endless recursion of dill for two functions by value that call each other.

    Within the block, dill stops at a function that is in progress. All other results stay the same,
    so other threads that use dill meanwhile are not disturbed.
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


# ---- Pickle an array that repeats data without copying it as the data that it repeats.


def reduce_repeating(obj: Any) -> Any:
    """For `reducer_override` of a pickler. NotImplemented: leave `obj` to the pickler.

    `numpy.broadcast_to` shows one row a thousand times. NumPy would write it a thousand times, and
    the reader would hold all of them. Writable views stay as they are, because a reader may write
    into single rows.
    """
    numpy = sys.modules.get("numpy")  # without it there are no arrays
    if numpy is None or type(obj) is not numpy.ndarray or obj.flags.writeable:
        return NotImplemented
    is_repeated = [
        stride == 0 and length > 1 for stride, length in zip(obj.strides, obj.shape, strict=True)
    ]
    if not any(is_repeated):
        return NotImplemented
    once = obj[tuple(slice(1) if each else slice(None) for each in is_repeated)]
    return numpy.broadcast_to, (once, obj.shape)


# ---- Why a value cannot be pickled: the error names the part that pickle refuses.


def not_serialisable(
    what: str, value: Any, error: Exception, reduce_task: ReduceTask | None = None
) -> NotSerialisable:
    """The error to raise from the `error` of pickle for `value`. `what` names the value."""
    if isinstance(error, RecursionError):
        return NotSerialisable(
            f"{what} cannot be serialised: it is nested too deeply, or holds itself in a way that "
            "pickle cannot follow; keep it flat, for example as a list of its parts"
        )
    refusal = f"{what} cannot be serialised: {summary_of(error)}"
    path = None if isinstance(error, ZkplanError) else _path(value, reduce_task, {id(value)})
    if not path:
        return NotSerialisable(refusal)
    uses = ", which uses ".join(name for name, _ in path)
    return NotSerialisable(
        f"{refusal}. It uses {uses}, {kind_of(path[-1][1])}: make that inside the function"
    )


def _path(
    value: Any, reduce_task: ReduceTask | None, seen: set[int]
) -> list[tuple[str, Any]] | None:
    """The parts, each in the one before it, that lead to what pickle refuses. Empty if that is
    `value` itself, None if its parts were seen before, as functions may call each other."""
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
    """The parts that are pickled with a function, a class or an object by value. Their names come
    from code, so they are not secret."""
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
