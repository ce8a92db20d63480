"""A check whose repair an access list refuses reports a problem, and repairs once it may."""

from __future__ import annotations

import pytest
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE, make_acl

from zkplan import Client, Plan, Task

READ_ONLY = [make_acl("world", "anyone", read=True, admin=True)]
with_worker = pytest.mark.usefixtures("quick_checks", "worker")


def unpublished(plan: Plan, znodes: KazooClient) -> Task:
    """A complete task as it is when somebody has deleted its entry and its pending record."""
    task = plan.add_task(int, keep=True)
    znodes.delete(f"{plan.path}/runnable/5000-{task.number}.0.0")
    znodes.delete(f"{task.path}/ready")
    znodes.create(f"{task.path}/ready", b"0")
    return task


@with_worker
def test_a_check_without_permission_to_publish_a_task_reports_a_problem(
    zkplan_client: Client, znodes: KazooClient
) -> None:
    plan = zkplan_client.create_plan()
    name = f"task-{unpublished(plan, znodes).number}"
    znodes.set_acls(f"{plan.path}/runnable", READ_ONLY)
    report = plan.check()
    assert not report.published
    (problem,) = report.problems
    assert problem.startswith(f"{name}: can be run, but is in no index")
    assert problem.endswith(
        f"not allowed by the access list: the right `create` is missing on {plan.path}/runnable"
    )
    znodes.set_acls(f"{plan.path}/runnable", OPEN_ACL_UNSAFE)
    assert plan.check().published == [name]


def test_a_check_without_permission_to_restore_a_folder_reports_a_problem(
    zkplan_client: Client, znodes: KazooClient
) -> None:
    with zkplan_client.create_plan() as plan:
        plan.add_task(int)
    znodes.delete(f"{plan.path}/runnable", recursive=True)
    znodes.delete(f"{zkplan_client.paths.active}/{plan.number}")
    znodes.set_acls(plan.path, READ_ONLY)
    report = plan.check()
    assert plan.path in report.shut
    assert f"the right `create` is missing on {plan.path}" in report.problems[0]
    znodes.set_acls(plan.path, OPEN_ACL_UNSAFE)
    assert plan.check().created == ["runnable", "its entry in the index"]


@with_worker
def test_a_check_publishes_no_task_of_a_plan_that_is_not_marked_ready(
    zkplan_client: Client, znodes: KazooClient
) -> None:
    plan = zkplan_client.create_plan()
    task = unpublished(plan, znodes)
    assert plan.check(repair=False).published == [f"task-{task.number}"]
    assert znodes.get_children(f"{plan.path}/runnable") == []
    assert plan.status().state == "defining"
    plan.mark_ready()
    assert task.result(30) == 0
