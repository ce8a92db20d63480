"""Running one claimed task: what its outcome holds, and when it is not run."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable

import pytest

from zkplan.errors import PayloadUndecodable
from zkplan.protocol.core import edges
from zkplan.protocol.core.commit_part import Part
from zkplan.protocol.records import Failure, PlanRecord
from zkplan.protocol.task_options import TaskOptions
from zkplan.runtime.attempt_end import settle, settle_failure
from zkplan.runtime.attempts import LOSSES_MAX, time_out
from zkplan.runtime.job import Ended, Job
from zkplan.runtime.runner import Runner
from zkplan.values import codec as codecs
from zkplan.values import function_codec as functions
from zkplan.values.codec import FAILURE, LOG, VALUE

from .attempts import (
    CODEC,
    PATHS,
    SOURCE,
    TASK_NUMBER,
    Edge,
    failure,
    job_of,
    note,
    one_runner,
    outcome,
    ran,
    value,
)
from .hostile_errors import HOSTILE, Mute, from_a_closed_archive, parser_error

runner = pytest.fixture(one_runner)


def add(*numbers: int, plus: int = 0) -> int:
    return sum(numbers) + plus


@pytest.mark.parametrize(
    ("keep", "has_edges", "is_named"),
    [
        (None, False, True),
        (None, True, False),
        (False, False, False),
        (True, False, True),
        (True, True, True),
    ],
)
def test_a_kept_result_carries_its_task_name_and_other_results_no_extra_byte(
    keep: bool | None, has_edges: bool, is_named: bool, runner: Runner
) -> None:
    job = job_of(add, (1, 2), options=TaskOptions(name="sum", keep=keep))
    if has_edges:
        job.loaded.edges.append(("prov-0000000000", edges.Edge(TASK_NUMBER, "0" * 10, 1, "5000")))
    ended = runner.run(job)
    assert len(ended.outcome) - len(CODEC.seal_value(3)) == (3 + len("sum") if is_named else 0)
    assert functions.split_name(CODEC.open(VALUE, ended.outcome)[1])[0] == (
        "sum" if is_named else ""
    )
    assert outcome(ended) == 3


@pytest.mark.parametrize(
    "kind", [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError]
)
def test_a_function_that_exits_the_process_ends_only_its_attempt(
    runner: Runner, kind: type[BaseException]
) -> None:
    def leave() -> None:
        raise kind

    assert failure(runner.run(job_of(leave))).kind == kind.__qualname__


@pytest.mark.parametrize(
    ("make", "kind", "told"),
    HOSTILE,
)
@pytest.mark.parametrize("retry_if", [None, "builtins:KeyError"])
def test_an_unformattable_error_ends_only_its_attempt_and_shows_the_rest(
    runner: Runner,
    make: Callable[[], BaseException],
    kind: str,
    told: str,
    retry_if: str | None,
) -> None:
    def fail() -> None:
        raise make()

    options = TaskOptions(retry_if=(retry_if,) if retry_if else ())
    found = failure(ended := runner.run(job_of(fail, options=options)))
    assert kind in found.kind
    assert told in found.message + found.traceback
    assert "in fail" in found.traceback
    settle(ended, CODEC, PATHS)


def test_a_traceback_without_readable_source_names_its_lines(runner: Runner) -> None:
    found = failure(runner.run(job_of(from_a_closed_archive)))
    assert (found.kind, found.message) == ("ValueError", "no page")
    assert 'File "page.py", line 2, in render' in found.traceback
    assert "cannot format this traceback: RuntimeError" in found.traceback


def test_an_import_error_that_cannot_be_shown_leaves_the_task_to_others(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: str) -> None:
        raise Mute

    job = job_of(parser_error)
    monkeypatch.setattr(importlib, "import_module", refuse)
    assert "parser_error cannot be imported: Mute" in runner.run(job).cannot_run


def test_a_huge_message_and_a_deep_traceback_are_shortened(runner: Runner) -> None:
    def deep(level: int) -> None:
        if level == 0:
            raise ValueError("x" * 1_000_000)
        deep(level - 1)

    found = failure(runner.run(job_of(deep, (200,))))
    assert len(found.to_bytes()) < 64 * 1024
    assert found.message.startswith("xxx")


def test_a_result_that_cannot_be_serialised_is_a_failure(runner: Runner) -> None:
    ended = runner.run(job_of(lambda: (number for number in range(3))))
    assert not ended.final, "another attempt may have another result"
    found = failure(ended)
    assert found.kind == "NotSerialisable"
    assert "generator" in found.message


def test_a_cascaded_failure_stays_small_at_any_depth_and_names_its_root(
    runner: Runner,
) -> None:
    text = "x" * 5000
    found = Failure("ValueError", text, text, "worker-0", 1, 5.0, text.encode())
    sizes = []
    for _ in range(50):
        sealed = CODEC.seal(FAILURE, found.to_bytes())
        found = failure(runner.run(job_of(note, (Edge(0),), (sealed,))))
        sizes.append(len(found.to_bytes()))
    assert max(sizes) == sizes[-1] == sizes[0] + 1 < 4096, "its depth has one digit more"
    assert (found.kind, found.root, found.depth) == ("UpstreamFailed", SOURCE, 50)
    assert found.summary.startswith(
        f"UpstreamFailed: task {int(SOURCE)}, 50 tasks before it, failed: ValueError: xxx"
    )
    assert Failure.from_bytes(found.to_bytes()) == found
    assert ran == []


def test_a_result_decided_by_an_earlier_claim_is_delivered_without_a_run(runner: Runner) -> None:
    job = job_of(note)
    job.loaded.result = value("decided")
    assert outcome(runner.run(job)) == "decided"
    job.loaded.result = CODEC.seal(FAILURE, Failure("E", "m", "", "w", 0, 0.0).to_bytes())
    ended = runner.run(job)
    assert failure(ended).summary == "E: m"
    assert ended.final
    assert ran == []


def test_a_partly_delivered_outcome_is_not_replaced_by_a_later_failure() -> None:
    job = job_of(note)
    job.loaded.edges = [("prov-0000000001", edges.Edge("0000000013", "0000000000", 1, "5000"))]
    job.plan = PlanRecord("plan", "uid", 0.0, on_failure="cascade")
    job.loaded.result = b"what the first dependents got"
    failed = Ended(job, failure=Failure("E", "m", "", "w", 0, 0.0), final=True)
    part = settle(failed, CODEC, PATHS)
    assert isinstance(part, Part)
    assert part.outcome == b"what the first dependents got"


@pytest.mark.parametrize("damage", ["", "dep-0000000001 is still missing"])
def test_a_task_with_a_missing_argument_is_not_run(runner: Runner, damage: str) -> None:
    job = job_of(note, (Edge(0), Edge(1)), (value(1), value(2)))
    job.loaded.arguments.pop()
    job.loaded.damage = damage
    found = failure(runner.run(job))
    assert found.kind == "InvariantViolated"
    assert job.claim.task_path in found.message
    assert damage in found.message
    assert ran == []


def test_a_task_out_of_attempts_is_not_run_and_keeps_its_last_failure(runner: Runner) -> None:
    job = job_of(note, options=TaskOptions(attempts=2), a=2)
    first = Failure("ValueError", "first", "", "w", 1, 0.0)
    last = Failure("ValueError", "last", "", "w", 2, 0.0)
    job.loaded.logs = [
        CODEC.seal(FAILURE, first.to_bytes()),
        CODEC.seal(FAILURE, last.to_bytes()),
        CODEC.seal(LOG, codecs.dump("a checkpoint")),
    ]
    ended = runner.run(job)
    assert failure(ended) == last
    assert ended.final
    assert ran == []


@pytest.mark.parametrize(
    ("attempts", "told"),
    [(3, "3 workers vanished while they ran it"), (1, "a worker vanished while it ran it")],
)
def test_a_task_that_killed_all_its_workers_says_so(
    attempts: int, told: str, runner: Runner
) -> None:
    ended = runner.run(job_of(note, options=TaskOptions(attempts=attempts), a=attempts))
    assert failure(ended).kind == "WorkerLost"
    assert failure(ended).message.startswith(told)
    assert "held the interpreter lock longer than the session time-out" in failure(ended).message
    assert failure(ended).worker == "", "the worker that says so did not vanish"
    assert ended.final


def test_the_worker_that_lost_a_task_is_named(runner: Runner) -> None:
    job = job_of(note, options=TaskOptions(attempts=2), a=2)
    job.loaded.claim.n = 3
    runner.vanished.note(job.claim.task_path, 1, "earlier")
    assert failure(runner.run(job)).worker == "", "who was lost with the claim before is not known"
    runner.vanished.note(job.claim.task_path, 3, "vanished")
    found = failure(runner.run(job))
    assert (found.worker, found.n) == ("vanished", 2)
    assert "2 workers vanished while they ran it; the last one was vanished (" in found.message


def test_a_bounded_number_of_losses_is_remembered(runner: Runner) -> None:
    job = job_of(note)
    runner.vanished.note(job.claim.task_path, 0, "vanished")
    for number in range(LOSSES_MAX):
        assert runner.vanished.before(job.claim) == "vanished"
        runner.vanished.note(f"/another-{number}", 0, "vanished")
    assert runner.vanished.before(job.claim) == ""


def test_losses_are_forgotten_with_their_plan(runner: Runner) -> None:
    job = job_of(note)
    runner.vanished.note(job.claim.task_path, 0, "vanished")
    runner.vanished.keep_only({job.claim.plan_path, "/another"})
    assert runner.vanished.before(job.claim) == "vanished"
    runner.vanished.keep_only({"/another"})
    assert runner.vanished.before(job.claim) == ""


def test_a_function_that_raises_payload_undecodable_itself_has_failed(runner: Runner) -> None:
    """Otherwise the task would be left to other workers for ever, without using an attempt."""

    def ask_another_task() -> None:
        raise PayloadUndecodable("the result of some other task")

    found = failure(runner.run(job_of(ask_another_task)))
    assert found.summary == "PayloadUndecodable: the result of some other task"


running: list[Job] = []


def be_written_off() -> None:
    """What the loop's thread does meanwhile when the time of the task is over."""
    (job,) = running
    job.add_output("my last words")
    job.abandoned = True
    settle_failure(job, time_out(job), CODEC, PATHS)


def test_the_late_end_of_a_written_off_job_does_not_change_its_history(
    runner: Runner,
) -> None:
    runner.output_max = 1000
    running[:] = [job_of(be_written_off, options=TaskOptions(timeout=1.0))]
    ended = runner.run(running[0])
    fact = running[0].claim.fact
    assert (fact.error, fact.ran_ms) == ("TimeoutError", -1)
    assert fact.printed is not None
    assert fact.printed.text == "my last words"
    settle(ended, CODEC, PATHS)  # had it ended in time
    assert running[0].claim.fact.ran_ms >= 0
