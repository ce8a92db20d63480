"""The kinds of tasks that this process runs: names that stand for functions, in any language."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import PayloadUndecodable
from .json_values import JSON

#: What stands before the name of a kind, where a function is written.
_KIND = JSON + b"@"
_functions: dict[str, Callable[..., Any]] = {}


def register(kind: str, function: Callable[..., Any]) -> None:
    _functions[kind] = function


def registered() -> frozenset[str]:
    """The kinds that have a function in this process."""
    return frozenset(_functions)


def dump_kind(kind: str) -> bytes:
    return _KIND + kind.encode()


def kind_of_function(blob: bytes) -> str:
    """The kind that a written function names; empty where it names none.

    >>> kind_of_function(dump_kind("resize")), kind_of_function(b"Jmodule:name")
    ('resize', '')
    """
    return blob[2:].decode(errors="replace") if blob[:2] == _KIND else ""


def function_of_kind(kind: str) -> Callable[..., Any]:
    """Raises PayloadUndecodable: another worker may have it."""
    found = _functions.get(kind)
    if found is None:
        raise PayloadUndecodable(
            f"this worker has no function of kind {kind!r:.60}: start it with --kinds MODULE, a "
            "module that has one with @zkplan.kind"
        )
    return found
