"""A plan without a task that can run has failed until a retry, which reaches every dead task."""

from __future__ import annotations

from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE, make_acl

from tests.tools.support import Here, fail, pass_gate, wait_for_delayed, wait_until, working
from zkplan import Client, PayloadUndecodable, TaskSpec


def test_a_plan_fails_when_no_task_can_run_and_runs_again_after_a_retry(
    zkplan_client: Client, here: Here, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    with zkplan_client.create_plan(attempts=1) as plan:
        dies = plan.add_task(fail)
        plan.add_task(str, [dies])
        plan.add_task(pass_gate, [str(gate)])
    with working(*here, threads=2):
        wait_until(lambda: plan.status().dead, "one is dead")
        assert plan.status().state == "running"
        gate.touch()
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


def test_a_client_that_may_not_read_all_claims_does_not_call_a_plan_failed(
    zkplan_client: Client, here: Here, znodes: KazooClient
) -> None:
    with zkplan_client.create_plan(attempts=1) as plan:
        plan.add_task(fail)
    with working(*here):
        wait_until(lambda: plan.status().state == "failed", "nothing can run")
    others = f"{zkplan_client.root}/claims/of-somebody"
    znodes.create(others, acl=[make_acl("world", "anyone", admin=True, delete=True)])
    assert plan.status().state == "running"
    znodes.set_acls(others, OPEN_ACL_UNSAFE)
    assert plan.status().state == "failed"


def test_a_damaged_dead_letter_is_reported_and_the_others_are_retried(
    zkplan_client: Client, here: Here, znodes: KazooClient
) -> None:
    with zkplan_client.create_plan(attempts=1) as plan:
        first, *_ = plan.add_tasks([TaskSpec(fail)] * 3)
    with working(*here):
        wait_until(lambda: plan.status().dead == 3, "all are dead")
    znodes.create(f"{plan.path}/dead/a strange one", b"")
    znodes.set(f"{plan.path}/dead/{first.number}", b"damaged")
    with pytest.raises(PayloadUndecodable, match=rf"task {first.number} .* cannot be retried"):
        plan.retry()
    assert plan.status().runnable == 2
