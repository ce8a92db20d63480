"""What is to be done with a claim whose attempt has ended: decided, and not done."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import pytest

from zkplan.protocol.core.commit_part import Part
from zkplan.protocol.core.edges import Edge
from zkplan.protocol.core.end_claims import fail_again, fail_for_good
from zkplan.protocol.records import Dead, Failure, PlanRecord
from zkplan.protocol.task_options import TaskOptions
from zkplan.runtime.attempt_end import End, HandBack, settle
from zkplan.runtime.job import Ended, Job
from zkplan.values.codec import FAILURE

from .attempts import CODEC, PATHS, job_of, note

ERROR = Failure("ValueError", "no", "the traceback", "worker-1", 0, 5.0)


def settled(job: Job, **end: Any) -> Any:
    return settle(Ended(job, **end), CODEC, PATHS)


def failing(a: int = 0, *, cascade: bool = False, **options: Any) -> Job:
    """A task that feeds one other."""
    job = job_of(note, a=a)
    job.options = TaskOptions(**options)
    job.plan = PlanRecord("plan", "uid", 0.0, on_failure="cascade" if cascade else "hold")
    job.loaded.edges = [("prov-0000000001", Edge("0000000013", "0000000000", 1, "5000"))]
    return job


def step_of(found: Any) -> tuple[Any, tuple[Any, ...]]:
    """The step that ends the claim, and what it is given besides the claim."""
    assert type(found) is End
    assert type(found.make) is partial
    return found.make.func, found.make.args[1:]


def test_a_result_is_committed_with_what_the_function_added() -> None:
    job = failing(keep=True)
    part = settled(job, outcome=b"sealed")
    assert type(part) is Part
    assert (part.loaded, part.outcome, part.keep) == (job.loaded, b"sealed", True)
    assert part.adds is job.adds


def test_a_failure_with_attempts_left_and_no_delay_is_tried_again_at_once() -> None:
    step, (sealed, due_ms, delayed, delay_ms) = step_of(
        settled(failing(retry_delay=0.0), failure=ERROR)
    )
    assert step is fail_again
    assert Failure.from_bytes(CODEC.open(FAILURE, sealed)[1]) == ERROR
    assert (due_ms, delayed, delay_ms) == (None, PATHS.delayed, 0)


def test_a_failure_waits_for_its_delay_longer_each_time() -> None:
    for a in (0, 1, 2):
        job, before = failing(a, attempts=5, retry_delay=10.0), time.time()
        _, (_, due_ms, _, delay_ms) = step_of(settled(job, failure=ERROR))
        assert 7000 * 2**a <= delay_ms <= 10_000 * 2**a
        assert before * 1000 + delay_ms - 1 <= due_ms <= time.time() * 1000 + delay_ms + 1


@pytest.mark.parametrize(
    ("job", "final", "used_up"),
    [(failing(2, attempts=3), False, 3), (failing(0, attempts=3), True, 1)],
    ids=["out of attempts", "final"],
)
def test_a_failure_for_good_holds_its_dependents(job: Job, final: bool, used_up: int) -> None:
    step, (sealed, dead) = step_of(settled(job, failure=ERROR, final=final))
    assert step is fail_for_good
    assert Failure.from_bytes(CODEC.open(FAILURE, sealed)[1]) == ERROR
    assert dead == Dead("5000", 0, used_up, job.name, "ValueError: no", "worker-1")


def test_a_failure_for_good_goes_down_the_edges_where_the_plan_says_so() -> None:
    part = settled(failing(2, cascade=True), failure=ERROR)
    assert type(part) is Part
    kind, body = CODEC.open(FAILURE, part.outcome)
    assert (kind, Failure.from_bytes(body)) == (FAILURE, ERROR)
    assert Dead.from_bytes(part.dead).error == "ValueError: no"


def test_an_outcome_that_is_partly_delivered_is_not_worded_anew() -> None:
    job = failing(2, cascade=True)
    job.loaded.result = b"what the first dependents got"
    assert settled(job, failure=ERROR).outcome == b"what the first dependents got"


def test_what_is_not_to_blame_costs_no_attempt() -> None:
    job = failing(2)
    assert settled(job, stopped=True) == HandBack(job)
    assert settled(job, cannot_run="no module") == HandBack(job, cannot_run="no module")
    assert settled(job, server_full=True) == HandBack(job, no_room=True)


def test_a_claim_that_is_gone_is_dropped() -> None:
    assert settled(failing(), fenced=True) is None
