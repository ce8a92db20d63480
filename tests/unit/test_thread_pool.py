"""Slots run jobs on a fixed number of threads; no free slot stays idle, a hung one is replaced."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import cast

import pytest

from zkplan.protocol.core.load import Loaded
from zkplan.runtime import threads
from zkplan.runtime.job import Ended, Job
from zkplan.runtime.threads import ThreadPool

#: No test waits so long: it is how a hung one fails.
PATIENCE_S = 20.0


class Gates:
    """Runs a job until its gate is opened, and tells when it has begun."""

    def __init__(self) -> None:
        self.begun: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self.gates: dict[Job, threading.Event] = {}
        self.names: dict[Job, str] = {}

    def job(self) -> Job:
        job = Job(cast("Loaded", SimpleNamespace(claim=None)))
        self.gates[job] = threading.Event()
        return job

    def run(self, job: Job) -> Ended:
        self.names[job] = threading.current_thread().name
        self.begun.put(job)
        self.gates[job].wait(PATIENCE_S)
        return Ended(job, 0.0, outcome=b"done")


class Bench:
    """Slots with gates behind and a queue for what ended."""

    def __init__(self, count: int) -> None:
        self.gates = Gates()
        self.ended: queue.SimpleQueue[Ended] = queue.SimpleQueue()
        self.freed: queue.SimpleQueue[None] = queue.SimpleQueue()
        freed = partial(self.freed.put, None)
        self.slots = ThreadPool(count, self.gates.run, self.ended.put, freed)

    def put(self, count: int = 1) -> list[Job]:
        jobs = [self.gates.job() for _ in range(count)]
        for job in jobs:
            self.slots.put(job)
        return jobs

    def begun(self, count: int = 1) -> list[Job]:
        return [self.gates.begun.get(timeout=PATIENCE_S) for _ in range(count)]

    def finish(self, job: Job) -> Ended:
        self.gates.gates[job].set()
        return self.ended.get(timeout=PATIENCE_S)


@pytest.fixture
def two() -> Iterator[Bench]:
    bench = Bench(2)
    yield bench
    bench.slots.close()
    for gate in bench.gates.gates.values():
        gate.set()


def test_as_many_jobs_run_at_once_as_there_are_slots(two: Bench) -> None:
    jobs = two.put(3)
    assert set(two.begun(2)) == set(jobs[:2])
    assert two.slots.waiting() == 1
    assert set(two.slots.running) == set(jobs[:2])
    assert two.finish(jobs[0]).job is jobs[0]
    assert jobs[0] not in two.slots.running
    assert two.begun() == [jobs[2]]


def test_a_job_never_waits_behind_another_while_a_slot_is_free() -> None:
    for _ in range(100):
        bench = Bench(2)
        bench.put(2)
        bench.begun(2)  # whatever the moment at which the first thread took its job
        for gate in bench.gates.gates.values():
            gate.set()
        bench.slots.close()


def test_threads_are_created_when_needed_and_reused(two: Bench) -> None:
    names = set()
    for _ in range(5):
        (job,) = two.put()
        two.begun()
        names.add(two.gates.names[job])
        two.finish(job)
    assert names == {"zkplan-slot-1"}


def test_waiting_jobs_can_be_taken_back(two: Bench) -> None:
    jobs = two.put(5)
    running = two.begun(2)
    assert two.slots.take_waiting() == jobs[2:]
    assert two.slots.take_waiting() == []
    for job in running:
        two.finish(job)
    again = two.put(2)
    assert set(two.begun(2)) == set(again), "what was taken back takes up no slot"


def test_jobs_taken_back_do_not_create_threads(two: Bench) -> None:
    before = set(threading.enumerate())
    hung, other, *_ = two.put(5)
    two.begun(2)
    two.slots.take_waiting()
    two.slots.write_off(hung)
    two.finish(other)
    two.put()
    two.begun()
    made = set(threading.enumerate()) - before  # others may end meanwhile: those of earlier tests
    assert len(made) == 2, "the free thread takes the job"


def test_a_slot_written_off_is_replaced_at_once_and_its_late_result_dropped(
    two: Bench,
) -> None:
    hung, other, waiting = two.put(3)
    two.begun(2)
    two.slots.write_off(hung)
    assert hung.abandoned
    assert two.begun() == [waiting], "the replacement runs what waited"
    assert set(two.slots.running) == {other, waiting}
    two.gates.gates[hung].set()
    assert two.finish(other).job is other
    assert two.ended.empty()
    two.finish(waiting)
    jobs = two.put(3)
    assert set(two.begun(2)) == set(jobs[:2]), "as many as before"
    assert two.slots.waiting() == 1


def test_writing_off_a_job_that_has_just_ended_costs_no_slot(two: Bench) -> None:
    (job,) = two.put()
    two.begun()
    two.finish(job)
    two.slots.write_off(job)
    jobs = two.put(2)
    assert set(two.begun(2)) == set(jobs)


def hang(bench: Bench, count: int) -> list[Job]:
    """So many jobs run past their time, one after the other."""
    hung = bench.put(count)
    for _ in range(count):
        (job,) = bench.begun()
        bench.slots.write_off(job)
    return hung


def test_hung_threads_are_replaced_up_to_the_number_of_slots(
    two: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    before = set(threading.enumerate())
    hung = hang(two, 2)
    assert two.slots.slots == 2
    assert caplog.text == ""
    hung += hang(two, 1)
    assert two.slots.slots == 1
    running, waiting = two.put(2)
    assert two.begun() == [running], "the slot that is left runs what comes"
    assert two.slots.waiting() == 1
    two.finish(running)
    assert two.begun() == [waiting]
    two.slots.write_off(waiting)
    assert two.slots.slots == 0
    assert len(set(threading.enumerate()) - before) == 4
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2
    assert "3 functions" in told[0]
    assert "runs fewer tasks at a time" in told[0]
    assert "4 functions" in told[1]
    assert "claims and runs nothing" in told[1]


def test_a_hung_thread_that_returns_after_all_gives_its_slot_back(two: Bench) -> None:
    before = set(threading.enumerate())
    hung = hang(two, 4)
    assert two.slots.slots == 0
    (waiting,) = two.put()
    assert two.gates.begun.empty()
    two.gates.gates[hung[0]].set()
    two.freed.get(timeout=PATIENCE_S)
    assert two.begun() == [waiting], "by the very thread"
    assert two.slots.slots == 1
    two.finish(waiting)
    for job in hung[1:]:
        two.gates.gates[job].set()
        two.freed.get(timeout=PATIENCE_S)
    assert two.slots.slots == 2
    jobs = two.put(3)
    assert set(two.begun(2)) == set(jobs[:2])
    assert len(set(threading.enumerate()) - before) == 2


def test_closed_slots_end_their_threads_after_the_jobs_they_have() -> None:
    before = set(threading.enumerate())
    bench = Bench(1)
    first, second = bench.put(2)
    bench.begun()
    bench.slots.close()
    (thread,) = set(threading.enumerate()) - before
    bench.finish(first)
    assert bench.begun() == [second]
    bench.finish(second)
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_a_thread_that_ends_before_it_has_begun_is_not_waited_for(
    two: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for want of memory: the worker would neither work nor end, and its session would go on."""
    monkeypatch.setattr(threads, "_PART_S", 0.01)
    monkeypatch.setattr(threading.Thread, "_bootstrap", lambda thread: None)
    with pytest.raises(MemoryError, match="never began"):
        two.put()
