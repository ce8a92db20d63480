"""Lambdas, closures, classes, coroutine functions and functions of a script all run."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import math
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import pytest

import zkplan
from tests.tools.support import Here, WorkerProcess, note, notes, run_python, wait_until
from zkplan import Client, TaskFailed


class Adder:
    def __init__(self, more: int) -> None:
        self.more = more

    def __call__(self, value: int) -> int:
        return value + self.more

    def twice(self, value: int) -> int:
        return value + 2 * self.more

    @staticmethod
    def fixed(value: int) -> int:
        return value + 1000

    @classmethod
    def named(cls, value: int) -> str:
        return f"{cls.__name__} {value}"


def returns() -> None:
    pass


def leaves() -> None:
    sys.exit(7)


def leaves_with_a_text() -> None:
    sys.exit("it leaves")


def fails() -> None:
    raise ValueError("no data")


def fork(ends: Callable[[], None]) -> int:
    """Fork a process that ends so. Returns its exit code."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    ends()
    return -1


async def fork_in_a_coroutine(ends: Callable[[], None]) -> int:
    return fork(ends)


async def fork_that_awaits() -> int:
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    await asyncio.sleep(0)
    return -1


ENDS = {returns: 0, leaves: 7, leaves_with_a_text: 1, fails: 1}


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_process_forked_by_a_task_ends_with_the_code_of_the_task(
    isolation: Literal["thread", "process"], zkplan_client: Client, here: Here, tmp_path: Path
) -> None:
    """It would go on as a copy of its worker, and who waits for it would wait for ever."""
    with zkplan_client.create_plan(attempts=1, timeout=20, isolation=isolation) as plan:
        found = {end: plan.add_task(fork, [end], keep=True) for end in ENDS}
        others = {end: plan.add_task(fork_in_a_coroutine, [end], keep=True) for end in ENDS}
        awaits = plan.add_task(fork_that_awaits, keep=True)
    with WorkerProcess(*here, tmp_path) as worker:
        assert {end: task.result(30) for end, task in found.items()} == ENDS
        assert {end: task.result(30) for end, task in others.items()} == ENDS
        assert awaits.result(30) == 1
        assert worker.said("ValueError: no data")
        assert worker.said("has forked cannot await anything")


@pytest.mark.usefixtures("worker")
def test_callables_of_every_kind_run(zkplan_client: Client) -> None:
    offset = 7

    def closure(value: int) -> int:
        return value + offset

    def fibonacci(n: int) -> int:
        return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

    with zkplan_client.create_plan() as plan:
        one = plan.add_task(lambda: 1)
        tasks = {
            "closure": plan.add_task(closure, [one]),
            "recursive closure": plan.add_task(fibonacci, [10]),
            "partial": plan.add_task(functools.partial(pow, 2), [10]),
            "builtin": plan.add_task(math.sqrt, [16.0]),
            "type": plan.add_task(str, [one]),
            "object": plan.add_task(Adder(10), [one]),
            "method": plan.add_task(Adder(10).twice, [one]),
            "static method": plan.add_task(Adder.fixed, [one]),
            "class method": plan.add_task(Adder.named, [one]),
        }
    assert {name: task.result(30) for name, task in tasks.items()} == {
        "closure": 8,
        "recursive closure": 55,
        "partial": 1024,
        "builtin": 4.0,
        "type": "1",
        "object": 11,
        "method": 21,
        "static method": 1001,
        "class method": "Adder 1",
    }


def attempts_in_a_pool() -> list[Any]:
    """What `current()` says in a thread of a pool: without the context of the task, and with it."""
    with ThreadPoolExecutor(1) as pool:
        without = pool.submit(zkplan.current).exception()
        context = contextvars.copy_context()
        return [str(without), pool.submit(context.run, lambda: zkplan.current().attempt).result()]


@pytest.mark.usefixtures("worker")
def test_current_works_in_another_thread_only_with_the_context_of_the_task(
    zkplan_client: Client,
) -> None:
    with zkplan_client.create_plan() as plan:
        task = plan.add_task(attempts_in_a_pool)
    told, attempt = task.result(30)
    assert "only in the thread of its function" in told
    assert "contextvars.copy_context().run" in told
    assert attempt == 0


@pytest.mark.usefixtures("worker")
def test_coroutine_functions_share_one_event_loop(zkplan_client: Client) -> None:
    """Three wait for each other, so each must be running while the others are."""
    arrived: list[str] = []

    async def meet(name: str, count: int) -> tuple[str, str]:
        import asyncio

        arrived.append(name)
        while len(arrived) < count:
            await asyncio.sleep(0.005)
        return name, zkplan.current().name

    # In one process the closure must not travel by value, or each task had a list of its own.
    globals()["meet_in_loop"] = meet
    meet.__module__, meet.__qualname__ = __name__, "meet_in_loop"
    with zkplan_client.create_plan() as plan:
        tasks = [plan.add_task(meet, [name, 3], name=f"task {name}") for name in "abc"]
    assert [task.result(30) for task in tasks] == [(n, f"task {n}") for n in "abc"]


@pytest.mark.usefixtures("worker")
def test_the_next_attempt_finds_the_log_of_a_coroutine(zkplan_client: Client) -> None:
    async def step(number: int) -> None:
        if number % 2:
            await zkplan.current().log(number)
        else:
            zkplan.current().log(number)

    async def steps() -> list[int]:
        here = zkplan.current()
        if here.attempt == 0:
            await asyncio.gather(*map(step, range(20)))
            raise ValueError("once more")
        here.log("not awaited")
        return here.logs

    with zkplan_client.create_plan(attempts=2, retry_delay=0) as plan:
        task = plan.add_task(steps)
    assert task.result(30) == list(range(20))


@pytest.mark.usefixtures("worker")
def test_a_coroutine_that_times_out_is_cancelled(zkplan_client: Client, tmp_path: Path) -> None:
    file = str(tmp_path / "notes")

    async def for_ever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            note(file, "cancelled")

    with zkplan_client.create_plan(attempts=1) as plan:
        task = plan.add_task(for_ever, timeout=0.2)
    with pytest.raises(TaskFailed, match="time-out"):
        task.result(30)
    wait_until(lambda: notes(file) == ["cancelled"], "the coroutine has ended")


SCRIPT = """
import dataclasses, sys
import zkplan

LIMIT = 10
CALLS = []

class Unlucky(Exception):
    pass

@dataclasses.dataclass
class Point:
    x: int
    y: int = 0

    def moved(self, by):
        return Point(self.x + by, self.y + LIMIT)

def helper(value):
    return value + LIMIT

def work(point: Point, by=1):
    CALLS.append(by)
    return point.moved(helper(by)), len(CALLS)

def fail(number):
    raise Unlucky(number)

with zkplan.connect(sys.argv[1], root=sys.argv[2]) as client:
    with client.create_plan() as plan:
        start = plan.add_task(Point, [1], {"y": 2})
        moved = plan.add_task(work, [start], keep=True)
        text = plan.add_task(lambda pair: repr(pair[0]), [moved])
        unlucky = plan.add_task(fail, [13], attempts=1)
    point, calls = moved.result(60)
    assert type(point) is Point and point == Point(12, 12), point
    assert calls == 1
    assert text.result(60) == "Point(x=12, y=12)", text.result()
    try:
        unlucky.result(60)
    except Unlucky as error:
        assert error.args == (13,)
        print("as expected")
"""


def test_functions_and_classes_of_a_script_run_elsewhere(here: Here, tmp_path: Path) -> None:
    (tmp_path / "author.py").write_text(SCRIPT)
    with WorkerProcess(*here, tmp_path) as worker:
        author = run_python(str(tmp_path / "author.py"), *here)
        assert author.stdout == "as expected\n", author.stderr + worker.log.read_text()
        assert author.returncode == 0, author.stderr
