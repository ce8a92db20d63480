"""A key names one plan while that stands, and a task's key one task of its plan."""

from __future__ import annotations

import json
import operator
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from zkplan import Client, InvalidTask, Plan, PlanError, PlanExists, PlanNotFound, Worker

from .support import Run

KEY = "report-2026-11-23"


def add_both(plan: Plan) -> list[str]:
    total = plan.add_task(operator.add, [1, 2], key="total")
    return [total.number, plan.add_task(operator.neg, [total], key="negated").number]


def test_authors_at_the_same_time_make_one_plan_of_each_task_once(
    zkplan_client: Client, worker: Worker
) -> None:
    plans: list[Plan] = []
    numbers: list[list[str]] = []

    def author() -> None:
        with zkplan_client.create_plan("report", key=KEY) as plan:
            plans.append(plan)
            numbers.append(add_both(plan))

    threads = [threading.Thread(target=author) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({plan.path for plan in plans}) == 1
    assert [plan.is_new for plan in plans].count(True) == 1
    assert len(numbers) == 4
    assert all(each == numbers[0] for each in numbers)
    assert plans[0].wait(30).added == 2


def test_a_finished_task_is_found_by_its_key(zkplan_client: Client, worker: Worker) -> None:
    with zkplan_client.create_plan(key=KEY) as plan:
        add_both(plan)
    plan.wait(30)
    # Its result went to the other task, and was not kept.
    assert plan.task("total").state() == "finished"
    again = zkplan_client.create_plan(key=KEY)
    assert again.add_task(operator.add, [1, 2], key="total").number == plan.task("total").number
    assert again.task("negated").result() == -3
    assert again.status().added == 2


def test_a_plan_that_was_found_takes_no_task_without_a_key(zkplan_client: Client) -> None:
    zkplan_client.create_plan(key=KEY).add_task(int)
    found = zkplan_client.create_plan(key=KEY)
    with pytest.raises(PlanExists, match="is_new"):
        found.add_task(int)
    with found:
        pass  # its author still defines it
    assert found.status().state == "defining"
    with pytest.raises(PlanExists, match="has the key"):
        zkplan_client.create_plan(key=KEY, if_exists="raise")
    assert zkplan_client.plan(key=KEY).add_task(int).number


def test_a_finished_plan_gives_its_key_to_the_next_one(zkplan_client: Client) -> None:
    first = zkplan_client.create_plan(key=KEY)
    running = zkplan_client.create_plan(key=KEY, if_exists="replace_finished")
    assert (running.path, running.is_new) == (first.path, False)
    first.cancel()
    second = zkplan_client.create_plan(key=KEY, if_exists="replace_finished")
    assert second.is_new
    assert zkplan_client.plan(key=KEY).path == second.path
    first.remove()  # which does not take the key from the other
    assert zkplan_client.plan(f"key:{KEY}").path == second.path


def by_hand(plan: Plan) -> None:
    plan.remove()


def by_gc(plan: Plan) -> None:
    plan.cancel()
    assert plan.client.gc(older_than=0)[0].outcome == "removed"


def by_a_block_that_fails(plan: Plan) -> None:
    with pytest.raises(ZeroDivisionError), plan:
        raise ZeroDivisionError


@pytest.mark.parametrize("remove", [by_hand, by_gc, by_a_block_that_fails])
def test_a_removed_plan_leaves_its_key_free(
    remove: Callable[[Plan], None], zkplan_client: Client, znodes: KazooClient
) -> None:
    plan = zkplan_client.create_plan(key=KEY, retention=0)
    remove(plan)
    assert znodes.get_children(f"{zkplan_client.root}/keys") == []
    with pytest.raises(PlanNotFound, match=KEY):
        zkplan_client.plan(key=KEY)
    assert zkplan_client.create_plan(key=KEY).is_new


def test_an_import_takes_the_keys_along_if_they_are_free(
    zkplan_client: Client, tmp_path: Path
) -> None:
    plan = zkplan_client.create_plan("moves", key=KEY)
    task = plan.add_task(int, key="one")
    file = tmp_path / "moves.plan"
    zkplan_client.export_plan(plan, file)
    copy = zkplan_client.import_plan(file, copy=True)
    assert (copy.record.key, copy.task("one").number) == ("", task.number)
    copy.remove()
    plan.remove()
    other = zkplan_client.create_plan(key=KEY)
    with pytest.raises(PlanError, match="has the key"):
        zkplan_client.import_plan(file)
    assert [each.path for each in zkplan_client.plans()] == [other.path]
    other.remove()
    back = zkplan_client.import_plan(file)
    assert zkplan_client.plan(key=KEY).path == back.path
    assert back.add_task(int, key="one").number == task.number


def test_commands_find_a_plan_by_its_key(run: Run, zkplan_client: Client) -> None:
    plan = zkplan_client.create_plan("report", key=KEY)
    shown = run("plan", "show", f"key:{KEY}", "-o", "json")
    facts = json.loads(shown.out)
    assert (facts["path"], facts["key"]) == (plan.path, KEY)
    assert run("plan", "rm", "key:other", "--yes").code == 2
    assert run("plan", "rm", f"key:{KEY}", "--yes").code == 0
    with pytest.raises(InvalidTask, match="key:"):
        zkplan_client.create_plan(f"key:{KEY}")


@pytest.mark.parametrize(
    ("key", "if_exists"), [("", "return"), ("a\nb", "return"), (None, "raise"), ("a", "ask")]
)
def test_bad_keys_are_refused_before_anything_is_written(
    key: str | None, if_exists: str, zkplan_client: Client
) -> None:
    with pytest.raises(InvalidTask):
        zkplan_client.create_plan(key=key, if_exists=if_exists)  # type: ignore[arg-type]
    assert zkplan_client.plans() == []
