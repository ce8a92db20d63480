"""In an object store a blob is whole or missing, and several are read at the same time."""

from __future__ import annotations

import gc
import operator
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import zkplan
from tests.tools.support import Here, wait_until, working
from zkplan import Plan
from zkplan.errors import StoreUnavailable
from zkplan.tasks import MapResults
from zkplan.values import plan_values as values
from zkplan.values.blobs import key_of
from zkplan.values.store import Store

from .objects import Objects, object_store

pytestmark = pytest.mark.either
SOME = 4


@pytest.fixture
def objects(zkplan_root: str) -> Iterator[str]:
    with object_store(zkplan_root.strip("/")) as url:
        yield url


@pytest.fixture(params=["objects", "memory"])
def url(request: pytest.FixtureRequest, objects: str, zkplan_root: str) -> str:
    return objects if request.param == "objects" else f"memory:/{zkplan_root}"


@pytest.mark.parametrize("size", [10, 12_000_000])
def test_an_interrupted_write_leaves_no_object_and_no_upload(url: str, size: int) -> None:
    """The larger one has been sent in part by then."""
    store = Store(url)
    with pytest.raises(StoreUnavailable):
        store.write("plan-1", "a-00", [bytes(size), 7])  # type: ignore[list-item]
    gc.collect()  # a file that is forgotten closes itself
    assert store.names("plan-1") == []
    assert Objects.uploads == set()
    store.write("plan-1", "a-00", [bytes(size), b"7"])
    assert bytes(store.read("plan-1", "a-00")) == bytes(size) + b"7"


def test_a_plan_runs_with_all_its_values_in_an_object_store(here: Here, url: str) -> None:
    options: dict[str, Any] = {"store": url, "inline_limit": 0}
    with zkplan.connect(*here, **options) as client, working(*here, **options):
        with client.create_plan() as plan:
            parts = [plan.add_task(operator.add, [[number], [0]]) for number in range(12)]
            whole = plan.add_task(sum, [parts, []])
        assert whole.result(30) == [each for number in range(12) for each in (number, 0)]
        assert plan.check().problems == []
        folder, store = client.values.folder_of(plan.path), Store(url)
        wait_until(
            lambda: list(map(key_of, store.names(folder))) == [f"{whole.number}.0"],
            "the sweep leaves the kept result alone",
        )
        plan.remove()
        assert store.names(folder) == []


@pytest.fixture
def made(here: Here, objects: str) -> Iterator[Plan]:
    """A plan with a few kept results, and a task of another queue that takes them all."""
    with zkplan.connect(*here, store=objects, inline_limit=0) as client:
        with client.create_plan() as plan:
            parts = [plan.add_task(operator.add, [[n], [0]], keep=True) for n in range(SOME + 1)]
            plan.add_task(sum, [parts, []], queue="join", name="join", keep=True)
        with working(*here, store=objects, inline_limit=0):
            plan.results(parts, 30)
        yield plan


def meeting(monkeypatch: pytest.MonkeyPatch, plan: Plan, alone: int) -> threading.Barrier:
    """From now on results wait for each other before they are read, but for the first `alone` of
    them. What is returned is broken if they do not meet."""
    together, lock, passed = threading.Barrier(SOME), threading.Lock(), list[str]()

    def meet(path: str) -> None:
        if "add-" in path or plan.client.values.folder_of(plan.path) not in path:
            return
        with lock:
            passed.append(path)
            if not alone < len(passed) <= alone + SOME:
                return
        together.wait(10)

    monkeypatch.setattr(Objects, "before_read", staticmethod(meet))
    return together


def by_as_completed(tasks: list[zkplan.Task]) -> list[Any]:
    return sorted(task.result() for task in zkplan.as_completed(tasks))


@pytest.mark.parametrize(
    ("take", "alone"),
    [
        (lambda tasks: tasks[0].plan.results(tasks[1:]), 0),
        # The first one shows that the values are asked for.
        (lambda tasks: by_as_completed(tasks)[1:], 1),
        (lambda tasks: list(MapResults(tasks[1:], 1, SOME)), 0),
    ],
    ids=["results", "as_completed", "map"],
)
def test_stored_results_are_read_in_parallel(
    made: Plan,
    here: Here,
    objects: str,
    take: Callable[[list[zkplan.Task]], list[Any]],
    alone: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    together = meeting(monkeypatch, made, alone)
    numbers = [outcome.number for outcome in made.outcomes()]
    with zkplan.connect(*here, store=objects, inline_limit=0) as other:  # without their cache
        tasks = [other.plan(made.path).task(number) for number in numbers]
        assert take(tasks) == [[number, 0] for number in range(1, SOME + 1)]
    assert not together.broken


def test_as_completed_reads_no_value_that_is_not_taken(
    made: Plan, here: Here, objects: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    monkeypatch.setattr(Objects, "before_read", staticmethod(read.append))
    numbers = [outcome.number for outcome in made.outcomes()]
    with zkplan.connect(*here, store=objects, inline_limit=0) as other:
        tasks = [other.plan(made.path).task(number) for number in numbers]
        assert len(list(zkplan.as_completed(tasks))) == SOME + 1
    assert read == []


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_the_arguments_of_a_task_are_read_in_parallel(
    made: Plan, here: Here, objects: str, isolation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = meeting(monkeypatch, made, alone=1)
    options: dict[str, Any] = {"store": objects, "inline_limit": 0}
    with working(*here, of_worker={"queues": ["join"], "isolation": isolation}, **options):
        assert made.task("join").result(60) == [e for n in range(SOME + 1) for e in (n, 0)]
    assert not together.broken


def test_a_wait_names_a_store_that_never_answers(
    here: Here, objects: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, real = threading.Event(), Objects.info

    def info(self: Objects, path: str, **options: Any) -> dict[str, Any]:
        answers.wait(60)
        return real(self, path, **options)

    monkeypatch.setattr(values, "SIGN_S", 0.1)
    with zkplan.connect(*here, store=objects, inline_limit=0) as client:
        with client.create_plan() as plan:
            task = plan.add_task(operator.add, [[1], [2]])
        monkeypatch.setattr(Objects, "info", info)
        for wait in (plan.wait, task.result):
            with pytest.raises(zkplan.WaitTimeout, match=f"the store {objects} gives no answer"):
                wait(0.1)
        answers.set()
