"""Encode values as JSON, and refuse those that would come back changed."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ..errors import PayloadUndecodable

#: The encoding of values, functions and exceptions that travel as JSON.
JSON = b"J"
#: The maximum nesting of lists and dicts, which both ends can process on any thread.
DEPTH_MAX = 200
#: Python writes and reads whole numbers of at most 4,300 digits.
INT_BITS_MAX = 14_000
_PLAIN = frozenset((str, bool, type(None)))
_INSTEAD: dict[type, str] = {
    tuple: "give a list",
    set: "give a sorted list",
    frozenset: "give a sorted list",
    bytes: "give a text (base64), or the path of a file",
    bytearray: "give a text (base64), or the path of a file",
}
#: The exceptions that can be made again from their type and arguments.
_ERRORS = {
    kind.__name__: kind
    for kind in (
        *(ArithmeticError, AssertionError, AttributeError, ConnectionError, EOFError, Exception),
        *(FileExistsError, FileNotFoundError, ImportError, IndexError, IsADirectoryError, KeyError),
        *(LookupError, MemoryError, NotADirectoryError, NotImplementedError, OSError),
        *(OverflowError, PermissionError, RuntimeError, TimeoutError, TypeError, ValueError),
        ZeroDivisionError,
    )
}


class NotJson(ValueError):
    """JSON cannot represent a value. The text begins with its place: `at ['rows'][3]: …`."""


class _Container(NamedTuple):
    """A list or dict to be searched, and its place."""

    parent: _Container | None
    key: int | str
    content: Any
    depth: int

    def place(self) -> list[int | str]:
        found: list[int | str] = []
        at: _Container = self
        while at.parent is not None:
            found.append(at.key)
            at = at.parent
        return found[::-1]


def dump_json(value: Any, position_of: Callable[[Any], int | None] | None = None) -> bytes:
    """The JSON of a value, without tasks. Raises NotJson."""
    return JSON + _text(value, _places(value, position_of)).encode()


def dump_call_json(
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    position_of: Callable[[Any], int | None],
) -> bytes:
    """The arguments of a call, and the position and place of each task in them.

    Raises NotJson, whose place begins with 0 for `args` and 1 for `kwargs`.
    """
    call = [[*args], dict(kwargs)]
    places = _places(call, position_of)
    return JSON + _text([*call, places], places).encode()


def load_json(blob: bytes | memoryview) -> Any:
    """The value that `dump_json` was given. Runs no code. Raises PayloadUndecodable."""
    if blob[:1] != JSON:
        raise PayloadUndecodable(
            "it is a pickle, or damaged, and only JSON is decoded here (serializer json)"
        )
    try:
        return json.loads(bytes(blob[1:]).decode(), parse_constant=_refuse_constant)
    except RecursionError:
        raise PayloadUndecodable("the JSON is nested too deeply to be decoded") from None
    except ValueError as error:
        raise PayloadUndecodable(f"the JSON is damaged: {error}") from None


def load_call_json(blob: bytes | memoryview, values: Sequence[Any]) -> Any:
    """(args, kwargs) of a call, with `values` in place of its tasks. Raises PayloadUndecodable."""
    call = load_json(blob)
    try:
        args, kwargs, places = call
        if not (isinstance(args, list) and isinstance(kwargs, dict)):
            raise TypeError
        for position, side, *path, last in places:
            holder = (args, kwargs)[side]
            for key in path:
                holder = holder[key]
            if not -len(values) <= position < len(values) or holder[last] is not None:
                raise LookupError
            holder[last] = values[position]
    except (TypeError, ValueError, LookupError):
        raise PayloadUndecodable("the arguments of a task are damaged") from None
    return tuple(args), kwargs


def dump_error(error: BaseException) -> bytes:
    """The type and arguments of a built-in exception; empty if it cannot be made from them."""
    name, args = type(error).__name__, list(error.args)
    if _ERRORS.get(name) is not type(error):
        return b""
    try:
        if str(type(error)(*args)) != str(error):
            return b""  # for example an OSError, whose file name is not among its arguments
        return dump_json([name, args])
    except ValueError:
        return b""


def load_error(blob: bytes) -> Exception | None:
    """The exception that `dump_error` was given; None for anything else."""
    try:
        name, args = load_json(blob)
        return _ERRORS[name](*args)
    except (PayloadUndecodable, LookupError, TypeError, ValueError):
        return None


def kind_of(value: Any) -> str:
    """The type of a value for an error. Errors go to logs, and values may be secret.

    >>> kind_of(()), kind_of([])
    ('a tuple', 'a list')
    """
    name = type(value).__qualname__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def shown_place(place: Sequence[int | str]) -> str:
    """
    >>> shown_place(["rows", 3])
    "['rows'][3]"
    """
    return "".join(f"[{key!r:.60}]" for key in place)


def _places(value: Any, position_of: Callable[[Any], int | None] | None) -> list[list[int | str]]:
    """The position and the place of each task. Raises NotJson for values without JSON."""
    found: list[list[int | str]] = []
    root = _Container(None, "", [value], 0)
    waiting = [root]

    def look(holder: _Container, key: int | str, each: Any) -> None:
        kind = type(each)
        if kind in _PLAIN:
            return
        if kind is list or kind is dict:
            if holder.depth >= DEPTH_MAX:
                raise NotJson(
                    f"it is nested too deeply (more than {DEPTH_MAX} levels), or holds itself: "
                    "keep it flat, for example as a list of its parts"
                )
            waiting.append(_Container(holder, key, each, holder.depth + 1))
            return
        position = None if position_of is None else position_of(each)
        if position is not None:
            found.append([position, *_Container(holder, key, each, 0).place()[1:]])
            return
        why = _why_not(each)
        if why:
            place = shown_place(_Container(holder, key, each, 0).place()[1:])
            raise NotJson(f"at {place}: {why}" if place else why)

    while waiting:
        holder = waiting.pop()
        content = holder.content
        if type(content) is dict:
            for key, each in content.items():
                if type(key) is not str:
                    place = shown_place(holder.place()[1:])
                    raise NotJson(
                        f"{f'at {place}: ' if place else ''}the keys of a dict must be texts, "
                        f"not {kind_of(key)}"
                    )
                look(holder, key, each)
        else:
            for index, each in enumerate(content):
                look(holder, index, each)
    return found


def _why_not(value: Any) -> str:
    """Why JSON cannot represent a value that is no text, list or dict; empty if it can."""
    kind = type(value)
    if kind is int:
        if value.bit_length() <= INT_BITS_MAX:
            return ""
        return "a whole number of more than 4,200 digits: give it as a text"
    if kind is float:
        return "" if math.isfinite(value) else f"JSON has no {value!r}: give None or a text"
    instead = _INSTEAD.get(kind, "give None, bool, int, float, str, list or dict")
    return f"{kind_of(value)} does not travel as JSON: {instead}"


def _text(value: Any, places: Sequence[Any]) -> str:
    if not places:
        return json.dumps(value, separators=(",", ":"), check_circular=False)
    return json.dumps(value, separators=(",", ":"), check_circular=False, default=_null_for_a_task)


def _null_for_a_task(_: Any) -> None:
    return None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
