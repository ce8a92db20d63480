"""Say whether tasks are traced here. An integration switches it on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class TaskSpan(Protocol):
    """The span of an attempt that runs."""

    @property
    def traceparent(self) -> str:
        """What goes down its edges; empty where the span is not recorded."""
        ...

    @property
    def in_process(self) -> tuple[str, str]:
        """What the process of a task calls: MODULE:NAME, and its argument. See `SpanInProcess`."""
        ...

    def end(self, ended: Any) -> None:
        """End the span: so the attempt (an `Ended`) ended. Never raises."""
        ...


class SpanInProcess(Protocol):
    """The span of an attempt in its own process: current there from its making on."""

    def end(self) -> None:
        """The function has ended: hand over its spans, since the process may end now."""
        ...


class Tracing(Protocol):
    """What `zkplan.integrations.opentelemetry` puts here. Thread-safe."""

    def here(self) -> str:
        """The span that is current here, as a W3C traceparent; empty without one. Never raises."""
        ...

    def start(self, job: Any, bodies: Sequence[bytes]) -> TaskSpan | None:
        """Start the span of a `Job` with these arguments, as their envelopes held them, and make it
        current in this thread. None where that went wrong: never raises."""
        ...


#: None: nothing is traced, and nobody has imported OpenTelemetry for it.
active: Tracing | None = None


def switch(tracing: Tracing | None) -> None:
    """From now on tasks are traced so in this process; None: not at all."""
    global active
    active = tracing


def author() -> str:
    """The traceparent of who adds tasks here; empty where nothing is traced."""
    return "" if active is None else active.here()
