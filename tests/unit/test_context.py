"""The context of a running task: what it tells, how it stops, what it logs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from zkplan.errors import NotSerialisable, TaskCancelled, TaskError, ZkplanError
from zkplan.plan import Plan
from zkplan.protocol.records import Failure, TaskOptions
from zkplan.protocol.requests import Applied, Check, Multi, Reason, Refused, Step
from zkplan.runtime.execution import LOGS_PER_ATTEMPT, Context, Runner, current
from zkplan.serialization.codec import FAILURE
from zkplan.transport import Transport

from .attempts import CODEC, claim, failure, job_of, outcome


class Logbook:
    """The one thing that a running function asks of a transport: to write its log entries."""

    def __init__(self) -> None:
        self.claim_stands = True
        self.written: list[bytes] = []

    def run(self, step: Step[Any], for_ever: bool = False) -> Any:
        request = next(step)
        assert isinstance(request, Multi)
        check, create = request.ops
        assert check == Check(claim().path), "a log entry is written under the claim"
        answer: Applied | Refused = Refused(0, Reason.NO_NODE, check.path)
        if self.claim_stands:
            answer = Applied([True, f"{create.path}{len(self.written):010d}"])
            self.written.append(create.data)  # type: ignore[union-attr]
        try:
            step.send(answer)
        except StopIteration as end:
            return end.value
        raise AssertionError("a log entry takes one transaction")


@pytest.fixture
def logbook() -> Logbook:
    return Logbook()


@pytest.fixture
def runner(logbook: Logbook) -> Iterator[Runner]:
    made = Runner(cast("Transport", logbook), CODEC, lambda job: cast("Plan", "the plan"))
    yield made
    made.close()


def test_the_context_tells_the_attempt_the_worker_and_the_plan(runner: Runner) -> None:
    def look_around() -> list[Any]:
        here = current()
        return [here.attempt, here.worker, here.plan, here.name, here.cancelled]

    found = outcome(runner.run(job_of(look_around)))
    assert found == [0, "worker-1", "the plan", look_around.__qualname__, False]


def test_the_name_in_the_context_is_the_authors(runner: Runner) -> None:
    job = job_of(lambda: current().name, options=TaskOptions(name="sum"))
    assert outcome(runner.run(job)) == "sum"


def test_there_is_no_context_outside_of_a_task(runner: Runner) -> None:
    with pytest.raises(ZkplanError, match="only inside a task"):
        current()
    outcome(runner.run(job_of(lambda: None)))
    with pytest.raises(ZkplanError, match="only inside a task"):
        current()


def test_a_task_that_is_not_wanted_any_more_can_ask_and_be_stopped(runner: Runner) -> None:
    job = job_of(print)
    job.options = TaskOptions(name="sum")
    context = Context(job, runner)
    seen = [context.cancelled]
    job.stop_reason = "the plan was cancelled"
    seen.append(context.cancelled)
    with pytest.raises(TaskCancelled, match="sum: the plan was cancelled"):
        context.check()
    job.stop_reason = ""
    seen.append(context.cancelled)
    assert seen == [False, True, True], "what the function was told stays told"


def test_a_task_that_is_not_wanted_any_more_does_not_start(runner: Runner) -> None:
    job = job_of(print, ("it ran",))
    job.stop_reason = "the plan was cancelled"
    assert runner.run(job).gave_up


def test_what_an_attempt_logs_the_next_one_reads(runner: Runner, logbook: Logbook) -> None:
    def work() -> None:
        for step in (1, 2):
            current().log({"step": step})

    first = job_of(work)
    outcome(runner.run(first))
    assert first.loaded.others == ["log-0000000000", "log-0000000001"], "its commit deletes them"
    second = job_of(lambda: current().logs)
    failed = CODEC.seal(FAILURE, Failure("E", "m", "", "w", 1, 0.0).to_bytes())
    second.loaded.logs = [logbook.written[0], failed, b"damaged", logbook.written[1]]
    assert outcome(runner.run(second)) == [{"step": 1}, {"step": 2}]


def test_a_log_of_a_task_whose_claim_is_gone_stops_it(runner: Runner, logbook: Logbook) -> None:
    logbook.claim_stands = False
    job = job_of(lambda: current().log("late"))
    assert runner.run(job).gave_up
    assert job.stop_reason == "its claim was released"


def test_the_log_entries_of_an_attempt_are_bounded(runner: Runner, logbook: Logbook) -> None:
    job = job_of(lambda: current().log("one more"))
    job.log_count = LOGS_PER_ATTEMPT
    found = failure(runner.run(job))
    assert found.kind == TaskError.__qualname__
    assert str(LOGS_PER_ATTEMPT) in found.message
    assert logbook.written == []


def test_a_log_entry_that_cannot_be_serialised_is_refused(runner: Runner, logbook: Logbook) -> None:
    found = failure(runner.run(job_of(lambda: current().log(row for row in ""))))
    assert found.kind == NotSerialisable.__qualname__
    assert logbook.written == []
