"""Values to bytes and back. The only importer of dill.

What a worker can import goes through Python's C pickler, the fastest and most faithful. dill
carries the rest: lambdas, closures and what is defined in `__main__`. Each payload carries a digest
that finds damage. It proves nothing of who wrote it: keys do (`zkplan.protection`).
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import io
import pickle
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import dill

from ..errors import NotSerialisable, PayloadUndecodable, ZkplanError
from ..protocol.options import TaskOptions
from ..protocol.records import TaskRecord
from ..protocol.unproven import SEALED, SEALED_MAGIC, require_proven
from .by_value import ReduceTask, dump_by_value, is_importable_module
from .classes import reduce_by_value

MAGIC = b"z1"
TASK, VALUE, FAILURE, LOG = b"T", b"V", b"E", b"L"
_DIGEST = 16
_HEAD = len(MAGIC) + 1 + _DIGEST
#: A worker keeps so many functions decoded, and so many of the bytes that define them: functions by
#: value may carry large constants.
FUNCTIONS_CACHED = 512
#: Sealed results without a value that are kept ready, for as many names of tasks.
NOTHINGS_CACHED = 512
#: The longest name of a task.
NAME_CHARS_MAX = 200
FUNCTION_BYTES_CACHED = 16 * 1024 * 1024
_HERE = bytes(sys.version_info[:2])

_loading = threading.local()


def argument_at(position: int) -> Any:
    """The value of the task that was given as an argument here. A pickle names it by reference."""
    return _loading.values[position]


class _NeedsDill(Exception):
    """Raised inside the C pickler by an object that only dill carries faithfully."""


class _CPickler(pickle.Pickler):
    """Pickles fast what can be imported, and tasks as positions; refuses the rest."""

    def __init__(
        self,
        file: io.BytesIO,
        position_of: Callable[[Any], int | None] | None,
        buffers: list[pickle.PickleBuffer] | None,
    ) -> None:
        super().__init__(file, 5, buffer_callback=None if buffers is None else buffers.append)
        self.position_of = position_of
        #: Only builtin data and tasks so far.
        self.is_plain = True

    def reducer_override(self, obj: Any) -> Any:
        # Python calls this only for what is not exactly of a builtin type: plain data stays fast.
        if obj is argument_at:
            return NotImplemented
        position = self.position_of(obj) if self.position_of is not None else None
        if position is not None:
            return argument_at, (position,)
        self.is_plain = False
        # By reference, the worker would look for it in its own `__main__`.
        if getattr(obj, "__module__", None) == "__main__":
            raise _NeedsDill
        if isinstance(obj, type):
            if "<locals>" in obj.__qualname__:
                raise _NeedsDill
            return NotImplemented
        if is_importable_module(obj):
            return importlib.import_module, (obj.__name__,)
        return reduce_by_value(obj)


def dump(
    value: Any,
    position_of: Callable[[Any], int | None] | None = None,
    buffers: list[pickle.PickleBuffer] | None = None,
) -> bytes:
    """The pickle of `value`. Raises whatever dill raises.

    A list `buffers` gets the large buffers of arrays and frames. They are left out of the pickle
    then, so that they need not be copied.
    """
    file = io.BytesIO()
    pickler = _CPickler(file, position_of, buffers)
    try:
        pickler.dump(value)
    except ZkplanError:
        raise
    except Exception:  # dill may be able to carry it, else its error is the one to tell
        if buffers is not None:
            buffers.clear()  # dill puts all into the pickle
        return dump_by_value(value, b"D" + _HERE, _task_reducer(position_of))
    return (b"P" if pickler.is_plain else b"C" + _HERE) + file.getvalue()


def _task_reducer(position_of: Callable[[Any], int | None] | None) -> ReduceTask | None:
    if position_of is None:
        return None

    def reduce_task(obj: Any) -> Any:
        position = position_of(obj)
        return None if position is None else (argument_at, (position,))

    return reduce_task


def named(body: bytes, name: str) -> bytes:
    """A function by value with its name before it, or a kept value with that of its task."""
    told = name.encode(errors="replace")
    return b"N" + len(told).to_bytes(2, "big") + told + body


def split_name(body: bytes) -> tuple[str, bytes]:
    """(name, body) of what `named` made; the name is empty where none was given."""
    if body[:1] != b"N":
        return "", body
    start = 3 + int.from_bytes(body[1:3], "big")
    return body[3:start].decode(errors="replace"), body[start:]


def load(blob: bytes | memoryview, values: Sequence[Any] = (), buffers: Sequence[Any] = ()) -> Any:
    """The value that `dump` was given, with `values` in place of its tasks, and its `buffers`.

    Raises PayloadUndecodable where this process lacks something that another may have (a module,
    the author's Python version), otherwise whatever the user's own classes raise.
    """
    encoding = blob[:1]
    if encoding == b"N":
        blob = split_name(bytes(blob))[1]
        encoding = blob[:1]
    _loading.values = values
    try:
        if encoding == b"P":
            return pickle.loads(memoryview(blob)[1:], buffers=buffers)
        if encoding == b"D":
            return dill.loads(blob[3:])
        if encoding == b"C":
            return pickle.loads(memoryview(blob)[3:], buffers=buffers)
    except (ImportError, AttributeError, pickle.UnpicklingError, EOFError) as error:
        raise PayloadUndecodable(f"{type(error).__name__}: {error}") from error
    except Exception as error:
        if encoding == b"P":
            # Builtin data runs no code of a user: the payload is damaged.
            raise PayloadUndecodable(f"{type(error).__name__}: {error}") from error
        if blob[1:3] != _HERE:
            raise PayloadUndecodable(
                f"written by Python {blob[1]}.{blob[2]}, here is "
                f"{_HERE[0]}.{_HERE[1]}: {type(error).__name__}: {error}"
            ) from error
        raise
    finally:
        _loading.values = ()
    raise PayloadUndecodable("the payload has an unknown encoding: written by a newer zkplan?")


def function_name(function: Any) -> str:
    """What a task is called that has no name of its own.

    >>> function_name(str.upper), function_name(functools.partial(print, 1))
    ('str.upper', 'print')
    """
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__qualname__", None)
    if not isinstance(name, str):
        name = type(function).__qualname__
    if not name.isprintable():
        name = "".join(each if each.isprintable() else "?" for each in name)
    return name[:NAME_CHARS_MAX]


def importable(function: Any) -> bool:
    """Whether its module and name lead to this very object."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module == "__main__":
        return False
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is function


def dump_function(function: Callable[..., Any]) -> bytes:
    """By reference where it can be imported, otherwise by value (lambdas, `__main__`)."""
    if importable(function):
        return f"R{function.__module__}:{function.__qualname__}".encode()
    return named(dump_by_value(function, b"F" + _HERE), function_name(function))


def load_function(blob: bytes) -> Callable[..., Any]:
    """The function that `dump_function` was given. Raises PayloadUndecodable."""
    blob = split_name(blob)[1]
    if blob[:1] == b"R":
        module, _, name = blob[1:].decode(errors="replace").partition(":")
        try:
            found: Any = importlib.import_module(module)
            for part in name.split("."):
                found = getattr(found, part)
        except Exception as error:
            raise PayloadUndecodable(
                f"the function {module}.{name} cannot be imported: {type(error).__name__}: {error}"
            ) from error
    elif blob[:1] == b"F" and blob[1:3] == _HERE:
        try:
            found = dill.loads(blob[3:])
        except Exception as error:
            raise PayloadUndecodable(
                f"the function cannot be decoded here: {type(error).__name__}: {error}"
            ) from error
    elif blob[:1] == b"F" and len(blob) >= 3:
        raise PayloadUndecodable(
            f"the function was written by value under Python {blob[1]}.{blob[2]}; here is "
            f"{_HERE[0]}.{_HERE[1]}"
        )
    else:
        raise PayloadUndecodable("the function has an unknown encoding: written by a newer zkplan?")
    if not callable(found):
        raise PayloadUndecodable(f"{found!r} cannot be called here")
    return found  # type: ignore[no-any-return]


def name_of_function(blob: bytes) -> str:
    """The name that a dumped function has, without decoding it; empty where it tells none."""
    if blob[:1] == b"R":
        return blob.partition(b":")[2].decode(errors="replace")
    return split_name(blob)[0]


def task_options(record: TaskRecord) -> TaskOptions:
    """The options of a task, which is called by its function unless it was given a name."""
    function = record.function
    # Of a function by value only the name: it may be large, and is kept with what is remembered.
    by_value = function[:1] != b"R"
    return _options(record.options, named(b"", split_name(function)[0]) if by_value else function)


@functools.lru_cache(maxsize=1024)
def _options(options: bytes, function: bytes) -> TaskOptions:
    found = TaskOptions.from_json(options)
    return found if found.name else replace(found, name=name_of_function(function))


def describe_function(blob: bytes) -> str:
    """A name for people, without decoding anything."""
    if blob[:1] == b"R":
        return blob[1:].decode(errors="replace").replace(":", ".")
    return f"{name_of_function(blob)} (by value)".strip()


def unsealed(sealed: bytes) -> tuple[bytes, bytes]:
    """(kind, body) of a payload, damaged or not: nothing of it may be decoded. Raises
    PayloadUndecodable."""
    if sealed[:2] != MAGIC or len(sealed) < _HEAD:
        require_proven(sealed)
        raise PayloadUndecodable("not a payload of zkplan, or of a newer format")
    return sealed[2:3], sealed[_HEAD:]


class Codec:
    """Puts payloads into envelopes, and opens them; caches decoded functions."""

    def __init__(self) -> None:
        self._functions: dict[bytes, Callable[..., Any]] = {}
        self._cached = 0
        #: Sealed None by the name of its task: most functions of one plan return nothing.
        self._nothings: dict[str, bytes] = {}
        self.none = self._nothing("")

    def _digest(self, kind: bytes, body: bytes) -> bytes:
        return hashlib.blake2b(body, digest_size=_DIGEST, person=kind).digest()

    def seal(self, kind: bytes, body: bytes) -> bytes:
        return MAGIC + kind + self._digest(kind, body) + body

    def open(self, kinds: bytes, sealed: bytes) -> tuple[bytes, bytes]:
        """(kind, body) of a payload of one of `kinds`; raises PayloadUndecodable."""
        kind = sealed[2:3]
        if sealed[:2] != MAGIC or len(sealed) < _HEAD or kind not in kinds:
            require_proven(sealed)
            if sealed[:2] == SEALED_MAGIC:
                raise PayloadUndecodable(SEALED)
            raise PayloadUndecodable("not a payload of zkplan, or of a newer format")
        body = sealed[_HEAD:]
        if sealed[3:_HEAD] != self._digest(kind, body):
            raise PayloadUndecodable("the digest does not fit: the payload is damaged")
        return kind, body

    def seal_value(self, value: Any, name: str = "") -> bytes:
        """Raises NotSerialisable for a value that cannot travel. `name`: see `named`."""
        if value is None:
            return self._nothings.get(name) or self._nothing(name)
        try:
            body = dump(value)
            return self.seal(VALUE, named(body, name) if name else body)
        except Exception as error:
            raise NotSerialisable(
                f"a value of type {type(value).__qualname__} cannot be serialised: "
                f"{type(error).__name__}: {error}"
            ) from error

    def _nothing(self, name: str) -> bytes:
        body = dump(None)
        sealed = self.seal(VALUE, named(body, name) if name else body)
        if len(self._nothings) >= NOTHINGS_CACHED:
            self._nothings.clear()
        self._nothings[name] = sealed
        return sealed

    def function(
        self, blob: bytes, load: Callable[[bytes], Callable[..., Any]] = load_function
    ) -> Callable[..., Any]:
        """The decoded function; from the cache if the same bytes were decoded before."""
        found = self._functions.get(blob)
        if found is None:
            found = load(blob)
            if len(self._functions) >= FUNCTIONS_CACHED or self._cached > FUNCTION_BYTES_CACHED:
                self._functions.clear()
                self._cached = 0
            self._functions[blob] = found
            self._cached += len(blob)
        return found


def dump_call(
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    position_of: Callable[[Any], int | None],
    buffers: list[pickle.PickleBuffer] | None = None,
) -> bytes:
    """The arguments of a call; each task in them, at any depth, becomes its position.

    `buffers`: see `dump`."""
    return dump((tuple(args), dict(kwargs)), position_of, buffers)
