"""Check the options of tasks and plans, and make the record of a new plan."""

from __future__ import annotations

import base64
import builtins
import math
import os
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

from ..basics.text import size, size_from, summary_of
from ..errors import InvalidTask, NotSerialisable
from ..protocol.features.limits import SIZE_MAX
from ..protocol.fields import NUMBER_MAX
from ..protocol.layout import OWN_LIMIT, PRIORITY_MAX, PRIORITY_MIN, QUEUE_NAMES, parse_queue
from ..protocol.records import WEIGHT_MAX, OnFailure, PlanRecord, Serializer
from ..protocol.task_options import RUN_IF, TaskOptions
from ..values.function_codec import NAME_CHARS_MAX, dump_function, function_name
from ..values.functions_by_name import dump_name
from ..views.find import KEY_PREFIX

#: A date and time with a zone, or a delay from now: in seconds, or as a timedelta.
Moment = datetime | timedelta | float
#: The tree has room for times up to the year 2286.
LATEST_S = 9_999_999_999.0


def seconds_of(moment: Moment, what: str) -> float:
    """Wall-clock seconds since 1970. Raises ValueError, whose text says what to give.

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
            f"{what}: a datetime with a time zone, a timedelta, or seconds from now, not {moment!r}"
        )
    if not 0 <= at <= LATEST_S:  # NaN, too
        raise ValueError(f"{what}: a moment between 1970 and 2286, not {moment!r}")
    return at


# ---- The limits that tasks and plans name, as authors give them.


#: The most limits that one task may name; with the limit of its plan there are eight.
LIMITS_MAX = 7


def as_names(limits: Any) -> Any:
    """What the options of a task hold; what is no list is refused by `check_limits`."""
    return tuple(limits) if type(limits) is list else limits


def check_limits(limits: Any, label: str) -> None:
    """Raises InvalidTask."""
    if not limits and limits == ():
        return
    if type(limits) is not tuple or len(limits) > LIMITS_MAX:
        raise InvalidTask(
            label, f"{label}: limits is a list of at most {LIMITS_MAX} names, not {limits!r:.60}"
        )
    for name in limits:
        if type(name) is not str or parse_queue(name) is None or name == OWN_LIMIT:
            raise InvalidTask(
                label,
                f"{label}: limits: {name!r:.60} is no name of a limit: {QUEUE_NAMES}, and is not "
                "`plan`",
            )


def check_max_running(size: int | None) -> None:
    """Raises InvalidTask."""
    if size is not None and not (type(size) is int and 1 <= size <= SIZE_MAX):
        raise InvalidTask("", f"max_running is 1 to {SIZE_MAX}, not {size!r}")


# ---- `fatal=` and `retry_if=` as authors give them, turned into what the options of a task hold.


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


# ---- Check the options of a task.


DELAY_MAX_S = 30 * 24 * 3600.0
#: The bounds of a memory limit: a process needs some for Python itself.
MEMORY_MIN, MEMORY_MAX = 64 * 1024 * 1024, 2**50


def memory_bytes(given: str | int | None, label: str) -> int | None:
    """The bytes of a memory limit. Raises InvalidTask."""
    if given is None:
        return None
    try:
        return size_from(given)
    except ValueError as error:
        raise InvalidTask(label, f"{label}: memory_limit is {error}, not {given!r:.50}") from None


def check_key(key: str | None, label: str, what: str) -> None:
    """Raises InvalidTask."""
    if key is not None and not (
        isinstance(key, str) and 0 < len(key) <= NAME_CHARS_MAX and key.isprintable()
    ):
        raise InvalidTask(
            label, f"{what} has 1 to {NAME_CHARS_MAX} printable characters, unlike {key!r:.50}"
        )


def check_options(options: TaskOptions, label: str) -> None:
    """Raises InvalidTask, which names the option and its bounds."""

    def demand(fits: bool, what: str) -> None:
        if not fits:
            raise InvalidTask(label, f"{label}: {what}")

    def seconds(value: object) -> bool:
        # True is a number in Python, but a record that holds it could not be decoded.
        return isinstance(value, int | float) and not isinstance(value, bool)

    demand(
        isinstance(options.name, str)
        and len(options.name) <= NAME_CHARS_MAX
        and options.name.isprintable(),
        f"name: at most {NAME_CHARS_MAX} printable characters, unlike {options.name!r:.50}",
    )
    demand(
        type(options.attempts) is int and 1 <= options.attempts <= 1000,
        f"attempts must be 1 to 1000, not {options.attempts!r}",
    )
    demand(
        seconds(options.retry_delay) and 0 <= options.retry_delay <= DELAY_MAX_S,
        f"retry_delay must be 0 to {DELAY_MAX_S:g} seconds, not {options.retry_delay!r}",
    )
    demand(
        options.timeout is None
        or (seconds(options.timeout) and 0 < options.timeout <= DELAY_MAX_S),
        f"timeout must be above 0 and at most {DELAY_MAX_S:g} seconds, not {options.timeout!r}",
    )
    demand(
        type(options.priority) is int and PRIORITY_MIN <= options.priority <= PRIORITY_MAX,
        f"priority must be {PRIORITY_MIN} to {PRIORITY_MAX}, not {options.priority!r}",
    )
    demand(
        options.keep is None or type(options.keep) is bool,
        f"keep must be True, False or None, not {options.keep!r}",
    )
    demand(type(options.pure) is bool, f"pure must be True or False, not {options.pure!r}")
    demand(
        type(options.queue) is str and parse_queue(options.queue) is not None,
        f"queue: {QUEUE_NAMES}, unlike {options.queue!r:.60}",
    )
    check_limits(options.limits, label)
    demand(
        options.isolation in (None, "thread", "process"),
        f'isolation must be "thread" or "process", not {options.isolation!r:.50}',
    )
    demand(
        options.memory_limit is None or MEMORY_MIN <= options.memory_limit <= MEMORY_MAX,
        f"memory_limit must be {size(MEMORY_MIN)} to {size(MEMORY_MAX)}, "
        f"not {options.memory_limit!r}",
    )
    demand(
        options.memory_limit is None or options.isolation != "thread",
        'only a task in a process of its own can have a memory_limit: leave out isolation="thread"',
    )
    demand(
        options.run_if in RUN_IF,
        f"run_if must be one of {', '.join(RUN_IF)}, not {options.run_if!r:.100}",
    )
    demand(
        options.run_if == RUN_IF[0] or not options.pure,
        f"a pure task runs only on results, so it takes no run_if={options.run_if!r}",
    )


# ---- The record of a new plan: what its author says is checked, before anything is written.


IfExists = Literal["return", "raise", "replace_finished"]


def new_record(
    name: str | None,
    defaults: TaskOptions,
    on_failure: OnFailure,
    *,
    retention: float | None = None,
    key: str | None = None,
    not_before: Moment | None = None,
    deadline: Moment | None = None,
    serializer: Serializer = "pickle",
    weight: int = 1,
    max_running: int | None = None,
    history: bool = True,
) -> PlanRecord:
    """Raises InvalidTask for an option, a name or a key out of range."""
    check_options(defaults, "the plan's defaults")
    if on_failure not in ("hold", "cascade"):
        raise InvalidTask("", f'on_failure must be "hold" or "cascade", not {on_failure!r}')
    check_plan_name(name)
    check_retention(retention)
    check_max_running(max_running)
    check_key(key, "", "the key of a plan")
    check_share(weight, None)
    times: dict[str, Any] = {}
    for what, moment in (("not_before", not_before), ("deadline", deadline)):
        try:
            times[what] = None if moment is None else seconds_of(moment, what)
        except ValueError as error:
            raise InvalidTask("", str(error)) from None
    return PlanRecord(
        *(name or "", os.urandom(12).hex(), time.time(), defaults, on_failure),
        retention=retention,
        key=key or "",
        serializer=serializer,
        weight=weight,
        max_running=max_running or 0,
        history=history,
        **times,
    )


def check_plan_name(name: str | None) -> None:
    """Raises InvalidTask."""
    if name is not None and not (
        isinstance(name, str) and 0 < len(name) <= 200 and name.isprintable()
    ):
        raise InvalidTask(
            "", f"the name of a plan has 1 to 200 printable characters, unlike {name!r:.50}"
        )
    if name is not None and name.startswith(KEY_PREFIX):
        raise InvalidTask(
            "",
            f"the name of a plan does not begin with {KEY_PREFIX!r}, unlike {name!r:.50}: that "
            "names a plan by its key (key=…)",
        )


def check_retention(seconds: float | None) -> None:
    """Raises InvalidTask."""
    is_number = isinstance(seconds, (int, float))
    if seconds is not None and not (
        is_number and (0 <= seconds < NUMBER_MAX or seconds == math.inf)
    ):
        raise InvalidTask("", f"retention is a number of seconds from 0, not {seconds!r}")


def check_share(weight: int | None, priority: int | None) -> None:
    """Raises InvalidTask."""
    if weight is not None and not (type(weight) is int and 1 <= weight <= WEIGHT_MAX):
        raise InvalidTask(
            "", f"weight is a whole number from 1 to {WEIGHT_MAX}, not {weight!r:.50}"
        )
    known = type(priority) is int and PRIORITY_MIN <= priority <= PRIORITY_MAX
    if priority is not None and not known:
        raise InvalidTask(
            "", f"priority must be {PRIORITY_MIN} to {PRIORITY_MAX}, not {priority!r:.50}"
        )


def check_if_exists(if_exists: IfExists, key: str | None) -> None:
    """Raises InvalidTask."""
    if if_exists not in ("return", "raise", "replace_finished"):
        raise InvalidTask(
            "", f'if_exists is "return", "raise" or "replace_finished", not {if_exists!r}'
        )
    if if_exists != "return" and key is None:
        raise InvalidTask("", f"if_exists={if_exists!r} needs a key: a name may be used again")
