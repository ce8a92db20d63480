"""`zkplan.Executor` passes Python's own tests of executors, and some of our own."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
import unittest
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import pytest

import zkplan
from tests.tools.available import not_available
from tests.tools.support import WAIT_S, fail, wait_until
from zkplan import Client

#: Tests of Python that cannot hold here, and why. Its other classes are not for any executor: they
#: test a `Future` by itself, the threads and processes of its two pools, and their initializers.
DIFFERENT = {
    "test_max_workers_negative": "an executor has no workers of its own: those of the root work",
    "test_interpreter_shutdown": "makes its executor from nothing: this one needs a client",
    "test_submit_after_interpreter_shutdown": "the same",
    "test_hang_gh83386": "the same",
    "test_free_reference": "a thread that has just set a result may have it a moment longer; "
    "the test of later Pythons waits for that",
    "test_cancel_futures": "a thread has begun a call a moment after `submit`, a worker has not",
}
SUITE = "test.test_concurrent_futures"
MIXINS = ("WaitTests", "AsCompletedTests", "ExecutorTest", "ExecutorShutdownTest")


def python_tests() -> dict[str, Any]:
    """The mixins of Python's tests of executors, by name; none where this Python has no tests.

    Since Python 3.12 they are a package. `dev.py test` fetches them where they are missing.
    """
    package = importlib.import_module("test")
    package.__path__.append(str(Path(sys.prefix) / "python_tests"))
    if importlib.util.find_spec(SUITE) is None:
        return {}
    names = ["", ".executor", ".test_wait", ".test_as_completed", ".test_shutdown"]
    whole = importlib.import_module(SUITE)
    modules = [importlib.import_module(SUITE + n) for n in names if hasattr(whole, "__path__")]
    return {m: getattr(in_, m) for in_ in modules or [whole] for m in MIXINS if hasattr(in_, m)}


FOUND = python_tests()
CASES = [
    (mixin, name)
    for mixin, tests in FOUND.items()
    for name in dir(tests)
    if name.startswith("test_") and name not in DIFFERENT
]


def test_pythons_own_tests_are_here() -> None:
    if not FOUND:
        not_available("this Python came without its own tests")
    assert set(FOUND) == set(MIXINS)
    assert len(CASES) >= 20


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Once, on a server of its own: what an executor needs of a server others have tested."""
    with zkplan.local(workers=0, threads=8) as here:
        yield here


@pytest.fixture
def executor(client: Client) -> Iterator[zkplan.Executor]:
    with zkplan.Executor(client) as made:
        yield made
    assert client.plans() == [], "an executor removes its plans"


@pytest.mark.parametrize(("mixin", "name"), CASES)
def test_pythons_own_test_passes(mixin: str, name: str, executor: zkplan.Executor) -> None:
    tests: Any = FOUND[mixin]

    class Case(tests, unittest.TestCase):  # type: ignore[misc]
        worker_count = 5

        def setUp(self) -> None:
            self.executor = executor

    result = unittest.TestResult()
    Case(name).run(result)
    problems = [text for _, text in (*result.errors, *result.failures)]
    assert problems == []
    assert result.testsRun == 1


gate = threading.Event()


def wait_at_the_gate() -> str:
    gate.wait(WAIT_S)
    return "open"


@pytest.fixture(autouse=True)
def _open_gate() -> Iterator[None]:
    gate.clear()
    yield
    gate.set()


def test_a_call_that_cannot_be_serialised_fails_alone(executor: zkplan.Executor) -> None:
    stream = executor.submit(id, (each for each in [1]))
    good = executor.submit(abs, -1)
    wrong = executor.submit(fail, "too many arguments")
    assert good.result(WAIT_S) == 1
    assert isinstance(stream.exception(WAIT_S), zkplan.NotSerialisable)
    assert isinstance(wrong.exception(WAIT_S), zkplan.InvalidTask)


def test_calls_after_a_pause_run_in_another_plan(executor: zkplan.Executor, client: Client) -> None:
    assert executor.submit(abs, -1).result(WAIT_S) == 1
    wait_until(lambda: not client.plans(), "the plan has drained and is removed")
    assert list(executor.map(abs, range(-3, 0))) == [3, 2, 1]


def test_running_calls_end_when_the_others_are_cancelled(
    executor: zkplan.Executor, client: Client
) -> None:
    calls = [executor.submit(wait_at_the_gate) for _ in range(12)]
    wait_until(
        lambda: [
            task for plan in client.plans() for task in plan.tasks() if task.state == "running"
        ],
        "some of them run",
    )
    threading.Timer(0.2, gate.set).start()
    executor.shutdown(cancel_futures=True)
    done, not_done = futures.wait(calls, WAIT_S)
    assert not not_done
    assert {call.result() for call in done if not call.cancelled()} == {"open"}


def test_calls_handed_back_after_the_executor_has_paused_its_plan_are_cancelled(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a paused plan they never run: their futures would never end."""
    executor = zkplan.Executor(client)  # not in a block, whose end would wait for ever, too
    calls = [executor.submit(wait_at_the_gate) for _ in range(12)]
    wait_until(
        lambda: [
            task for plan in client.plans() for task in plan.tasks() if task.state == "running"
        ],
        "some of them run",
    )
    look, looks = zkplan.Plan.tasks, []

    def all_claimed_at_first(plan: zkplan.Plan) -> Any:
        looks.append(plan)
        found = look(plan)
        return [task._replace(state="running") for task in found] if len(looks) == 1 else found

    monkeypatch.setattr(zkplan.Plan, "tasks", all_claimed_at_first)
    threading.Timer(0.2, gate.set).start()
    executor.shutdown(cancel_futures=True)
    done, not_done = futures.wait(calls, WAIT_S)
    assert not not_done
    assert {call.result() for call in done if not call.cancelled()} == {"open"}
    assert any(call.cancelled() for call in done)
