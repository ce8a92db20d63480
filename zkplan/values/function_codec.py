"""Encode functions: by name where workers can import them, otherwise by value."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from typing import Any

import dill

from ..basics.text import summary_of
from ..errors import PayloadUndecodable
from ..protocol.task_options import NAME_CHARS_MAX, TRACEPARENT_CHARS
from .functions_by_name import EACH, kind_of_function, load_by_name, note_imports
from .json_values import JSON
from .pickle_by_value import dump_by_value
from .pickled_once import PickledFunctions, is_importable

#: The version of Python that functions by value are bound to.
HERE = bytes(sys.version_info[:2])
#: The first byte of what may precede a value: a trace, the mark of a skip, a name.
MARKS = frozenset((b"W", b"O", b"N"))
_SKIPPED, _TRACED = b"O", b"W"
_TRACE_BYTES = 1 + TRACEPARENT_CHARS


def named(body: bytes, name: str) -> bytes:
    """A function by value with its name before it, or a kept value with that of its task."""
    encoded = name.encode(errors="replace")
    return b"N" + len(encoded).to_bytes(2, "big") + encoded + body


def skipped(body: bytes, mark: bytes = bytes(8)) -> bytes:
    """The value of a skipped task. The eight bytes of `mark` are unique to an operator's call, or
    zeros if the task's own `run_if` skips it."""
    return _SKIPPED + mark + body


def is_skipped(body: bytes) -> bool:
    """Whether `skipped` made it."""
    return body[:1] == _SKIPPED


def traced(body: bytes, traceparent: str) -> bytes:
    """A value, with a name or without, after the span of the attempt that made it."""
    return _TRACED + traceparent.encode() + body


def trace_of(body: bytes) -> str:
    """The span that made a value, or empty. It may be any text: a writer of the tree chooses it."""
    return body[1:_TRACE_BYTES].decode(errors="replace") if body[:1] == _TRACED else ""


def split_name(body: bytes) -> tuple[str, bytes]:
    """(name, body) of what `named` made; the name is empty if there is none."""
    if bytes(body[:1]) not in MARKS:
        return "", body
    if body[:1] == _TRACED:
        body = body[_TRACE_BYTES:]
    if is_skipped(body):
        body = body[9:]
    if body[:1] != b"N":
        return "", body
    start = 3 + int.from_bytes(body[1:3], "big")
    return body[3:start].decode(errors="replace"), body[start:]


def function_name(function: Any) -> str:
    """The name of a task that has no name of its own.

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


_by_value = PickledFunctions()


def dump_function(function: Callable[..., Any]) -> bytes:
    """By reference if it can be imported, otherwise by value (lambdas, `__main__`)."""
    if is_importable(function):
        return f"R{function.__module__}:{function.__qualname__}".encode()
    return _by_value.pickled(function, _dump_by_value)


def _dump_by_value(function: Callable[..., Any]) -> bytes:
    return named(dump_by_value(function, b"F" + HERE), function_name(function))


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
                f"the function {module}.{name} cannot be imported: {summary_of(error)}"
            ) from error
    elif blob[:1] == JSON:
        return load_by_name(blob)
    elif blob[:1] == b"F" and blob[1:3] == HERE:
        try:
            found = dill.loads(blob[3:])
        except Exception as error:
            raise PayloadUndecodable(
                f"the function cannot be decoded here: {summary_of(error)}"
            ) from error
    elif blob[:1] == b"F" and len(blob) >= 3:
        raise PayloadUndecodable(
            f"the function was written by value under Python {blob[1]}.{blob[2]}; here is "
            f"{HERE[0]}.{HERE[1]}"
        )
    else:
        raise PayloadUndecodable("the function has an unknown encoding: written by a newer zkplan?")
    if not callable(found):
        raise PayloadUndecodable(f"{found!r} cannot be called here")
    note_imports()
    return found  # type: ignore[no-any-return]


def name_of_function(blob: bytes) -> str:
    """The name of a dumped function, without decoding it; empty if it has none."""
    if kind := kind_of_function(blob):
        return kind
    if blob[:1] in (b"R", JSON):
        return blob.partition(b":")[2].removesuffix(EACH).decode(errors="replace")
    return split_name(blob)[0]


def is_json(function: bytes) -> bool:
    """Whether the task of a dumped function uses JSON, also for its results and logs."""
    return function[:1] == JSON


def sends_code(blob: bytes) -> bool:
    """Whether a dumped function contains its code. One by value may be a partial of an imported
    function. One in the store is large, and is not read for this."""
    if blob[:1] in (b"R", JSON):
        return False
    body = split_name(blob)[1]
    return body[:1] != b"F" or b"_create_code" in body


def describe_function(blob: bytes) -> str:
    """A name for people, without decoding anything."""
    if blob[:1] in (b"R", JSON):
        return blob[1:].decode(errors="replace").replace(":", ".")
    return f"{name_of_function(blob)} (by value)".strip()
