"""A plan none of whose tasks can run has failed, until a retry, which reaches every dead task."""

from __future__ import annotations

import itertools
import threading

import pytest
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE, make_acl

from zkplan import Client, PayloadUndecodable, Plan, PlanNotFound, TaskSpec
from zkplan.protocol.layout import parse_entry
from zkplan.protocol.records import Dead

from .support import WAIT_S, Here, fail, wait_for_delayed, wait_until, working

#: The worker is in this process, and finds the gate here.
_gate = threading.Event()


def at_the_gate() -> None:
    _gate.wait(WAIT_S)


def test_a_plan_has_failed_when_nothing_of_it_can_run_until_a_retry(
    zkplan_client: Client, here: Here
) -> None:
    _gate.clear()
    with zkplan_client.create_plan(attempts=1) as plan:
        dies = plan.add_task(fail)
        plan.add_task(str, [dies])
        plan.add_task(at_the_gate)
    with working(*here, threads=2):
        wait_until(lambda: plan.status().dead, "one is dead")
        assert plan.status().state == "running"
        _gate.set()
        wait_until(lambda: plan.status().state == "failed", "nothing can run")
    assert not plan.is_drained()
    assert dies.retry()
    assert plan.status().state == "running"
    plan.pause()
    assert plan.status().state == "paused"


def test_a_plan_with_a_delayed_task_has_not_failed(zkplan_client: Client, here: Here) -> None:
    with zkplan_client.create_plan(attempts=1) as plan:
        plan.add_task(fail)
        plan.add_task(fail, attempts=2, retry_delay=3600)
    with working(*here):
        wait_until(lambda: plan.status().dead, "one is dead")
        wait_for_delayed(zkplan_client, 1)
    assert plan.status().state == "running"


def test_who_may_not_read_all_claims_does_not_call_a_plan_failed(
    zkplan_client: Client, zookeeper_hosts: str, zkplan_root: str, znodes: KazooClient
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


#: More than the listing of dead tasks shows.
MANY = 1005

_PER_TRANSACTION = 200


def bury(plan: Plan, znodes: KazooClient) -> list[str]:
    """Make all runnable tasks dead, as a worker does that has run them; their numbers."""
    entries = sorted(znodes.get_children(f"{plan.path}/runnable"))
    numbers = [entry.task for name in entries if (entry := parse_entry(name)) is not None]
    letter = Dead("5000", 1, 1, "", "ValueError", "").to_bytes()
    pairs = zip(entries, numbers, strict=True)
    while some := list(itertools.islice(pairs, _PER_TRANSACTION)):
        changes = znodes.transaction()
        for entry, number in some:
            changes.delete(f"{plan.path}/runnable/{entry}")
            changes.create(f"{plan.path}/dead/{number}", letter)
        assert all(isinstance(made, str | bool) for made in changes.commit())
    return sorted(numbers)


def test_more_than_a_listing_shows(zkplan_client: Client, znodes: KazooClient) -> None:
    with zkplan_client.create_plan() as plan:
        plan.add_tasks([TaskSpec(int)] * MANY)
    assert len(bury(plan, znodes)) == MANY
    assert plan.retry() == MANY
    assert (plan.status().dead, plan.status().runnable) == (0, MANY)


def test_those_beside_a_damaged_letter(zkplan_client: Client, znodes: KazooClient) -> None:
    """It cannot be retried, and is reported. The others are retried."""
    with zkplan_client.create_plan() as plan:
        plan.add_tasks([TaskSpec(int)] * 3)
    first, *_ = bury(plan, znodes)
    znodes.create(f"{plan.path}/dead/a strange one", b"")
    znodes.set(f"{plan.path}/dead/{first}", b"damaged")
    with pytest.raises(PayloadUndecodable, match=rf"task {first} .* cannot be retried"):
        plan.retry()
    assert plan.status().runnable == 2


def test_a_plan_of_plain_creates_without_an_index_has_none(
    zkplan_client: Client, znodes: KazooClient
) -> None:
    """It is there, so nobody is told that it is not."""
    plan = zkplan_client.create_plan()
    znodes.delete(f"{plan.path}/dead")
    assert dict(plan.dead()) == {}
    assert plan.retry() == 0
    plan.remove()
    with pytest.raises(PlanNotFound):
        plan.dead()
