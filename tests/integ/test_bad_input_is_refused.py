"""Bad input is refused before anything is written, with an error that says what to do."""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkplan
from tests.tools.support import tree
from zkplan import (
    Client,
    InvalidTask,
    NotSerialisable,
    PlanCancelled,
    PlanDrained,
    PlanError,
    PlanNotFound,
    TaskSpec,
    ZkplanError,
)


def items() -> Any:
    return (number for number in range(3))


def nested(levels: int) -> list[Any]:
    made: list[Any] = []
    for _ in range(levels):
        made = [made]
    return made


def test_a_too_deeply_nested_argument_is_named_and_such_a_result_is_a_failure(
    zkplan_client: Client, znodes: KazooClient, worker: zkplan.Worker
) -> None:
    plan = zkplan_client.create_plan(attempts=1)
    before = tree(znodes, plan.path)
    with pytest.raises(NotSerialisable, match=r"its argument 1, a list, .*nested too deeply"):
        plan.add_task(max, [1, nested(100_000)])
    with pytest.raises(NotSerialisable, match=r"its argument 'deep', a dict, .*nested too deeply"):
        plan.add_task(dict, kwargs={"deep": {"x": nested(2000)}})
    assert tree(znodes, plan.path) == before
    task = plan.add_task(nested, [100_000])
    plan.mark_ready()
    with pytest.raises(NotSerialisable, match="nested too deeply"):
        task.result(30)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("attempts", 0), ("retry_delay", -1), ("timeout", 0), ("priority", 100_000)),
        *(("keep", "yes"), ("on_failure", "explode")),
    ],
)
def test_an_option_of_a_plan_out_of_range_is_refused(
    option: str, value: Any, zkplan_client: Client
) -> None:
    with pytest.raises(InvalidTask, match=option):
        zkplan_client.create_plan(**{option: value})
    assert zkplan_client.plans() == []


def test_the_option_retries_is_refused_with_a_hint_to_attempts(
    zkplan_client: Client,
) -> None:
    plan = zkplan_client.create_plan()
    asked: list[Any] = [
        *(zkplan.task, partial(plan.add_task, int), partial(plan.map, int, ["1"])),
        *(partial(TaskSpec, int), zkplan_client.create_plan),
    ]
    for ask in asked:
        with pytest.raises(TypeError, match="did you mean attempts=4"):
            ask(retries=3)
    assert plan.status().added == 0
    assert len(zkplan_client.plans()) == 1


def test_an_export_of_a_non_plan_says_what_export_takes(
    zkplan_client: Client, tmp_path: Path
) -> None:
    with pytest.raises(ZkplanError, match=r"takes a handle on a plan.*client\.plan\(4\)"):
        zkplan_client.export_plan("plan-4", tmp_path / "file")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", "x" * 201, 5, "two\nlines", "a\tb", "\x1b[31mred", "nul\0"])
def test_plan_names_of_bad_length_or_form_are_refused(name: Any, zkplan_client: Client) -> None:
    with pytest.raises(InvalidTask, match="1 to 200 printable characters"):
        zkplan_client.create_plan(name)


def test_every_call_on_a_removed_plan_says_that_it_was_removed(zkplan_client: Client) -> None:
    plan = zkplan_client.create_plan()
    task = plan.add_task(int)
    again = zkplan_client.plan(plan.path)
    plan.remove()
    for call in (
        lambda: plan.add_task(int),
        lambda: plan.add_task(str, [task]),
        lambda: again.add_task(int),
        plan.mark_ready,
        plan.pause,
        plan.cancel,
        plan.status,
        plan.is_drained,
        plan.retry,
        plan.remove,
        lambda: plan.wait(5),
        lambda: task.result(5),
        lambda: zkplan_client.plan(plan.path),
    ):
        with pytest.raises(PlanNotFound):
            call()


def test_a_cancelled_plan_takes_no_tasks_and_cannot_be_resumed(zkplan_client: Client) -> None:
    plan = zkplan_client.create_plan()
    first = plan.add_task(int)
    plan.cancel()
    plan.cancel()
    for call in (
        lambda: plan.add_task(int),
        lambda: zkplan_client.plan(plan.path).add_task(str, [first]),
        plan.mark_ready,
        plan.resume,
        plan.pause,
        lambda: plan.wait(5),
        lambda: first.result(5),
    ):
        with pytest.raises(PlanCancelled, match="was cancelled"):
            call()
    status = plan.status()
    assert (status.state, status.tasks, status.added) == ("cancelled", 1, 1)


def test_a_plan_never_marked_ready_cannot_be_resumed_or_paused(zkplan_client: Client) -> None:
    """Its author may be just adding tasks; a plan that was started too early cannot be undone."""
    plan = zkplan_client.create_plan()
    plan.add_task(int)
    for call in (plan.resume, plan.pause):
        with pytest.raises(PlanError, match=r"not marked ready yet.*mark-ready"):
            call()
    assert plan.status().state == "defining"


@pytest.mark.usefixtures("worker")
def test_dead_tasks_of_a_cancelled_plan_are_not_retried(zkplan_client: Client) -> None:
    with zkplan_client.create_plan(attempts=1) as plan:
        task = plan.add_task(int, ["no number"])
    with pytest.raises(ValueError, match="no number"):
        task.result(30)
    plan.cancel()
    for call in (plan.retry, task.retry, lambda: plan.retry_task(task.number)):
        with pytest.raises(PlanCancelled, match="can run again"):
            call()
    assert plan.status().dead == 1


@pytest.mark.usefixtures("worker")
def test_a_drained_plan_takes_no_more_tasks(zkplan_client: Client) -> None:
    with zkplan_client.create_plan() as plan:
        task = plan.add_task(int)
    plan.wait(30)
    with pytest.raises(PlanDrained, match=r"is done.*create a new plan"):
        plan.add_task(int)
    for call in (plan.pause, plan.resume, plan.cancel):
        with pytest.raises(PlanDrained, match="is done"):
            call()
    plan.mark_ready()
    assert task.result(5) == 0
    assert plan.is_drained()


def test_a_missing_plan_is_not_found(zkplan_client: Client) -> None:
    zkplan_client.create_plan("exists")
    for which in (
        "missing",
        77,
        "0000000077",
        f"{zkplan_client.root}/plan-0000000077",
        "/elsewhere",
    ):
        with pytest.raises(PlanNotFound):
            zkplan_client.plan(which)


@pytest.mark.parametrize("root", ["", "zkplan", "/", "/a//b", "/a/../b", "/zookeeper", "/a\x00b"])
def test_a_root_that_is_not_a_path_is_refused(root: str, zookeeper_hosts: str) -> None:
    with pytest.raises(ZkplanError, match=r"root must be a (path|text of one line)"):
        zkplan.connect(zookeeper_hosts, root=root)


def test_a_block_that_raises_leaves_no_plan_behind(
    zkplan_client: Client, znodes: KazooClient
) -> None:
    def give_up_midway() -> None:
        with zkplan_client.create_plan("half") as plan:
            one = plan.add_task(int)
            plan.add_tasks([TaskSpec(str, [one]) for _ in range(50)])
            assert one.number  # sends what was added so far
            plan.add_task(str, [one])
            raise LookupError

    def add_nonsense() -> None:
        with zkplan_client.create_plan("half") as plan:
            plan.add_task(int)
            plan.add_task(sum, [items()])

    zkplan_client.prepare()
    before = tree(znodes, zkplan_client.root)
    with pytest.raises(LookupError):
        give_up_midway()
    with pytest.raises(NotSerialisable):
        add_nonsense()
    assert tree(znodes, zkplan_client.root) == before


def test_a_block_that_raises_leaves_an_existing_plan_as_it_was(zkplan_client: Client) -> None:
    def give_up() -> None:
        with zkplan_client.plan("mine") as plan:
            plan.add_task(int)
            raise LookupError

    created = zkplan_client.create_plan("mine")
    created.add_task(int)
    with pytest.raises(LookupError):
        give_up()
    status = zkplan_client.plan("mine").status()
    assert (status.state, status.tasks) == ("defining", 1)


def test_opening_the_block_of_a_plan_twice_is_refused(zkplan_client: Client) -> None:
    with zkplan_client.create_plan() as plan:
        with pytest.raises(PlanError, match="already open"):
            plan.__enter__()
        plan.add_task(int)
    assert plan.status().added == 1


@pytest.mark.usefixtures("worker")
def test_an_object_that_is_not_a_task_is_refused_with_a_remedy(zkplan_client: Client) -> None:
    with zkplan_client.create_plan() as plan:
        task = plan.add_task(abs, [1])
        results = plan.map(abs, [1])
    refused: list[tuple[Any, str]] = [
        (task, "put it into a list"),
        ([Future()], "not concurrent.futures._base.Future: wait for futures with concurrent"),
        (plan, "wait for a plan with `plan.wait"),
        ([task, plan], "wait for a plan with `plan.wait"),
        (results, "MapResults: pass its `tasks`"),
        ([[task]], r"takes a list of zkplan tasks, not builtins.list"),
        (7, "not builtins.int"),
    ]
    for given, told in refused:
        for call in (zkplan.as_completed, zkplan.wait, plan.results):
            with pytest.raises(zkplan.ZkplanError, match=told):
                call(given)
    assert [each.result() for each in zkplan.as_completed(iter([task]), 30)] == [1]
