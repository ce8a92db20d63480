"""Whether this process traces tasks, and with what. An integration switches it on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class TaskSpan(Protocol):
    """The span of a running attempt.

    `traceparent` goes down the edges of the task; it is empty if the span is not recorded.
    `in_process` is the MODULE:NAME that the process of a task calls, and its argument: it makes a
    SpanInProcess. `end` gets the `Ended` of the attempt, and never raises.
    """

    @property
    def traceparent(self) -> str: ...
    @property
    def in_process(self) -> tuple[str, str]: ...
    def end(self, ended: Any) -> None: ...


class SpanInProcess(Protocol):
    """The span of an attempt in its own process, where it is current.

    `end` hands over the spans, since the process may end afterwards.
    """

    def end(self) -> None: ...


class Tracing(Protocol):
    """What traces tasks: `zkplan.integrations.opentelemetry`. Thread-safe; never raises."""

    def here(self) -> str:
        """Return the current span as a W3C traceparent, or an empty text."""
        ...

    def start(self, job: Any, bodies: Sequence[bytes]) -> TaskSpan | None:
        """Start the span of a `Job`, and make it current in this thread. None if that fails.

        `bodies` are the contents of the envelopes of its arguments.
        """
        ...


#: None: nothing is traced, and OpenTelemetry is not imported.
active: Tracing | None = None


def switch(tracing: Tracing | None) -> None:
    """Trace the tasks of this process from now on; None: stop."""
    global active
    active = tracing


def author() -> str:
    """Return the traceparent of the code that adds tasks here; empty where nothing is traced."""
    return "" if active is None else active.here()
