"""The options of a task: one table that defines them, and their values in records.

A new option is one row in `TaskOptions`, one line in each of the types that authors see
(`author.task_specs`), and the code that acts on it. `tests/unit/test_task_options.py` compares the
places where options are named with this table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from enum import Flag, auto
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from ..basics.text import size
from ..errors import PayloadUndecodable
from .fields import as_text, from_json, to_json
from .layout import DEFAULT_QUEUE, OWN_LIMIT, PRIORITY_MAX, PRIORITY_MIN, QUEUE_NAMES, parse_queue

#: The longest name of a task.
NAME_CHARS_MAX = 200
#: The longest delay and the longest time-out.
DELAY_MAX_S = 30 * 24 * 3600.0
#: The tree has room for times up to the year 2286.
LATEST_S = 9_999_999_999.0
#: The bounds of a memory limit: a process needs some for Python itself.
MEMORY_MIN, MEMORY_MAX = 64 * 1024 * 1024, 2**50
#: How many limits a task may name. With the limit of its plan there are eight.
LIMITS_MAX = 7
#: The length of a W3C traceparent of version 00, such as 00-TRACE-SPAN-01.
TRACEPARENT_CHARS = 55
RUN_IF = ("all_succeeded", "all_finished", "any_failed")


class At(Flag):
    """Where an option may be given."""

    #: `Plan.add_task`, `Plan.map` and `TaskSpec`.
    TASK = auto()
    #: `@zkplan.task`.
    FUNCTION = auto()
    #: As the default for the tasks of a plan: `Client.create_plan`, and `[plan]` of a plan file.
    PLAN = auto()
    #: `[tasks.NAME]` of a plan file.
    FILE = auto()
    #: The HTTP service, for a task.
    HTTP = auto()
    #: A task that is a gate (`zkplan.when`).
    GATE = auto()
    #: Nowhere: zkplan sets it.
    NOWHERE = 0
    USUAL = TASK | FUNCTION | PLAN | FILE | HTTP


class Values(NamedTuple):
    """What values an option may have, from an author and in a record."""

    fits: Callable[[Any], bool]
    #: What an error says that the value must be.
    must_be: str
    #: The types of such a value in a plan file.
    toml: tuple[type, ...] = ()


class Option(NamedTuple):
    """A row of the table. Its name, type and default are those of a field of TaskOptions."""

    values: Values
    given: At
    #: For the table in docs/start/reference.md.
    means: str


def _whole(least: int, most: int) -> Values:
    return Values(
        lambda value: type(value) is int and least <= value <= most, f"{least} to {most}", (int,)
    )


def _seconds(most: float, *, from_zero: bool) -> Values:
    def fits(value: Any) -> bool:
        # True is a number in Python, but not a number of seconds.
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and (value >= 0 if from_zero else value > 0) and value <= most

    bounds = f"0 to {most:.0f} seconds" if from_zero else f"above 0, at most {most:.0f} seconds"
    return Values(fits, bounds, (int, float))


def _one_of(*words: str) -> Values:
    *most, last = (f'"{word}"' for word in words)
    must_be = f"{', '.join(most)} or {last}"
    return Values(lambda value: type(value) is str and value in words, must_be, (str,))


def _optional(values: Values) -> Values:
    return values._replace(fits=lambda value: value is None or values.fits(value))


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= NAME_CHARS_MAX and value.isprintable()


def _are_limits(value: Any) -> bool:
    return (
        type(value) is tuple
        and len(value) <= LIMITS_MAX
        and all(type(each) is str and parse_queue(each) and each != OWN_LIMIT for each in value)
    )


def _are_texts(value: Any) -> bool:
    return type(value) is tuple and all(type(each) is str for each in value)


_NAME = Values(_is_name, f"at most {NAME_CHARS_MAX} printable characters")
_YES_OR_NO = Values(lambda value: type(value) is bool, "True or False", (bool,))
_QUEUE = Values(
    lambda value: type(value) is str and parse_queue(value) is not None,
    f"a name: {QUEUE_NAMES}",
    (str,),
)
_MEMORY = _whole(MEMORY_MIN, MEMORY_MAX)._replace(
    must_be=f"{size(MEMORY_MIN)} to {size(MEMORY_MAX)}", toml=(str, int)
)
_MOMENT = _optional(_seconds(LATEST_S, from_zero=True))._replace(
    must_be="a moment between 1970 and 2286"
)
_LIMITS = Values(
    _are_limits,
    f"a list of at most {LIMITS_MAX} names, without `{OWN_LIMIT}`: {QUEUE_NAMES}",
    (list,),
)
_EXCEPTIONS = Values(_are_texts, "classes of exceptions, or their names", (str, list))
_EXCEPTIONS_OR_FUNCTION = Values(
    lambda value: type(value) is str or _are_texts(value),
    "a function, or classes of exceptions",
    (str, list),
)
_TRACEPARENT = Values(
    lambda value: type(value) is str and len(value) in (0, TRACEPARENT_CHARS), "a traceparent"
)

_CONSTANTS = Values(_are_texts, "references to constants")

T = TypeVar("T")


def _row(default: T, values: Values, means: str, given: At = At.USUAL) -> T:
    made: T = field(default=default, metadata={"option": Option(values, given, means)})
    return made


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """How a task is run. Each field is a row of the table.

    Times are in seconds, moments in wall-clock seconds since 1970, memory in bytes. A function in
    `retry_if` is its dump, in base64.
    """

    name: str = _row(
        "",
        _NAME,
        "how views and errors call the task; by default the name of its function",
        At.TASK | At.FUNCTION | At.HTTP | At.GATE,
    )
    attempts: int = _row(3, _whole(1, 1000), "how many times the task may run in all")
    retry_delay: float = _row(
        1.0,
        _seconds(DELAY_MAX_S, from_zero=True),
        "the delay before the second attempt; it doubles with each failure",
    )
    timeout: float | None = _row(
        None, _optional(_seconds(DELAY_MAX_S, from_zero=False)), "how long one attempt may take"
    )
    priority: int = _row(
        0,
        _whole(PRIORITY_MIN, PRIORITY_MAX),
        "a task with a higher priority runs earlier",
        At.USUAL | At.GATE,
    )
    keep: bool | None = _row(
        None,
        _optional(_YES_OR_NO)._replace(must_be="True, False or None"),
        "whether the result is kept; None: only if no other task takes it",
        At.USUAL | At.GATE,
    )
    pure: bool = _row(
        False,
        _YES_OR_NO,
        "promises the same result for the same arguments, and no other effect",
    )
    queue: str = _row(
        DEFAULT_QUEUE, _QUEUE, "only workers that serve this queue run the task", At.USUAL | At.GATE
    )
    isolation: str | None = _row(
        None,
        _optional(_one_of("thread", "process")),
        "where the task runs; None: the default of the worker",
        At.USUAL & ~At.HTTP,
    )
    memory_limit: int | None = _row(
        None,
        _optional(_MEMORY),
        "the most memory for its process, in bytes or as a text (`2GB`)",
        At.USUAL & ~At.HTTP,
    )
    not_before: float | None = _row(
        None, _MOMENT, "the task does not run before this moment", At.TASK | At.HTTP
    )
    deadline: float | None = _row(
        None, _MOMENT, "a task that has not ended by this moment fails for good", At.TASK | At.HTTP
    )
    limits: tuple[str, ...] = _row(
        (), _LIMITS, "limits that bound how many such tasks run at a time, or start in a period"
    )
    run_if: str = _row(
        RUN_IF[0],
        _one_of(*RUN_IF),
        "which outcomes of the tasks that it waits for let the task run",
        At.USUAL & ~At.PLAN,
    )
    fatal: tuple[str, ...] = _row((), _EXCEPTIONS, "exceptions that use up all attempts at once")
    retry_if: tuple[str, ...] | str = _row(
        (), _EXCEPTIONS_OR_FUNCTION, "only after these exceptions is the task tried again"
    )
    traceparent: str = _row(
        "", _TRACEPARENT, "the span of its author, as a W3C traceparent", At.NOWHERE
    )
    constants: tuple[str, ...] = _row(
        (), _CONSTANTS, "constants of its plan that are arguments, in hexadecimal", At.NOWHERE
    )

    @property
    def is_isolated(self) -> bool:
        """Whether the author wants a separate process for the task."""
        return self.isolation == "process" or (
            self.isolation is None and self.memory_limit is not None
        )

    def to_json(self) -> bytes:
        """The options that differ from the defaults, as JSON: most tasks store two bytes."""
        values = _values_of(self)
        if values == _DEFAULTS:
            return b"{}"
        rows = zip(OPTIONS, values, _DEFAULTS, strict=True)
        return to_json({name: value for name, value, default in rows if value != default})

    @classmethod
    def from_json(cls, data: bytes) -> TaskOptions:
        if data == b"{}":
            return DEFAULT_OPTIONS
        return cls.from_value(from_json(data, "the options of a task"))

    @classmethod
    def from_value(cls, value: Any) -> TaskOptions:
        """Read options from parsed JSON; unknown options are skipped.

        Raises PayloadUndecodable for values that make no sense: anybody may write a record, and a
        wrong type would break the worker far from here.
        """
        if not isinstance(value, dict):
            raise PayloadUndecodable("the options of a task are not a JSON object")
        given: dict[str, Any] = {}
        for name in filter(OPTIONS.__contains__, value):
            item = tuple(value[name]) if type(value[name]) is list else value[name]
            # Which characters are printable depends on the version of Python.
            fits = type(item) is str if name == "name" else OPTIONS[name].values.fits(item)
            if not fits:
                raise PayloadUndecodable(f"the options of a task make no sense: {name}")
            given[name] = as_text(item) if name == "name" else item
        return cls(**given)


#: The table: its rows by the names of the options, in the order of records.
OPTIONS: dict[str, Option] = {each.name: each.metadata["option"] for each in fields(TaskOptions)}
DEFAULT_OPTIONS = TaskOptions()
_values_of: Callable[[TaskOptions], tuple[Any, ...]] = attrgetter(*OPTIONS)
_DEFAULTS = _values_of(DEFAULT_OPTIONS)


def options_at(place: At) -> tuple[str, ...]:
    """The names of the options that may be given at a place."""
    return tuple(name for name, option in OPTIONS.items() if option.given & place)
