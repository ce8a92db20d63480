"""The options of a task, from its record and the defaults of its plan."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from ..errors import PayloadUndecodable
from .fields import NUMBER_MAX, as_text, from_json, to_json
from .layout import DEFAULT_QUEUE, parse_queue

#: The length of a W3C traceparent of version 00, such as 00-TRACE-SPAN-01.
TRACEPARENT_CHARS = 55
RUN_IF = ("all_succeeded", "all_finished", "any_failed")


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """How a task is run. Times are in seconds. With `keep` None, a result that no task takes is
    kept. `pure` promises the same result for the same arguments, and no other effect. With
    `isolation` None the worker decides. `memory_limit` is in bytes. `not_before` and `deadline` are
    wall-clock seconds since 1970."""

    name: str = ""
    attempts: int = 3
    retry_delay: float = 1.0
    timeout: float | None = None
    priority: int = 0
    keep: bool | None = None
    pure: bool = False
    queue: str = DEFAULT_QUEUE
    isolation: str | None = None
    memory_limit: int | None = None
    not_before: float | None = None
    deadline: float | None = None
    limits: tuple[str, ...] = ()
    #: `all_succeeded`, `all_finished` or `any_failed`.
    run_if: str = "all_succeeded"
    #: Names `module:class` of exceptions that are not retried.
    fatal: tuple[str, ...] = ()
    #: Names of exceptions that alone are retried, or a dumped function in base64.
    retry_if: tuple[str, ...] | str = ()
    #: The span of its author, as a W3C traceparent; empty where nobody traces.
    traceparent: str = ""

    @property
    def is_isolated(self) -> bool:
        """Whether its author wants a process of its own for it."""
        return self.isolation == "process" or (
            self.isolation is None and self.memory_limit is not None
        )

    def to_json(self) -> bytes:
        """Only what differs from the defaults: most tasks store two bytes."""
        if self is DEFAULT_OPTIONS or self == DEFAULT_OPTIONS:
            return b"{}"
        default = asdict(DEFAULT_OPTIONS)
        return to_json({key: value for key, value in asdict(self).items() if value != default[key]})

    @classmethod
    def from_json(cls, data: bytes) -> TaskOptions:
        if data == b"{}":
            return DEFAULT_OPTIONS
        return cls.from_value(from_json(data, "the options of a task"))

    @classmethod
    def from_value(cls, value: Any) -> TaskOptions:
        """Read options from parsed JSON. Raises PayloadUndecodable for values that make no
        sense."""
        if not isinstance(value, dict):
            raise PayloadUndecodable("the options of a task are not a JSON object")
        given: dict[str, Any] = {key: item for key, item in value.items() if key in _NAMES}
        for key, item in given.items():
            if isinstance(item, list):
                given[key] = tuple(item)
        options = cls(**given)
        if not options._plausible():
            # Anybody may write a record; a wrong type would break the worker far from here.
            raise PayloadUndecodable("the options of a task make no sense")
        name = as_text(options.name)
        return options if name == options.name else replace(options, name=name)

    def _plausible(self) -> bool:
        def number(value: Any, least: float) -> bool:
            # Bounded, because whole numbers beyond the range of a float break what reckons with it.
            return type(value) in (int, float) and least <= value < NUMBER_MAX

        return (
            type(self.name) is str
            and type(self.attempts) is int
            and number(self.attempts, 0)
            and type(self.priority) is int
            and number(self.priority, -NUMBER_MAX)
            and number(self.retry_delay, 0)
            and (self.timeout is None or (number(self.timeout, 0) and self.timeout > 0))
            and (self.keep is None or type(self.keep) is bool)
            and type(self.pure) is bool
            and type(self.queue) is str
            and parse_queue(self.queue) is not None
            and (self.not_before is None or number(self.not_before, 0))
            and (self.deadline is None or number(self.deadline, 0))
            and type(self.limits) is tuple
            and all(type(name) is str and parse_queue(name) for name in self.limits)
            and self.isolation in (None, "thread", "process")
            and (
                self.memory_limit is None
                or (type(self.memory_limit) is int and 0 < self.memory_limit < NUMBER_MAX)
            )
            and self.run_if in RUN_IF
            and _are_texts(self.fatal)
            and (type(self.retry_if) is str or _are_texts(self.retry_if))
            and type(self.traceparent) is str
            and len(self.traceparent) in (0, TRACEPARENT_CHARS)
        )


def _are_texts(value: Any) -> bool:
    return type(value) is tuple and all(type(each) is str for each in value)


DEFAULT_OPTIONS = TaskOptions()
_NAMES = frozenset(field.name for field in fields(TaskOptions))
