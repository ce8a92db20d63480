"""A plan none of whose tasks can run any more is called failed, and only such a plan."""

from __future__ import annotations

import threading

import pytest
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE, make_acl

from zkplan import Client

from .support import WAIT_S, wait_for_delayed, wait_until, working

#: The worker is in this process, and finds the gate here.
_gate = threading.Event()


def at_the_gate() -> None:
    _gate.wait(WAIT_S)


def fail() -> None:
    raise ValueError("on purpose")


def test_a_plan_has_failed_when_nothing_of_it_can_run_until_a_retry(
    zkplan_client: Client, zookeeper_hosts: str, zkplan_root: str
) -> None:
    _gate.clear()
    with zkplan_client.create_plan(attempts=1) as plan:
        dies = plan.add_task(fail)
        plan.add_task(str, [dies])
        plan.add_task(at_the_gate)
    with working(zookeeper_hosts, zkplan_root, threads=2):
        wait_until(lambda: plan.status().dead, "one is dead")
        assert plan.status().state == "running"
        _gate.set()
        wait_until(lambda: plan.status().state == "failed", "nothing can run")
    assert not plan.is_drained()
    assert dies.retry()
    assert plan.status().state == "running"
    plan.pause()
    assert plan.status().state == "paused"


def test_a_plan_with_a_delayed_task_has_not_failed(
    zkplan_client: Client, zookeeper_hosts: str, zkplan_root: str
) -> None:
    with zkplan_client.create_plan(attempts=1) as plan:
        plan.add_task(fail)
        plan.add_task(fail, attempts=2, retry_delay=3600)
    with working(zookeeper_hosts, zkplan_root):
        wait_until(lambda: plan.status().dead, "one is dead")
        wait_for_delayed(zkplan_client, 1)
    assert plan.status().state == "running"


def test_who_may_not_read_all_claims_does_not_call_a_plan_failed(
    zkplan_client: Client,
    zookeeper_hosts: str,
    zkplan_root: str,
    znodes: KazooClient,
) -> None:
    with zkplan_client.create_plan(attempts=1) as plan:
        plan.add_task(fail)
    with working(zookeeper_hosts, zkplan_root):
        wait_until(lambda: plan.status().state == "failed", "nothing can run")
    others = f"{zkplan_root}/claims/of-somebody"
    znodes.create(others, acl=[make_acl("world", "anyone", admin=True, delete=True)])
    assert plan.status().state == "running"
    znodes.set_acls(others, OPEN_ACL_UNSAFE)
    assert plan.status().state == "failed"


@pytest.mark.usefixtures("worker")
def test_a_plan_that_drained_with_failures_is_done(zkplan_client: Client) -> None:
    with zkplan_client.create_plan(attempts=1, on_failure="cascade") as plan:
        plan.add_task(fail)
    wait_until(lambda: plan.status().state == "done", "it is done")
