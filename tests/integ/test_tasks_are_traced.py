"""Traces have a span for each attempt, below the span of the author and linked along the edges."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import zkplan
from tests.tools.support import Here, wait_until, working
from zkplan import Client, Failure
from zkplan.integrations.opentelemetry import instrument, uninstrument
from zkplan.values.codec import VALUE
from zkplan.values.function_codec import split_name, trace_of


class Traced:
    """A provider of spans in this process, and the spans of tasks that have ended."""

    def __init__(self) -> None:
        self.provider = TracerProvider()
        self._ended = InMemorySpanExporter()
        self.provider.add_span_processor(SimpleSpanProcessor(self._ended))
        self.author = self.provider.get_tracer("author")

    def spans(self, count: int) -> list[ReadableSpan]:
        """The `count` spans of attempts, in the order in which they began. A result may be there
        before its span is exported."""

        def ended() -> list[ReadableSpan]:
            return [each for each in self._ended.get_finished_spans() if _of_zkplan(each)]

        wait_until(lambda: len(ended()) >= count, f"{count} spans")
        assert len(ended()) == count
        return sorted(ended(), key=lambda span: span.start_time or 0)


def _of_zkplan(span: ReadableSpan) -> bool:
    scope = span.instrumentation_scope
    return scope is not None and scope.name == "zkplan"


@pytest.fixture
def traced() -> Iterator[Traced]:
    made = Traced()
    instrument(made.provider)
    yield made
    uninstrument()
    made.provider.shutdown()


def ids(span: ReadableSpan) -> tuple[int, int]:
    context = span.get_span_context()
    assert context is not None
    return context.trace_id, context.span_id


def parent(span: ReadableSpan) -> tuple[int, int] | None:
    return None if span.parent is None else (span.parent.trace_id, span.parent.span_id)


def links(span: ReadableSpan) -> set[tuple[int, int]]:
    return {(each.context.trace_id, each.context.span_id) for each in span.links}


def here_now(*_: object) -> list[int]:
    """The span that the function of a task finds, and may add to."""
    current = trace.get_current_span().get_span_context()
    return [current.trace_id, current.span_id]


async def here_in_coroutine(*_: object) -> list[int]:
    return here_now()


def fail_always() -> None:
    raise ValueError("a secret")


def what_failed(failure: Failure) -> str:
    return failure.type


def kill_itself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def add_one() -> list[int]:
    zkplan.current().plan.add_task(here_now, keep=True, name="added")
    return here_now()


@pytest.mark.parametrize("serializer", ["pickle", "json"])
def test_a_diamond_is_one_trace_with_links_along_its_edges(
    here: Here, traced: Traced, serializer: str
) -> None:
    of_worker = {"allow": [f"{__name__}:*"]} if serializer == "json" else {}
    with (
        zkplan.connect(*here, serializer=serializer) as client,
        working(*here, serializer=serializer, of_worker=of_worker) as worker,
    ):
        with traced.author.start_as_current_span("author") as author:
            plan = client.create_plan("diamond")
            with plan:
                top = plan.add_task(here_now, keep=True, name="top")
                sides = [
                    plan.add_task(fn, [top], keep=True) for fn in (here_now, here_in_coroutine)
                ]
                bottom = plan.add_task(here_now, sides, queue="default", keep=True)
            found = [tuple(each.result(20)) for each in (top, *sides, bottom)]
        spans = {ids(span): span for span in traced.spans(4)}
    assert set(found) == set(spans)  # each function found its own span
    begun = author.get_span_context()
    assert {parent(span) for span in spans.values()} == {(begun.trace_id, begun.span_id)}
    above, left, right, below = (spans[each] for each in found)
    assert links(above) == set()
    assert links(left) == links(right) == {found[0]}
    assert links(below) == set(found[1:3])
    assert (above.name, above.kind) == ("run here_now", SpanKind.CONSUMER)
    assert above.status.status_code is StatusCode.UNSET
    number = int(plan.path.rpartition("-")[2])
    expected = {
        "messaging.system": "zkplan",
        "messaging.operation.type": "process",
        "messaging.operation.name": "run",
        "messaging.destination.name": "default",
        "messaging.message.id": f"{number}/{int(top.number)}",
        "messaging.client.id": worker.id,
        "code.function.name": f"{__name__}.here_now",
        "zkplan.plan": number,
        "zkplan.plan.name": "diamond",
        "zkplan.task": int(top.number),
        "zkplan.task.name": "top",
        "zkplan.attempt": 0,
        "zkplan.queue": "default",
        "zkplan.worker": worker.id,
    }
    assert dict(above.attributes or {}) == expected


def test_pure_tasks_that_run_in_one_go_are_linked_and_begin_traces_without_an_author(
    here: Here, zkplan_client: Client, traced: Traced
) -> None:
    with working(*here, threads=1):
        for _ in range(3):  # from the second chain on their usual time is known
            plan = zkplan_client.create_plan()
            with plan:
                last = None
                for _ in range(4):
                    last = plan.add_task(here_now, [last], pure=True, keep=True)
            assert last is not None
            last.result(20)
        spans = traced.spans(12)
    assert [parent(span) for span in spans] == [None] * 12
    for at in range(0, 12, 4):
        chain = spans[at : at + 4]
        assert [links(span) for span in chain] == [set(), *({ids(each)} for each in chain[:3])]


def test_a_failure_is_recorded_in_its_span_and_a_retry_gets_its_own_span(
    here: Here, zkplan_client: Client, traced: Traced
) -> None:
    plan = zkplan_client.create_plan(on_failure="cascade")
    with working(*here), plan:
        failed = plan.add_task(fail_always, attempts=2, retry_delay=0.01)
        notice = plan.add_task(what_failed, [failed], run_if="all_finished", keep=True)
        plan.flush()
        plan.mark_ready()
        assert wait_until(notice.done, "the notice")
        first, second, third = traced.spans(3)
    assert notice.result(1) == "ValueError"
    attempts = [(span.attributes or {})["zkplan.attempt"] for span in (first, second)]
    assert attempts == [0, 1]
    for span in (first, second):
        assert (span.attributes or {})["error.type"] == "ValueError"
        assert span.status.status_code is StatusCode.ERROR
        (event,) = span.events
        assert (event.name, dict(event.attributes or {})) == (
            "exception",
            {"exception.type": "ValueError"},
        )
        assert "secret" not in span.to_json()
    assert links(third) == {ids(second)}


def test_a_task_in_its_own_process_runs_inside_its_span(
    here: Here, zkplan_client: Client, traced: Traced
) -> None:
    plan = zkplan_client.create_plan(on_failure="cascade", isolation="process")
    with working(*here):
        with plan:
            adds = plan.add_task(add_one, keep=True)
            after = plan.add_task(here_now, [adds], keep=True)
        wait_until(lambda: plan.status().state == "done", "the plan is done")
        first, *others = traced.spans(3)
        found = {tuple(each.result(20)) for each in (adds, after)}
        assert found < {ids(span) for span in (first, *others)}
        assert tuple(adds.result()) == ids(first)
        added = next(
            each for each in others if (each.attributes or {})["zkplan.task.name"] == "added"
        )
        other = next(each for each in others if each is not added)
        assert (parent(added), links(other)) == (ids(first), {ids(first)})
        killed = zkplan_client.create_plan(isolation="process", attempts=1)
        with killed:
            killed.add_task(kill_itself)
        lost = traced.spans(4)[-1]
    assert (lost.attributes or {})["error.type"] == "ProcessLost"


class Broken(SpanProcessor):
    """What a user may have added to his provider."""

    def on_start(self, *_: object, **__: object) -> None:
        raise RuntimeError("no span today")


def test_a_broken_processor_of_spans_fails_no_task(
    here: Here, zkplan_client: Client, traced: Traced, caplog: pytest.LogCaptureFixture
) -> None:
    traced.provider.add_span_processor(Broken())
    plan = zkplan_client.create_plan()
    with working(*here), plan:
        task = plan.add_task(int, keep=True)
        plan.flush()
        plan.mark_ready()
        assert task.result(20) == 0
    assert "runs without a span" in caplog.text


def test_a_span_is_stored_with_values_only_if_tracing_is_on(
    here: Here, zkplan_client: Client, znodes: KazooClient, traced: Traced
) -> None:
    def run_one() -> tuple[bytes, str]:
        """Its definition, and the span that its kept result tells."""
        with traced.author.start_as_current_span("author"):
            plan = zkplan_client.create_plan()
            task = plan.add_task(int, keep=True)
        record, _ = znodes.get(task.path)
        with working(*here):
            plan.mark_ready()
            assert task.result(20) == 0
        kept, _ = znodes.get(f"{plan.path}/results/{task.number}")
        return record, trace_of(zkplan_client.codec.open(VALUE, kept)[1])

    record, told = run_one()
    (span,) = traced.spans(1)
    trace_id, span_id = ids(span)
    assert f'"traceparent":"00-{trace_id:032x}-' in record.decode(errors="replace")
    assert told.startswith(f"00-{trace_id:032x}-{span_id:016x}-")
    uninstrument()
    record, told = run_one()
    assert (b"traceparent" in record, told) == (False, "")


def test_a_forged_span_makes_no_link_and_does_not_change_the_value(
    here: Here, zkplan_client: Client, znodes: KazooClient, traced: Traced
) -> None:
    codec, plan = zkplan_client.codec, zkplan_client.create_plan()
    first = plan.add_task(int, keep=True, name="first")
    plan.add_task(int, queue="nobody")  # so that the plan goes on
    with working(*here):
        plan.mark_ready()
        assert first.result(20) == 0
        place = f"{plan.path}/results/{first.number}"
        for forged in (b"00-" + b"0" * 52, b"\xff" * 55, b"00-" + b"f" * 52):
            body = split_name(codec.open(VALUE, znodes.get(place)[0])[1])[1]
            znodes.set(place, codec.seal(VALUE, b"W" + forged + body))
            assert plan.add_task(str, [first], keep=True).result(20) == "0"
    assert [links(span) for span in traced.spans(4)[1:]] == [set()] * 3
