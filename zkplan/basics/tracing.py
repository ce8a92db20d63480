"""Tracing of tasks in this process: off until an integration switches it on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class TaskSpan(Protocol):
    """The span of a running attempt.

    `traceparent` goes down the edges of the task; it is empty if the span is not recorded.
    `in_process` is the MODULE:NAME of a function and an argument for it, with which the process of
    a task makes its SpanInProcess. `end` gets the `Ended` of the attempt, and never raises.
    """

    @property
    def traceparent(self) -> str: ...
    @property
    def in_process(self) -> tuple[str, str]: ...
    def end(self, ended: Any) -> None: ...


class SpanInProcess(Protocol):
    """The span of an attempt that runs in a process of its own, where it is the current span.

    `end` exports the spans at once, since the process may end afterwards.
    """

    def end(self) -> None: ...


class Tracing(Protocol):
    """A tracer of tasks, such as `zkplan.integrations.opentelemetry`. Thread-safe; never raises."""

    def here(self) -> str:
        """Return the current span as a W3C traceparent, or an empty text."""
        ...

    def start(self, job: Any, bodies: Sequence[bytes]) -> TaskSpan | None:
        """Start the span of a `Job`, and make it current in this thread. Returns None on failure.

        `bodies` are the contents of the envelopes of the job's arguments.
        """
        ...


#: The tracer of this process. With None nothing is traced, and OpenTelemetry is not imported.
active: Tracing | None = None


def switch(tracing: Tracing | None) -> None:
    """Trace the tasks of this process with `tracing` from now on; None stops tracing."""
    global active
    active = tracing


def author() -> str:
    """Return the traceparent of the code that adds tasks here; empty if nothing is traced."""
    return "" if active is None else active.here()
