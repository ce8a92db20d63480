"""`fatal=` and `retry_if=` as authors give them, turned into what the options of a task hold."""

from __future__ import annotations

import base64
import builtins
from collections.abc import Callable, Sequence
from typing import Any

from ..basics.exceptions import summary_of
from ..errors import InvalidTask, NotSerialisable
from ..serialization.by_name import dump_name
from ..serialization.functions import dump_function, function_name

#: What `fatal` takes: exception classes, or names as "ValueError" or "my.module:MyError".
Classes = type[BaseException] | str | Sequence[type[BaseException] | str]
#: The longest `retry_if` of a function by value, in bytes.
FUNCTION_BYTES_MAX = 64 * 1024


def class_names(given: Any, what: str) -> tuple[str, ...]:
    """The names by which a worker knows these exceptions, without importing their classes.

    Raises InvalidTask.
    """
    found = given if isinstance(given, list | tuple) else [given]
    return tuple(_class_name(each, what) for each in found)


def _class_name(given: Any, what: str) -> str:
    if isinstance(given, type) and issubclass(given, BaseException):
        return f"{given.__module__}:{given.__qualname__}"
    if isinstance(given, str) and given:
        if ":" in given:
            return given
        if isinstance(getattr(builtins, given, None), type):
            return f"builtins:{given}"
        raise InvalidTask(
            "", f"{what}: {given!r:.100} is no exception of Python; give another as MODULE:CLASS"
        )
    raise InvalidTask("", f"{what} takes exception classes, or their names, not {given!r:.100}")


def retry_rule(given: Any, as_json: bool = False) -> tuple[str, ...] | str:
    """What `retry_if` becomes: names of exceptions, or a function as a text. With `as_json` the
    function travels by its name.

    Raises InvalidTask, NotSerialisable.
    """
    is_class = isinstance(given, type) and issubclass(given, BaseException)
    if is_class or isinstance(given, str | list | tuple):
        return class_names(given, "retry_if")
    if not callable(given):
        raise InvalidTask("", f"retry_if takes a function or exception classes, not {given!r:.100}")
    return _as_text(given, as_json)


def _as_text(function: Callable[..., Any], as_json: bool) -> str:
    try:
        dumped = dump_name(function) if as_json else dump_function(function)
    except Exception as error:
        raise NotSerialisable(
            f"retry_if: the function {function_name(function)} cannot be serialised"
            f"{' (serializer json)' if as_json else ''}: {summary_of(error)}"
        ) from error
    if len(dumped) > FUNCTION_BYTES_MAX:
        raise InvalidTask(
            "",
            f"retry_if: the function {function_name(function)} takes {len(dumped)} bytes, at most "
            f"{FUNCTION_BYTES_MAX}; put it into a module",
        )
    return base64.b64encode(dumped).decode()


def as_options(given: dict[str, Any], label: str, as_json: bool = False) -> dict[str, Any]:
    """The options with what `fatal` and `retry_if` become. Raises InvalidTask and
    NotSerialisable, which name the task."""
    if "fatal" not in given and "retry_if" not in given:
        return given
    made = dict(given)
    try:
        if "fatal" in made:
            made["fatal"] = class_names(made["fatal"], "fatal")
        if "retry_if" in made:
            made["retry_if"] = retry_rule(made["retry_if"], as_json)
    except InvalidTask as error:
        raise InvalidTask(label, f"{label}: {error}") from None
    except NotSerialisable as error:
        raise NotSerialisable(f"{label}: {error}") from error.__cause__
    return made
