"""A task gets the results of the tasks among its arguments, at any depth."""

from __future__ import annotations

from pathlib import Path

import pytest

import zkplan
from tests.tools.support import wait_until
from zkplan import Client, ResultNotKept, TaskSpec

pytestmark = pytest.mark.usefixtures("worker")


def test_a_task_given_twice_makes_one_edge_and_one_object(zkplan_client: Client) -> None:
    with zkplan_client.create_plan() as plan:
        source = plan.add_task(lambda: [1, 2])
        end = plan.add_task(
            lambda a, b, c: (a, a is b, b is c["x"]), [source, source, {"x": source}]
        )
    assert end.result(30) == ([1, 2], True, True)


def test_one_task_feeds_many_and_many_feed_one(zkplan_client: Client) -> None:
    with zkplan_client.create_plan() as plan:
        source = plan.add_task(lambda: 1000)
        middle = [plan.add_task(lambda x, i: x + i, [source, i]) for i in range(300)]
        end = plan.add_task(sum, [middle])
    assert end.result(60) == 300 * 1000 + sum(range(300))
    assert plan.wait(30).finished == 302


def test_a_task_spec_may_be_an_argument_of_another_in_the_same_call(zkplan_client: Client) -> None:
    plan = zkplan_client.create_plan()
    first = TaskSpec(lambda: 20)
    second = TaskSpec(lambda x, y=0: x + y, [first], {"y": 1}, name="second")
    third = TaskSpec(lambda both: both, [{"second": [second], "first": first}])
    tasks = plan.add_tasks([first, second, third])
    plan.mark_ready()
    assert tasks[2].result(30) == {"second": [21], "first": 20}
    assert [task.number for task in tasks] == ["0000000006", "0000000007", "0000000008"]
    assert tasks[1].name == "second"


def test_tasks_may_come_from_a_generator(zkplan_client: Client) -> None:
    with zkplan_client.create_plan() as plan:
        tasks = plan.add_tasks(TaskSpec(int, [number]) for number in range(3))
    assert plan.results(tasks, timeout=30) == [0, 1, 2]


def test_last_tasks_keep_their_results_and_others_do_so_on_request(zkplan_client: Client) -> None:
    with zkplan_client.create_plan() as plan:
        dropped = plan.add_task(lambda: 1, name="dropped")
        kept = plan.add_task(lambda x: x + 1, [dropped], keep=True)
        last = plan.add_task(lambda x: x + 1, [kept])
        unwanted = plan.add_task(lambda: 99, keep=False)
    plan.wait(30)
    assert kept.result(10) == 2
    assert last.result(10) == 3
    with pytest.raises(ResultNotKept, match=r"dropped.*keep=True"):
        dropped.result(10)
    with pytest.raises(ResultNotKept):
        unwanted.result(10)


def test_a_result_near_the_limit_of_a_request_is_delivered(zkplan_client: Client) -> None:
    with zkplan_client.create_plan() as plan:
        source = plan.add_task(lambda: b"x" * 1_000_000, keep=True)
        lengths = [plan.add_task(len, [source]) for _ in range(3)]
    assert [task.result(30) for task in lengths] == [1_000_000] * 3
    assert len(source.result(30)) == 1_000_000


def test_a_task_with_thousands_of_dependencies_can_be_added_while_they_finish(
    zkplan_client: Client, tmp_path: Path
) -> None:
    """Wider than one transaction carries; its edges are met and unmet while they are added."""
    gate = tmp_path / "gate"
    plan = zkplan_client.create_plan()
    # Without it the plan could drain between two adds, and would take no more.
    plan.add_task(lambda: wait_until(gate.exists, "the gate opens", 60.0))
    plan.mark_ready()
    parts = plan.add_tasks([TaskSpec(lambda i=i: i, keep=True) for i in range(1500)])
    end = plan.add_task(lambda *values: sum(values), parts)
    gate.touch()
    assert end.result(60) == sum(range(1500))
    plan.wait(30)


def test_the_module_functions_do_the_same_as_the_methods(zkplan_client: Client) -> None:
    plan = zkplan.create_plan(zkplan_client, "ancestor")
    two = zkplan.add_task(plan, lambda: 2)
    three = zkplan.add_task(plan, lambda x, y: x + y, two, y=1)
    assert not zkplan.plan_completed(plan)
    zkplan.mark_ready(plan)
    assert three.result(30) == 3
    plan.wait(30)
    assert zkplan.plan_completed(plan)
