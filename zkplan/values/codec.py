"""Encode values as sealed bytes, and decode them.

Python's C pickler, the fastest and most faithful, encodes what a worker can import. dill encodes
the rest: lambdas, closures and definitions of `__main__`. Each payload has a digest that reveals
damage, unless a key does. Only keys prove who wrote it (`keyring`).
"""

from __future__ import annotations

import functools
import importlib
import io
import pickle
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import dill

from ..basics.text import summary_of
from ..errors import Failure, PayloadUndecodable, ZkplanError
from ..protocol import formats, records
from ..protocol.fields import NO_SECRET, as_text, from_json, require_proven
from ..protocol.records import ENVELOPE_BYTES, Serializer, TaskRecord, without_sources
from ..protocol.task_options import TaskOptions
from .classes_by_value import reduce_by_value
from .function_codec import (
    HERE,
    MARKS,
    load_function,
    name_of_function,
    named,
    skipped,
    split_name,
    traced,
)
from .functions_by_name import AllowList, load_by_name
from .json_values import JSON, dump_error, dump_json, load_call_json, load_error, load_json
from .pickle_by_value import (
    ReduceTask,
    dump_by_value,
    is_importable_module,
    not_serialisable,
    reduce_repeating,
)
from .shared import SharedReference, is_shared

MAGIC = formats.ENVELOPE
TASK, VALUE, FAILURE, LOG, GATE = b"T", b"V", b"E", b"L", b"G"
_DIGEST = 16
#: In place of the digest if a key seals the data, whose proof reveals damage as well.
_NO_DIGEST = b"\x00\xff" * (_DIGEST // 2)
_HEAD = ENVELOPE_BYTES
#: How many decoded functions a worker keeps, and how many bytes of their definitions: functions by
#: value may contain large constants.
FUNCTIONS_CACHED = 512
FUNCTION_BYTES_CACHED = 16 * 1024 * 1024
#: For how many names of tasks a sealed None is kept.
NOTHINGS_CACHED = 512
#: What a client decodes: pickles and JSON, or JSON alone.
PICKLE: Serializer = "pickle"
JSON_ONLY: Serializer = "json"

_loading = threading.local()


def argument_at(position: int) -> Any:
    """The value of the task that is an argument here. Pickles refer to this function by name."""
    return _loading.values[position]


class _NeedsDill(Exception):
    """Raised inside the C pickler by an object that only dill encodes faithfully."""


class _CPickler(pickle.Pickler):
    """Pickles what can be imported, and tasks as positions; refuses the rest."""

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
        # Python calls this only for objects of other types than builtin ones: plain data is fast.
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
        found = reduce_repeating(obj)
        return reduce_by_value(obj) if found is NotImplemented else found


def dump(
    value: Any,
    position_of: Callable[[Any], int | None] | None = None,
    buffers: list[pickle.PickleBuffer] | None = None,
) -> bytes:
    """The pickle of `value`. Raises what dill raises.

    If `buffers` is a list, it gets the large buffers of arrays and frames instead of the pickle, so
    that they need not be copied.
    """
    file = io.BytesIO()
    pickler = _CPickler(file, position_of, buffers)
    try:
        pickler.dump(value)
    except ZkplanError:
        raise
    except Exception:  # dill may be able to encode it, else its error is the one to raise
        if buffers is not None:
            buffers.clear()  # dill puts all into the pickle
        return dump_by_value(value, b"D" + HERE, task_reducer(position_of))
    return (b"P" if pickler.is_plain else b"C" + HERE) + file.getvalue()


def task_reducer(position_of: Callable[[Any], int | None] | None) -> ReduceTask | None:
    """A function that replaces tasks by their positions."""
    if position_of is None:
        return None

    def reduce_task(obj: Any) -> Any:
        position = position_of(obj)
        return None if position is None else (argument_at, (position,))

    return reduce_task


def load(blob: bytes | memoryview, values: Sequence[Any] = (), buffers: Sequence[Any] = ()) -> Any:
    """The value that `dump` was given, with `values` in place of its tasks, and its `buffers`.

    Raises PayloadUndecodable if this process lacks something that another may have (a module, the
    author's Python version), and what the user's own classes raise.
    """
    encoding = bytes(blob[:1])  # a store returns views of a bytearray, which are not hashable
    if encoding in MARKS:
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
        if encoding == JSON:
            return load_json(blob)
        if encoding == FAILED:
            return load_failure(blob)
    except (ImportError, AttributeError, pickle.UnpicklingError, EOFError) as error:
        raise PayloadUndecodable(summary_of(error)) from error
    except Exception as error:
        if encoding == b"P":
            # Builtin data runs no code of a user, so the payload is damaged.
            raise PayloadUndecodable(summary_of(error)) from error
        if blob[1:3] != HERE:
            raise PayloadUndecodable(
                f"written by Python {blob[1]}.{blob[2]}, but this is Python "
                f"{HERE[0]}.{HERE[1]}: {summary_of(error)}"
            ) from error
        raise
    finally:
        _loading.values = ()
    raise PayloadUndecodable("the payload has an unknown encoding: written by a newer zkplan?")


def task_options(record: TaskRecord) -> TaskOptions:
    """The options of a task. Without a name of its own, it has the name of its function."""
    function = record.function
    # Pass only the name of a function by value, which may be large: the cache keeps its keys.
    by_value = function[:1] not in (b"R", JSON)
    return _options(record.options, named(b"", split_name(function)[0]) if by_value else function)


def task_name(record: TaskRecord) -> str:
    """The name of a task, without a check of the other options, so that many names are read faster.
    Raises PayloadUndecodable."""
    options = {} if record.options == b"{}" else from_json(record.options, "the options of a task")
    return as_text(options.get("name")) or name_of_function(record.function)


@functools.lru_cache(maxsize=1024)
def _options(options: bytes, function: bytes) -> TaskOptions:
    found = TaskOptions.from_json(options)
    return found if found.name else replace(found, name=name_of_function(function))


def unsealed(sealed: bytes) -> tuple[bytes, bytes]:
    """(kind, body) of a payload without a check for damage: do not decode it. Raises
    PayloadUndecodable."""
    if sealed[:2] != MAGIC or len(sealed) < _HEAD:
        raise _not_opened(sealed)
    return sealed[2:3], sealed[_HEAD:]


def _not_opened(sealed: bytes) -> PayloadUndecodable:
    """The error for data that are no envelope. Raises OtherFormat, and as `require_proven`."""
    require_proven(sealed)
    formats.require_magic(sealed, MAGIC)
    is_sealed = sealed.startswith(formats.SEALED)
    return PayloadUndecodable(NO_SECRET if is_sealed else "it is not a zkplan payload, or damaged")


def seal(kind: bytes, body: bytes) -> bytes:
    """A payload in its envelope."""
    return MAGIC + kind + _digest_of(kind, body) + body


def seal_without_digest(kind: bytes, body: bytes) -> bytes:
    """As `seal`, for data that a key seals."""
    return MAGIC + kind + _NO_DIGEST + body


def _digest_of(kind: bytes, body: bytes) -> bytes:
    return blake2b(body, digest_size=_DIGEST, person=kind).digest()


class Codec:
    """Puts payloads into envelopes, and opens them; caches decoded functions.

    With serializer "json" it decodes only JSON, never a pickle.
    """

    def __init__(
        self,
        serializer: Serializer = PICKLE,
        allowed: AllowList | None = None,
        *,
        has_keys: bool = False,
    ) -> None:
        """`allowed` are the functions that may be imported; None allows all. `has_keys`: a key
        seals all payloads of this codec."""
        self.serializer: Serializer = serializer
        self.has_keys = has_keys
        self.is_json_only = serializer == JSON_ONLY
        self._allowed = allowed
        self._functions: dict[bytes, Callable[..., Any]] = {}
        self._cached = 0
        #: Sealed None by the name of its task, because most functions return nothing.
        self._nothings: dict[str, bytes] = {}
        self.none = self._nothing("")

    def for_worker(self, allowed: AllowList | None) -> Codec:
        """The same for a worker, with a cache of its own."""
        return Codec(self.serializer, allowed, has_keys=self.has_keys)

    def load(
        self, blob: bytes | memoryview, values: Sequence[Any] = (), buffers: Sequence[Any] = ()
    ) -> Any:
        """See `load` of this module."""
        if not self.is_json_only:
            return load(blob, values, buffers)
        if bytes(blob[:1]) in MARKS:
            blob = split_name(bytes(blob))[1]
        return load_failure(blob) if blob[:1] == FAILED else load_json(blob)

    def load_call(
        self, blob: bytes | memoryview, values: Sequence[Any] = (), buffers: Sequence[Any] = ()
    ) -> Any:
        """(args, kwargs) of a call, with `values` in place of its tasks. Raises as `load`."""
        if blob[:1] == JSON or self.is_json_only:
            return load_call_json(blob, values)
        return load(blob, values, buffers)

    def load_function(self, blob: bytes) -> Callable[..., Any]:
        """See `load_function` of this module. Raises FunctionNotAllowed, too."""
        if self.is_json_only:
            return load_by_name(blob, self._allowed)
        return load_function(blob)

    def load_exception(self, blob: bytes) -> Exception | None:
        """The exception of a failure; None if it did not travel. Raises as `load`."""
        if blob[:1] == JSON:
            return load_error(blob)
        found = load(blob) if blob and not self.is_json_only else None
        return found if isinstance(found, Exception) else None

    def dump_exception(self, error: BaseException, as_json: bool) -> bytes:
        """Raises what dill raises."""
        if as_json or self.is_json_only:
            return dump_error(error)
        return dump(error.with_traceback(None))

    def seal(self, kind: bytes, body: bytes) -> bytes:
        return (seal_without_digest if self.has_keys else seal)(kind, body)

    def open(self, kinds: bytes, sealed: bytes) -> tuple[bytes, bytes]:
        """(kind, body) of a payload of one of `kinds`; raises PayloadUndecodable."""
        kind = sealed[2:3]
        if sealed[:2] != MAGIC or len(sealed) < _HEAD or kind not in kinds:
            raise _not_opened(sealed)
        body, digest = sealed[_HEAD:], sealed[3:_HEAD]
        if digest != _NO_DIGEST and digest != _digest_of(kind, body):
            raise PayloadUndecodable("the digest does not match: the payload is damaged")
        return kind, body

    def open_definition(self, data: bytes) -> TaskRecord:
        """The definition in the data of a task. Raises as `open`."""
        return TaskRecord.from_bytes(self.open(TASK, without_sources(data))[1])

    def seal_value(self, value: Any, name: str = "", as_json: bool = False) -> bytes:
        """Raises NotSerialisable for a value that cannot travel. `name`: see `named`."""
        as_json = as_json or self.is_json_only
        if value is None and not as_json:
            return self._nothings.get(name) or self._nothing(name)
        try:
            body = dump_json(value) if as_json else dump(value)
            return self.seal(VALUE, named(body, name) if name else body)
        except Exception as error:
            what = f"a value of type {type(value).__qualname__}"
            raise not_serialisable(what, value, error) from error

    def seal_skipped(
        self, value: Any, name: str = "", as_json: bool = False, mark: bytes = bytes(8)
    ) -> bytes:
        """The value of a task that was skipped; `mark`: see `skipped`. Raises as `seal_value`."""
        sealed = self.seal_value(value, name, as_json)
        return self.seal(VALUE, skipped(sealed[_HEAD:], mark))

    def seal_traced(self, sealed: bytes, traceparent: str) -> bytes:
        """The envelope of a value with the span that made it: see `traced`."""
        return self.seal(VALUE, traced(sealed[_HEAD:], traceparent))

    def _nothing(self, name: str) -> bytes:
        body = dump(None)
        sealed = self.seal(VALUE, named(body, name) if name else body)
        if len(self._nothings) >= NOTHINGS_CACHED:
            self._nothings.clear()
        self._nothings[name] = sealed
        return sealed

    def function(
        self, blob: bytes, load: Callable[[bytes], Callable[..., Any]] | None = None
    ) -> Callable[..., Any]:
        """The decoded function, from the cache if the same bytes were decoded before."""
        found = self._functions.get(blob)
        if found is None:
            found = (load or self.load_function)(blob)
            if len(self._functions) >= FUNCTIONS_CACHED or self._cached > FUNCTION_BYTES_CACHED:
                self._functions.clear()
                self._cached = 0
            self._functions[blob] = found
            self._cached += _bytes_of(blob)
        return found


def _bytes_of(function: bytes) -> int:
    """How many bytes a dumped function has, also if tasks share it."""
    plain = split_name(function)[1]
    return SharedReference.from_bytes(plain).length if is_shared(plain) else len(function)


def dump_call(
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    position_of: Callable[[Any], int | None],
    buffers: list[pickle.PickleBuffer] | None = None,
) -> bytes:
    """The arguments of a call; each task in them, at any depth, becomes its position.

    `buffers`: see `dump`."""
    return dump((tuple(args), dict(kwargs)), position_of, buffers)


# ---- Failures as values: a failure record that is an argument of a function.


#: The encoding of a failure that is an argument. It is in no znode, and it is not a pickle, so that
#: every worker and every process can decode it.
FAILED = b"E"


def dump_failure(failure: records.Failure) -> bytes:
    return FAILED + failure._replace(exception=b"").to_bytes()


def load_failure(blob: bytes | memoryview) -> Failure:
    """Raises PayloadUndecodable."""
    found = records.Failure.from_bytes(bytes(blob[1:]))
    n = max(0, found.n)
    return Failure(found.kind, found.text, found.traceback, n, found.worker)
