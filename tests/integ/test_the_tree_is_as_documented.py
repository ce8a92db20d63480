"""Other clients see exactly the znodes that docs/internals/protocol.md names."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from kazoo.client import KazooClient

import zkplan
from tests.tools.support import (
    Here,
    WorkerProcess,
    pass_gate,
    stall_nothing,
    tree,
    wait_until,
    working,
)
from zkplan import Client, TaskSpec

pytestmark = pytest.mark.usefixtures("nothing_stalls")
FIXED = {"add-count", "add-ids", "runnable", "dead", "results", "history"}


def children(znodes: KazooClient, path: str) -> set[str]:
    return set(znodes.get_children(path))


def test_a_running_task_has_an_owner_and_a_claim_on_a_claims_node(
    here: Here, zkplan_client: Client, znodes: KazooClient, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    with zkplan_client.create_plan() as plan:
        task = plan.add_task(pass_gate, [str(gate)])
        after = plan.add_task(str, [task])
    with working(*here) as worker:
        wait_until(lambda: znodes.exists(f"{task.path}/owner"), "the task has an owner")
        data, stat = znodes.get(f"{task.path}/owner")
        assert data == f"{worker.id} 0".encode()
        session = znodes.get(f"{zkplan_client.root}/workers/{worker.id}")[1].ephemeralOwner
        assert stat.ephemeralOwner == session != 0
        claims = children(znodes, f"{zkplan_client.root}/claims/{worker.id}")
        plan_number = plan.path[-10:]
        assert len(claims) == 1
        assert re.fullmatch(rf"{plan_number}-{task.number}\.0\.[0-9a-f]+", claims.pop())
        assert children(znodes, f"{plan.path}/runnable") == set()
        assert children(znodes, task.path) == {"ready", "owner", "prov-0000000001"}
        gate.touch()
        assert after.result(30) == "open"
        plan.wait(30)
        wait_until(
            lambda: not children(znodes, f"{zkplan_client.root}/claims/{worker.id}"),
            "a clear claims node",
        )
    assert children(znodes, f"{zkplan_client.root}/claims") == set()
    assert children(znodes, f"{zkplan_client.root}/workers") == set()


def test_a_drained_plan_keeps_its_outcomes_and_when_it_was_done(
    here: Here, zkplan_client: Client, znodes: KazooClient
) -> None:
    with zkplan_client.create_plan() as plan:
        first = plan.add_task(lambda: 1, keep=True)
        middle = plan.add_task(lambda x: x, [first])
        last = plan.add_task(lambda x, y: x + y, [first, middle])
    with working(*here):
        plan.wait(30)
    assert children(znodes, plan.path) == (FIXED - {"add-count"}) | {"ready", "done"}
    assert children(znodes, f"{plan.path}/results") == {first.number, last.number}
    for name in ("runnable", "dead"):
        assert children(znodes, f"{plan.path}/{name}") == set()
    assert json.loads(znodes.get(f"{plan.path}/done")[0])["failed"] == 0


def test_all_znodes_are_created_below_the_prefix_of_the_hosts(
    zookeeper_hosts: str, zkplan_root: str, znodes: KazooClient
) -> None:
    znodes.create(zkplan_root)
    hosts = f"{zookeeper_hosts}{zkplan_root}"
    with zkplan.connect(hosts, root="/deep/er") as client:
        with client.create_plan("under a prefix") as plan:
            first = plan.add_task(lambda: 20)
            last = plan.add_task(lambda x: x + 1, [first])
        assert plan.path == "/deep/er/plan-0000000004"
        assert znodes.exists(f"{zkplan_root}{plan.path}/ready")
        with working(hosts, "/deep/er"):
            assert last.result(30) == 21
            plan.wait(30)
        plan.remove()
    assert children(znodes, f"{zkplan_root}/deep/er") == {"workers", "claims", "delayed", "active"}


def test_a_removed_plan_leaves_nothing_in_any_state(
    here: Here, zkplan_client: Client, znodes: KazooClient, tmp_path: Path
) -> None:
    zkplan_client.prepare()
    before = tree(znodes, zkplan_client.root)
    gate = tmp_path / "gate"
    defining = zkplan_client.create_plan()
    one = defining.add_task(int)
    defining.add_tasks([TaskSpec(str, [one]) for _ in range(500)])
    assert defining.remove() == 501
    assert tree(znodes, zkplan_client.root) == before
    with zkplan_client.create_plan(attempts=2, retry_delay=300) as running:
        running.add_task(pass_gate, [str(gate), running.add_task(stall_nothing, keep=True)])
        failing = running.add_task(lambda: 1 // 0)
        running.add_task(print, [failing])
    with zkplan_client.create_plan(attempts=1) as dying:
        dying.add_task(lambda: 1 // 0)
    with zkplan_client.create_plan() as drained:
        drained.add_task(int)
    with WorkerProcess(*here, tmp_path) as worker:
        drained.wait(30)
        wait_until(lambda: running.status().finished == 1, "a task is finished")
        wait_until(lambda: znodes.get_children(f"{zkplan_client.root}/delayed"), "one is delayed")
        wait_until(lambda: dying.status().dead == 1, "one is dead")
        for plan in (running, dying, drained):
            plan.remove()
        assert {name for name in znodes.get_children(zkplan_client.root) if "plan" in name} == set()
        gate.touch()
        worker.process.end(20)
    assert tree(znodes, zkplan_client.root) == before
