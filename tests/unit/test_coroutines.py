"""Coroutines run in one event loop until they are done, cancelled or abandoned."""

from __future__ import annotations

import asyncio
import gc
import queue
import re
import sys
import threading
from collections.abc import Callable
from concurrent import futures
from typing import Any

import pytest

from tests.tools.support import WAIT_S, wait_until
from zkplan.runtime.context import current
from zkplan.runtime.job import Ended, Job
from zkplan.runtime.runner import Runner
from zkplan.runtime.threads import EventLoop

from .attempts import failure, job_of, note, one_runner, outcome, ran

runner = pytest.fixture(one_runner)


def on_a_slot(runner: Runner, job: Job) -> Callable[[], Ended]:
    """Run it on a thread, as a worker does; what is given waits for its end."""
    found: queue.SimpleQueue[Ended] = queue.SimpleQueue()
    threading.Thread(target=lambda: found.put(runner.run(job)), daemon=True).start()
    return lambda: found.get(timeout=WAIT_S)


def test_an_error_in_a_coroutine_keeps_its_message_and_source_lines(
    runner: Runner,
) -> None:
    """Also a cancellation that comes from inside: who reads it looks for the await."""

    async def loads_rates(error: str) -> None:
        reply = asyncio.get_running_loop().create_future()
        if error == "cancelled":
            reply.cancel("the pool was closed")
        else:
            reply.set_exception(LookupError("no rate"))
        await reply

    for error, summary in (
        ("cancelled", "CancelledError: the pool was closed"),
        ("failed", "LookupError: no rate"),
    ):
        found = failure(runner.run(job_of(loads_rates, (error,))))
        assert found.summary == summary
        first, *_ = re.findall(r'File "(.+)", line', found.traceback)
        assert first == __file__
        assert "await reply" in found.traceback


def test_a_coroutine_works_after_an_earlier_one_whose_thread_did_not_start(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would wait for ever, on an event loop that nobody runs."""

    async def one() -> int:
        return 1

    def no_thread(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as now:
        now.setattr(threading.Thread, "start", no_thread)
        assert failure(runner.run(job_of(one))).kind == "RuntimeError"
    assert outcome(runner.run(job_of(one))) == 1


def test_a_coroutine_whose_job_is_written_off_while_starting_is_cancelled(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker had nothing to cancel yet, and would not come back to it."""

    async def stays() -> None:
        await asyncio.Event().wait()

    job = job_of(stays)

    def written_off() -> None:
        job.stop_reason = "its time is over"
        job.abandoned = True
        job.cancel()

    while_it_is_started(monkeypatch, written_off)
    assert failure(on_a_slot(runner, job)()).kind == "CancelledError"


def test_a_coroutine_cancelled_before_its_first_step_leaves_no_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unraisable: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    loop, gate, begun = EventLoop(), threading.Event(), threading.Event()

    async def blocks() -> None:
        begun.set()
        gate.wait(WAIT_S)

    async def never() -> None:
        raise AssertionError("it was cancelled before")

    loop.start(blocks())
    assert begun.wait(WAIT_S)
    second = loop.start(never())
    loop.close()  # the loop has taken the second one when it stops, and has not begun it
    gate.set()
    assert futures.wait([second], WAIT_S).done
    gc.collect()
    assert unraisable == []


def test_a_coroutine_stopped_while_starting_decides_by_itself(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cancelled, it would use up an attempt, and the reason may pass: ZooKeeper answers again."""

    async def stays(heeds: bool) -> str:
        while not current().cancelled:
            await asyncio.sleep(0)
        await asyncio.sleep(0.05)  # a wrong cancel would come now
        if heeds:
            current().check()
        return "done"

    for heeds in (False, True):
        job = job_of(stays, (heeds,))

        def told(job: Job = job) -> None:
            job.stop_reason = "ZooKeeper is silent"

        with monkeypatch.context() as now:
            while_it_is_started(now, told)
            ended = runner.run(job)
        assert ended.stopped if heeds else outcome(ended) == "done"


def test_a_coroutine_running_when_its_worker_ends_is_cancelled_and_cleans_up(
    runner: Runner,
) -> None:
    async def holds() -> None:
        note("holds")
        try:
            await asyncio.Event().wait()
        finally:
            note("gave back")

    ended = on_a_slot(runner, job_of(holds))
    wait_until(lambda: ran == [("holds",)], "it runs")
    runner.close()
    assert failure(ended()).kind == "CancelledError"
    assert ran == [("holds",), ("gave back",)]


def test_no_coroutine_is_started_after_the_worker_has_ended(runner: Runner) -> None:
    """Nobody would close the event loop that it started."""

    async def one() -> int:
        return 1

    assert outcome(runner.run(job_of(one))) == 1
    runner.close()
    assert failure(runner.run(job_of(one))).kind == "ZkplanError"
    wait_until(lambda: event_loops() == 0, "the event loop has ended")


def event_loops() -> int:
    return sum(thread.name == "zkplan-asyncio" for thread in threading.enumerate())


def while_it_is_started(patch: pytest.MonkeyPatch, happens: Callable[[], None]) -> None:
    """The next coroutine is in the event loop, and its job does not know yet how to cancel it."""
    start = asyncio.run_coroutine_threadsafe

    def started_too_late(coroutine: Any, loop: Any) -> Any:
        future = start(coroutine, loop)
        happens()
        return future

    patch.setattr(asyncio, "run_coroutine_threadsafe", started_too_late)


async def waits() -> str:
    note("waits")
    while ran[-1] != ("stopped",):
        await asyncio.sleep(0.001)
    return "goes on"


def test_a_coroutine_that_stops_the_event_loop_stops_no_other(runner: Runner) -> None:
    """As the shutdown handlers of programs do that have a loop of their own."""

    async def stops() -> str:
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0)
        asyncio.get_running_loop().stop()
        return "stops"

    ended = on_a_slot(runner, job_of(waits))
    wait_until(lambda: ran == [("waits",)], "it runs")
    assert outcome(on_a_slot(runner, job_of(stops))()) == "stops"
    note("stopped")
    assert outcome(ended()) == "goes on"
    runner.close()
    wait_until(lambda: event_loops() == 0, "the event loop has ended")


def test_a_coroutine_continues_after_the_event_loop_ran_out_of_memory(runner: Runner) -> None:
    """Its thread would end by it, and all slots with a coroutine would wait for ever."""

    async def robbed() -> str:
        loop: Any = asyncio.get_running_loop()
        select, lacks = loop._selector.select, iter([True])

        def out_of_memory(timeout: float | None) -> Any:
            if next(lacks, False):
                raise MemoryError
            return select(timeout)

        loop._selector.select = out_of_memory
        await asyncio.sleep(0.01)
        return "goes on"

    assert outcome(on_a_slot(runner, job_of(robbed))()) == "goes on"
