"""Check the options that an author gives for a task, and convert them for the task's record."""

from __future__ import annotations

import base64
import builtins
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from ..basics.public_calls import in_seconds
from ..basics.text import size_from, summary_of
from ..errors import InvalidTask, NotSerialisable
from ..protocol.task_options import LATEST_S, NAME_CHARS_MAX, OPTIONS, RUN_IF, TaskOptions
from ..values.function_codec import dump_function, function_name
from ..values.functions_by_name import dump_name

#: A date and time with a zone, or a delay from now: in seconds, or as a timedelta.
Moment = datetime | timedelta | float
#: The most bytes of a function that is `retry_if` and travels by value.
FUNCTION_BYTES_MAX = 64 * 1024


def with_options(
    defaults: TaskOptions, given: Mapping[str, Any], label: str, as_json: bool = False
) -> TaskOptions:
    """`defaults` with the options that an author gives for the task `label`.

    With `as_json` a function in `retry_if` travels by its name. Raises NotSerialisable, and
    InvalidTask, which names the task, the option and its bounds.
    """
    converted = dict(given)
    try:
        for name in _CONVERTERS.keys() & given.keys():
            converted[name] = _CONVERTERS[name](name, given[name])
        if callable(found := converted.get("retry_if")):
            converted["retry_if"] = _function_as_text(found, as_json)
        options = replace(defaults, **converted)
        _check(options)
    except ValueError as error:
        raise InvalidTask(label, f"{label}: {error}") from None
    except NotSerialisable as error:
        raise NotSerialisable(f"{label}: {error}") from error.__cause__
    return options


def _check(options: TaskOptions) -> None:
    """Raises ValueError."""
    for name, option in OPTIONS.items():
        value = getattr(options, name)
        if not option.values.fits(value):
            raise ValueError(f"{name} must be {option.values.must_be}, not {value!r:.60}")
    if options.memory_limit is not None and options.isolation == "thread":
        raise ValueError(
            "only a task in a process of its own can have a memory_limit: leave out "
            'isolation="thread"'
        )
    if options.run_if != RUN_IF[0] and options.pure:
        raise ValueError(f"a pure task runs only on results: leave out run_if={options.run_if!r}")


# ---- Convert one option from the author's form to that of the record. All raise ValueError.


def seconds_of(moment: Moment, what: str) -> float:
    """Convert `moment` to wall-clock seconds since 1970. Raises ValueError with the allowed forms.

    >>> from datetime import timezone
    >>> seconds_of(datetime(1970, 1, 2, tzinfo=timezone.utc), "deadline")
    86400.0
    """
    if isinstance(moment, datetime):
        if moment.utcoffset() is None:
            raise ValueError(
                f"{what}: {moment!r} has no time zone, so it means another moment on each machine: "
                "give it one, such as datetime(…, tzinfo=ZoneInfo('Europe/Berlin'))"
            )
        at = moment.timestamp()
    elif isinstance(moment, timedelta):
        at = time.time() + moment.total_seconds()
    elif isinstance(moment, (int, float)) and not isinstance(moment, bool):
        at = time.time() + moment
    else:
        raise ValueError(
            f"{what} must be a datetime with a time zone, a timedelta, or seconds from now, not "
            f"{moment!r}"
        )
    if not 0 <= at <= LATEST_S:  # also false for NaN
        raise ValueError(f"{what} must be a moment between 1970 and 2286, not {moment!r}")
    return at


def _memory_bytes(name: str, given: Any) -> int | None:
    try:
        return None if given is None else size_from(given)
    except ValueError as error:
        raise ValueError(f"{name} must be {error}, not {given!r:.50}") from None


def memory_bytes(given: str | int | None, label: str) -> int | None:
    """The bytes of a memory limit. Raises InvalidTask."""
    try:
        return _memory_bytes("memory_limit", given)
    except ValueError as error:
        raise InvalidTask(label, f"{label}: {error}") from None


def _class_names(name: str, given: Any) -> tuple[str, ...]:
    """The names by which a worker knows these exceptions, without importing their classes."""
    classes = given if isinstance(given, list | tuple) else [given]
    return tuple(_class_name(name, each) for each in classes)


def _class_name(name: str, given: Any) -> str:
    if isinstance(given, type) and issubclass(given, BaseException):
        return f"{given.__module__}:{given.__qualname__}"
    if not isinstance(given, str) or not given:
        raise ValueError(f"{name} takes exception classes, or their names, not {given!r:.100}")
    if ":" in given:
        return given
    if isinstance(getattr(builtins, given, None), type):
        return f"builtins:{given}"
    raise ValueError(
        f"{name}: {given!r:.100} is not a built-in exception: name others as MODULE:CLASS"
    )


def _retry_rule(name: str, given: Any) -> Any:
    """The names of the exceptions, or the function itself."""
    is_class = isinstance(given, type) and issubclass(given, BaseException)
    if is_class or isinstance(given, str | list | tuple):
        return _class_names(name, given)
    if not callable(given):
        raise ValueError(f"{name} takes a function or exception classes, not {given!r:.100}")
    return given


def _function_as_text(function: Callable[..., Any], as_json: bool) -> str:
    """Raises NotSerialisable, too."""
    name = function_name(function)
    try:
        dumped = dump_name(function) if as_json else dump_function(function)
    except Exception as error:
        raise NotSerialisable(
            f"retry_if: the function {name} cannot be serialised"
            f"{' (serializer json)' if as_json else ''}: {summary_of(error)}"
        ) from error
    if len(dumped) > FUNCTION_BYTES_MAX:
        raise ValueError(
            f"retry_if: the function {name} takes {len(dumped)} bytes, but at most "
            f"{FUNCTION_BYTES_MAX} fit: put it into a module"
        )
    return base64.b64encode(dumped).decode()


def _seconds(name: str, given: Any) -> Any:
    return in_seconds(given)


def _moment(name: str, given: Any) -> float:
    return seconds_of(given, name)


def _names(name: str, given: Any) -> Any:
    return tuple(given) if type(given) is list else given


#: Options that an author gives in another form than the record has.
_CONVERTERS: dict[str, Callable[[str, Any], Any]] = {
    "retry_delay": _seconds,
    "timeout": _seconds,
    "memory_limit": _memory_bytes,
    "not_before": _moment,
    "deadline": _moment,
    "limits": _names,
    "fatal": _class_names,
    "retry_if": _retry_rule,
}


def check_key(key: str | None, label: str, what: str) -> None:
    """Raises InvalidTask."""
    if key is not None and not (
        isinstance(key, str) and 0 < len(key) <= NAME_CHARS_MAX and key.isprintable()
    ):
        raise InvalidTask(
            label, f"{what} must have 1 to {NAME_CHARS_MAX} printable characters, not {key!r:.50}"
        )
