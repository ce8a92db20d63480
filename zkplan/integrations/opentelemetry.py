"""Trace each attempt of a task as an OpenTelemetry span."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from importlib.metadata import entry_points
from typing import Any

from ..basics import __version__, tracing
from ..basics.log import get_logger
from ..errors import PayloadUndecodable, ZkplanError
from ..protocol.records import Failure
from ..runtime.attempts import MESSAGES, for_log
from ..runtime.job import Ended, Job
from ..values.codec import FAILED
from ..values.function_codec import describe_function, name_of_function, trace_of
from ..values.functions_by_name import EACH, kind_of_function

try:
    from opentelemetry import context as contexts
    from opentelemetry import trace
    from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as missing:
    raise ZkplanError(
        "traces need the package opentelemetry-api, which is not installed here: "
        "pip install 'zkplan[opentelemetry]'"
    ) from missing

logger = get_logger("zkplan.tracing")
_W3C = TraceContextTextMapPropagator()
#: The most links of one span. The SDK keeps 128 unless OTEL_SPAN_LINK_COUNT_LIMIT allows more.
LINKS_MAX = 1000
#: How many milliseconds the result of a task in a process of its own waits for its spans' export.
FLUSH_MS = 5000
#: Whether `set_up` has set up the provider.
_has_set_up = False


def instrument(tracer_provider: trace.TracerProvider | None = None) -> None:
    """Trace the tasks of this process from now on.

    Each attempt that workers of this process run gets a span, and tasks that are added here carry
    the current span to the workers. The default is the global provider, even if it is set later.
    Another call replaces the provider; `uninstrument` turns tracing off.
    """
    tracing.switch(_OpenTelemetry(tracer_provider))


def uninstrument() -> None:
    """Stop tracing. Spans that have begun end as usual."""
    tracing.switch(None)


def is_set_up() -> bool:
    """Whether this process has a provider; without one, spans go nowhere."""
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def set_up() -> bool:
    """Set up a provider from the variables OTEL_…, if this process has none yet.

    This does the same as `opentelemetry-instrument`, with the packages that are installed for it,
    such as opentelemetry-distro. Returns whether the process has a provider now.
    """
    global _has_set_up
    if not is_set_up():
        for group in ("opentelemetry_distro", "opentelemetry_configurator"):
            for entry in entry_points(group=group):
                entry.load()().configure()
        _has_set_up = is_set_up()
    return is_set_up()


def in_set_up_process(traceparent: str) -> InProcess:
    """Make an InProcess for a worker that has called `set_up`: this process calls it first."""
    set_up()
    return InProcess(traceparent)


class InProcess:
    """See `zkplan.basics.tracing.SpanInProcess`. The worker begins and ends the span of the
    attempt. Spans and tasks that the function makes in its process are children of that span."""

    def __init__(self, traceparent: str) -> None:
        if tracing.active is None:
            instrument()
        self._token = contexts.attach(_W3C.extract({"traceparent": traceparent}))

    def end(self) -> None:
        """Export the spans now, because the process may end at any moment from here on."""
        contexts.detach(self._token)
        flush = getattr(trace.get_tracer_provider(), "force_flush", None)
        try:
            if flush is not None:
                flush(FLUSH_MS)
        except Exception:  # from the user's exporter, which must not cost the result
            logger.exception("spans of a task are lost")


class _OpenTelemetry:
    """See `zkplan.basics.tracing.Tracing`."""

    def __init__(self, provider: trace.TracerProvider | None) -> None:
        self._tracer = trace.get_tracer("zkplan", __version__, provider)

    def here(self) -> str:
        return _traceparent(contexts.get_current())

    def start(self, job: Job, bodies: Sequence[bytes]) -> _Attempt | None:
        try:
            function = name_of_function(job.function)
            parent = contexts.Context()
            if job.options.traceparent:
                parent = _W3C.extract({"traceparent": job.options.traceparent}, parent)
            span = self._tracer.start_span(
                f"run {function}".strip(),
                parent,
                SpanKind.CONSUMER,
                _attributes(job),
                [*_links(bodies)],
            )
            return _Attempt(job, span)
        except Exception:  # from the user's processor or sampler, which must not fail the task
            logger.exception("%s runs without a span", job.name)
            return None


class _Attempt:
    """See `zkplan.basics.tracing.TaskSpan`."""

    def __init__(self, job: Job, span: trace.Span) -> None:
        self._job, self._span = job, span
        here = trace.set_span_in_context(span)
        self._token = contexts.attach(here)
        traceparent = _traceparent(here)
        self.traceparent = traceparent if span.is_recording() else ""
        make = in_set_up_process if _has_set_up else InProcess
        self.in_process = f"{__name__}:{make.__name__}", traceparent

    def end(self, ended: Ended) -> None:
        contexts.detach(self._token)
        try:
            self._describe(ended)
            self._span.end()
        except Exception:  # as in `start`
            logger.exception("the span of %s is lost", self._job.name)

    def _describe(self, ended: Ended) -> None:
        job, failure = self._job, ended.failure
        if failure is not None:
            event = {"exception.type": failure.kind}
            if MESSAGES.isEnabledFor(logging.INFO):  # ADR 22: messages may hold arguments
                event["exception.message"] = failure.text
                event["exception.stacktrace"] = failure.traceback
            self._span.add_event("exception", event)
            self._fail(failure.kind, for_log(failure, job, ended.shown))
        elif job.abandoned:
            self._fail("abandoned", "the attempt ended after its worker had given it up")
        elif not ended.outcome:
            kind = _without_outcome(ended)
            self._span.set_attribute("zkplan.ended", kind)
            if ended.cannot_run:
                self._fail(kind, ended.shown)

    def _fail(self, kind: str, why: str) -> None:
        self._span.set_attribute("error.type", kind)
        self._span.set_status(Status(StatusCode.ERROR, why))


def _without_outcome(ended: Ended) -> str:
    """Why an attempt has neither a result nor a failure. Another attempt follows."""
    for name in ("cannot_run", "server_full", "store_away", "needs_claim", "fenced", "not_before"):
        if getattr(ended, name):
            return name
    return "stopped"


def _traceparent(context: contexts.Context) -> str:
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, context)
    return carrier.get("traceparent", "")


def _span_context(traceparent: str) -> SpanContext:
    context = _W3C.extract({"traceparent": traceparent}, contexts.Context())
    return trace.get_current_span(context).get_span_context()


def _links(bodies: Sequence[bytes]) -> Iterator[Link]:
    """A link to the attempt that made each argument, if that was traced."""
    for body in bodies[:LINKS_MAX]:
        found = _failed(body) if body[:1] == FAILED else trace_of(body)
        # Anyone with write access to the tree can change the context, so it may be invalid.
        if found and (of := _span_context(found)).is_valid:
            yield Link(of)


def _failed(body: bytes) -> str:
    try:
        return Failure.from_bytes(body[1:]).traceparent
    except PayloadUndecodable:
        return ""  # reading the argument reports it


def _attributes(job: Job) -> dict[str, Any]:
    """Attributes by the semantic conventions of messaging and code; others begin with `zkplan.`."""
    claim, options = job.claim, job.options
    plan, task = int(claim.plan), int(claim.task)
    found = {
        "messaging.system": "zkplan",
        "messaging.operation.type": "process",
        "messaging.operation.name": "run",
        "messaging.destination.name": options.queue,
        "messaging.message.id": f"{plan}/{task}",
        "messaging.client.id": job.worker,
        "zkplan.plan": plan,
        "zkplan.task": task,
        "zkplan.task.name": job.name,
        "zkplan.attempt": claim.n,
        "zkplan.queue": options.queue,
        "zkplan.worker": job.worker,
    }
    if job.plan is not None and job.plan.name:
        found["zkplan.plan.name"] = job.plan.name
    if kind := kind_of_function(job.function):
        found["zkplan.kind"] = kind
    else:
        name = describe_function(job.function)
        found["code.function.name"] = name.removesuffix(" (by value)").removesuffix(EACH.decode())
    return found
