"""The context of a running task: what it reports, how it stops and what it logs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

import pytest

from tests.tools.support import wait_until
from zkplan.errors import NotSerialisable, TaskCancelled, TaskError
from zkplan.plan import Plan
from zkplan.protocol.records import Failure
from zkplan.protocol.requests import Applied, Check, Multi, Reason, Refused, Request, Step
from zkplan.protocol.task_options import TaskOptions
from zkplan.runtime.attempts import VanishedWorkers
from zkplan.runtime.context import LOGS_PER_ATTEMPT, Context, current
from zkplan.runtime.job import Job
from zkplan.runtime.runner import Runner
from zkplan.transport import Transport
from zkplan.transport.server_clock import CLOCK, ServerClock
from zkplan.transport.transport import start_step
from zkplan.values.codec import FAILURE

from .attempts import CODEC, THREADS, VALUES, claim, failure, job_of, note, outcome, ran


class Logbook:
    """The one thing that a running function asks of a transport: to write its log entries."""

    def __init__(self) -> None:
        self.claim_stands = self.answers_at_once = True
        self.written: list[bytes] = []
        self.answers: list[Callable[[], None]] = []

    def start(self, step: Step[Any], post: Callable[..., Any], done: Callable[..., Any]) -> None:
        start_step(step, self.submit, lambda answered: answered(), done)

    def submit(self, request: Request, done: Callable[..., Any]) -> None:
        assert isinstance(request, Multi)
        check, create = request.ops
        assert check == Check(claim().path), "a log entry is written under the claim"
        answer: Applied | Refused = Refused(0, Reason.NO_NODE, check.path)
        if self.claim_stands:
            answer = Applied([True, f"{create.path}{len(self.written):010d}"])
            self.written.append(create.data)  # type: ignore[union-attr]
        self.answers.append(partial(done, answer, None))
        if self.answers_at_once:
            self.answers.pop()()


def the_plan(job: Job) -> Plan:
    return cast("Plan", "the plan")


#: That of the test that runs. A function of a task has a copy of what it closes over.
books: list[Logbook] = []


@pytest.fixture
def logbook() -> Logbook:
    ran.clear()
    books[:] = [Logbook()]
    return books[0]


async def is_asked() -> None:
    while not books[0].answers:
        await asyncio.sleep(0)


async def answer_one() -> None:
    """As ZooKeeper does: the log entry that is under way."""
    await is_asked()
    books[0].answers.pop()()


@pytest.fixture
def runner(logbook: Logbook) -> Iterator[Runner]:
    made = Runner(
        transport=cast("Transport", logbook),
        values=VALUES,
        plan_within=the_plan,
        vanished=VanishedWorkers(),
        queues=(),
        is_busy=bool,
        isolation=THREADS,
        clock=CLOCK,
        server_clock=ServerClock(),
    )
    yield made
    made.close()


def test_an_unwanted_task_can_ask_whether_to_stop_and_be_stopped() -> None:
    job = job_of(print)
    job.options = TaskOptions(name="sum")
    context = Context(job, cast("Transport", None), CODEC, the_plan)
    seen = [context.cancelled]
    job.stop_reason = "the plan was cancelled"
    seen.append(context.cancelled)
    with pytest.raises(TaskCancelled, match="sum: the plan was cancelled"):
        context.check()
    job.stop_reason = ""
    seen.append(context.cancelled)
    assert seen == [False, True, True], "what the function was told stays told"


def test_an_unwanted_task_does_not_start(runner: Runner) -> None:
    job = job_of(print, ("it ran",))
    job.stop_reason = "the plan was cancelled"
    assert runner.run(job).stopped


def test_the_next_attempt_reads_the_log_of_an_attempt(runner: Runner, logbook: Logbook) -> None:
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


def test_logging_stops_a_task_that_has_lost_its_claim(runner: Runner, logbook: Logbook) -> None:
    logbook.claim_stands = False
    job = job_of(lambda: current().log("late"))
    assert runner.run(job).stopped
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


def test_a_coroutine_that_logs_does_not_block_other_coroutines(
    runner: Runner, logbook: Logbook
) -> None:
    """It waits for ZooKeeper, while what another one does lets ZooKeeper answer."""
    logbook.answers_at_once = False

    async def logs() -> str:
        await current().log("stored")
        return "goes on"

    async def both() -> Any:
        return (await asyncio.gather(logs(), answer_one()))[0]

    job = job_of(both)
    assert outcome(runner.run(job)) == "goes on"
    assert job.loaded.others == ["log-0000000000"], "its commit deletes it"


def test_log_entries_not_awaited_by_a_coroutine_are_stored_before_its_result(
    runner: Runner, logbook: Logbook
) -> None:
    logbook.answers_at_once = False

    async def logs() -> None:
        for number in range(2):
            current().log(number)
        note("it returns")

    def answers() -> None:
        wait_until(lambda: ran == [("it returns",)], "it returns")
        for answer in logbook.answers:
            answer()

    job = job_of(logs)
    zookeeper = threading.Thread(target=answers, daemon=True)
    zookeeper.start()
    outcome(runner.run(job))
    assert job.loaded.others == ["log-0000000000", "log-0000000001"]


@pytest.mark.parametrize("awaited", [True, False])
def test_logging_stops_a_coroutine_that_has_lost_its_claim(
    runner: Runner, logbook: Logbook, awaited: bool
) -> None:
    logbook.claim_stands = False

    async def logs() -> None:
        entry = current().log("late")
        if awaited:
            await entry
            raise AssertionError("it went on")

    assert runner.run(job_of(logs)).stopped


def test_a_coroutine_that_handles_a_refused_log_entry_does_not_fail(
    runner: Runner, logbook: Logbook
) -> None:
    logbook.claim_stands = False

    async def logs() -> str:
        with pytest.raises(TaskCancelled):
            await current().log("late")
        return "went on"

    assert outcome(runner.run(job_of(logs))) == "went on"


def test_cancelling_a_coroutine_while_it_logs_does_not_break_the_answering_thread(
    runner: Runner, logbook: Logbook
) -> None:
    logbook.answers_at_once = False

    async def logs() -> None:
        await current().log("stored")

    async def cancelled() -> None:
        task = asyncio.ensure_future(logs())
        await is_asked()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await answer_one()

    job = job_of(cancelled)
    outcome(runner.run(job))
    assert job.loaded.others == ["log-0000000000"]
