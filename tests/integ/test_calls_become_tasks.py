"""Calls of functions as tasks: the decorator `@zkplan.task`, and `Plan.map`."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import zkplan
from tests.tools.support import WAIT_S, note, notes
from zkplan import Client
from zkplan.author import task_specs as mapping

pytestmark = pytest.mark.usefixtures("worker")


@zkplan.task(attempts=7, name="doubled")
def double(value: int) -> int:
    return 2 * value


@zkplan.task
def double_all(values: list[int]) -> list[int]:
    return [double(value) for value in values]


def add(left: int, right: int) -> int:
    return left + right


reached, gate = threading.Event(), threading.Event()


def held_at_the_last(value: int) -> int:
    if value == 1199:
        reached.set()
        gate.wait(WAIT_S)
    return value


def fails_at_first(file: str, value: int) -> int:
    note(file, str(value))
    if value == 3 and notes(file).count("3") == 1:
        raise ValueError("the first time")
    return value


def test_a_decorated_function_adds_tasks_only_inside_a_plan_block(zkplan_client: Client) -> None:
    with zkplan_client.create_plan():
        once = double(4)
        twice = double_all([once, once])
    assert double(4) == 8
    assert (once.name, twice.name) == ("doubled", "double_all")
    assert twice.result(WAIT_S) == [16, 16]


def test_options_of_the_decorator_hold_unless_the_call_overrides_them(
    zkplan_client: Client,
) -> None:
    plan = zkplan_client.create_plan(attempts=2)
    tasks = [
        plan.add_task(double, [1]),
        plan.add_task(double, [1], attempts=1, name="other"),
        plan.add_task(double_all, [[]]),
    ]
    assert [(task.info().name, task.info().attempts) for task in tasks] == [
        ("doubled", 7),
        ("other", 1),
        ("double_all", 2),
    ]


def test_arguments_that_do_not_fit_a_decorated_function_are_refused(
    zkplan_client: Client,
) -> None:
    with (
        pytest.raises(zkplan.InvalidTask, match="do not fit double"),
        zkplan_client.create_plan(),
    ):
        double(1, 2)
    assert zkplan_client.plans() == []
    with pytest.raises(TypeError, match="no option queue_name"):
        zkplan.task(queue_name="x")  # type: ignore[call-overload]


def test_a_map_gives_results_in_the_order_of_the_calls(zkplan_client: Client) -> None:
    with zkplan_client.create_plan() as plan:
        many = plan.map(add, range(1200), iter(range(5000)))
        few = plan.map(double, [1, 2])
        none = plan.map(add, [], [])
    assert list(many) == [2 * number for number in range(1200)]
    assert (len(many), len(many.tasks), many.chunksize) == (1200, 400, 3)
    assert (many[-1], many[5:7], many.tasks[1].name) == (2398, [10, 12], "add[3:6]")
    assert list(few) == [2, 4]
    assert len(few.tasks) == 2
    assert list(none) == []
    with pytest.raises(IndexError):
        many[1200]


def test_the_first_results_of_a_map_arrive_while_later_calls_run(
    zkplan_client: Client,
) -> None:
    with zkplan_client.create_plan() as plan:
        found = plan.map(held_at_the_last, range(1200))
    results = iter(found)
    try:
        assert reached.wait(WAIT_S)
        assert list(itertools.islice(results, 1197)) == list(range(1197))
        assert (found.chunksize, found.tasks[-1].running()) == (3, True)
    finally:
        gate.set()
    assert list(results) == [1197, 1198, 1199]


def test_a_failed_chunk_is_retried_as_a_whole(zkplan_client: Client, tmp_path: Path) -> None:
    file = str(tmp_path / "calls")
    with zkplan_client.create_plan(retry_delay=0) as plan:
        found = plan.map(fails_at_first, [file] * 4, range(4), chunksize=4)
    assert list(found) == [0, 1, 2, 3]
    assert notes(file) == ["0", "1", "2", "3"] * 2


def numbers_that_end() -> Iterator[int]:
    yield 1
    raise OSError("the source is gone")


def test_a_map_with_bad_input_writes_nothing(zkplan_client: Client) -> None:
    plan = zkplan_client.create_plan()
    with pytest.raises(OSError, match="the source is gone"):
        plan.map(double, numbers_that_end())
    for size in (0, -1, 1.5, "big", True):
        with pytest.raises(zkplan.ZkplanError, match="chunksize"):
            plan.map(double, [1], chunksize=size)  # type: ignore[arg-type]
    assert plan.status().added == 0


def test_an_endless_map_is_refused_and_writes_nothing(
    zkplan_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mapping, "CALLS_MAX", 1000)
    plan, numbers = zkplan_client.create_plan(), itertools.count()
    with pytest.raises(zkplan.ZkplanError, match=r"at most 1,000 calls.*islice"):
        plan.map(abs, (number for number in numbers))
    assert next(numbers) == 1001
    assert plan.status().added == 0
    # The shortest iterable ends a map.
    assert len(plan.map(max, numbers, range(1000))) == 1000


def test_the_results_of_a_map_are_refused_as_an_argument(zkplan_client: Client) -> None:
    plan = zkplan_client.create_plan()
    found = plan.map(double, [1, 2])
    with pytest.raises(zkplan.NotSerialisable, match="pass its `tasks`"):
        plan.add_task(sum, [found])
    assert plan.status().added == 2
