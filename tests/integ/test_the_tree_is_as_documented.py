"""The znodes that any other client sees are exactly those that docs/internals/protocol.md names."""

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
NUMBER = r"\d{10}"


def children(znodes: KazooClient, path: str) -> set[str]:
    return set(znodes.get_children(path))


def test_a_new_plan_has_its_fixed_children_and_its_record(
    zkplan_client: Client, znodes: KazooClient
) -> None:
    plan = zkplan_client.create_plan("mine", attempts=5)
    root = zkplan_client.root
    assert children(znodes, root) == {
        "workers",
        "claims",
        "delayed",
        "active",
        plan.path.rpartition("/")[2],
    }
    assert re.fullmatch(rf"{root}/plan-{NUMBER}", plan.path)
    assert children(znodes, plan.path) == FIXED
    assert all(znodes.get(f"{plan.path}/{name}")[0] == b"" for name in FIXED)
    record = json.loads(znodes.get(plan.path)[0])
    assert (record["name"], record["defaults"], record["on_failure"]) == (
        "mine",
        {"attempts": 5},
        "hold",
    )


def test_added_tasks_have_ready_and_an_edge_on_either_side(
    zkplan_client: Client, znodes: KazooClient
) -> None:
    plan = zkplan_client.create_plan()
    first = plan.add_task(int)
    second = plan.add_task(str, [first], priority=7)
    both = plan.add_task(print, [first, [second, first]])
    names = {f"task-{task.number}" for task in (first, second, both)}
    assert children(znodes, plan.path) == FIXED | names
    assert children(znodes, first.path) == {"ready", "prov-0000000001", "prov-0000000002"}
    assert children(znodes, second.path) == {"ready", "dep-0000000000", "prov-0000000002"}
    assert children(znodes, both.path) == {"ready", "dep-0000000000", "dep-0000000001"}
    # `ready` holds K, the number of edges; its version counts arrivals, and K+1 is published.
    for task, k, version in ((first, b"0", 1), (second, b"1", 0), (both, b"2", 0)):
        data, stat = znodes.get(f"{task.path}/ready")
        assert (data, stat.version) == (k, version)
    deps = [(second, 0, first), (both, 0, first), (both, 1, second)]
    for task, place, source in deps:
        assert znodes.get(f"{task.path}/dep-{place:010d}")[0] == source.number.encode()
    edge = json.loads(znodes.get(f"{first.path}/prov-0000000001")[0])
    assert edge == {
        "dep": f"task-{second.number}/dep-0000000000",
        "k": 1,
        "entry": f"4993-{second.number}",
    }
    assert children(znodes, f"{plan.path}/runnable") == {f"5000-{first.number}.0.0"}
    assert len(children(znodes, f"{plan.path}/add-ids")) == 1
    assert znodes.get(f"{plan.path}/add-count")[1].version == 3


def test_marking_ready_adds_two_znodes_and_tells_it(
    zkplan_client: Client, znodes: KazooClient
) -> None:
    plan = zkplan_client.create_plan()
    plan.add_task(int)
    before = tree(znodes, zkplan_client.root)
    plan.mark_ready()
    plan.mark_ready()
    name = plan.path.rpartition("/")[2]
    # Of the history one was made with the plan, and one tells of the task.
    made = {f"/{name}/ready", f"/active/{plan.number}", f"/{name}/history/seg-0000000002"}
    assert tree(znodes, zkplan_client.root) - before == made
    assert before <= tree(znodes, zkplan_client.root)
    assert json.loads(znodes.get(f"{plan.path}/ready")[0]) == {"state": "running"}
    plan.pause()
    plan.resume()
    assert znodes.get(f"{plan.path}/ready")[1].version == 2


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


def test_a_delivered_value_replaces_its_dep(
    here: Here, zkplan_client: Client, znodes: KazooClient, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    with zkplan_client.create_plan() as plan:
        held = plan.add_task(pass_gate, [str(gate)])
        quick = plan.add_task(lambda: 5)
        end = plan.add_task(print, [held, quick])
    with working(*here):
        wait_until(lambda: znodes.exists(quick.path) is None, "the quick task is finished")
        assert children(znodes, end.path) == {"ready", "dep-0000000000", "arg-0000000001"}
        assert znodes.get(f"{end.path}/ready")[1].version == 1
        data = znodes.get(f"{end.path}/arg-0000000001")[0]
        assert data[:14] == f"{quick.number}=e3V".encode()
        gate.touch()
        plan.wait(30)


def test_a_failed_attempt_leaves_a_log_and_a_delayed_entry(
    here: Here, zkplan_client: Client, znodes: KazooClient
) -> None:
    with zkplan_client.create_plan(attempts=2, retry_delay=300) as plan:
        task = plan.add_task(lambda: 1 // 0)
    with working(*here):
        wait_until(lambda: children(znodes, f"{zkplan_client.root}/delayed"), "a delayed entry")
    # `owner` came and went before it, and ZooKeeper counts every child.
    assert children(znodes, task.path) == {"ready", "log-0000000002"}
    (entry,) = children(znodes, f"{zkplan_client.root}/delayed")
    assert re.fullmatch(rf"\d{{13}}-{plan.path[-10:]}-5000-{task.number}\.1\.1", entry)
    assert children(znodes, f"{plan.path}/runnable") == set()


def test_a_dead_task_has_a_dead_letter_and_an_outcome(
    here: Here, zkplan_client: Client, znodes: KazooClient
) -> None:
    with zkplan_client.create_plan(attempts=1) as plan:
        task = plan.add_task(lambda: 1 // 0, name="divide")
    with working(*here):
        wait_until(lambda: children(znodes, f"{plan.path}/dead"), "a dead letter")
    assert children(znodes, f"{plan.path}/dead") == {task.number}
    assert children(znodes, f"{plan.path}/results") == {task.number}
    letter = json.loads(znodes.get(f"{plan.path}/dead/{task.number}")[0])
    assert letter["name"] == "divide"
    assert letter["error"].startswith("ZeroDivisionError")
    assert znodes.get(f"{plan.path}/results/{task.number}")[0][:3] == b"e3E"


def test_the_prefix_of_the_hosts_is_where_everything_lies(
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


def test_a_removed_plan_leaves_nothing_in_whatever_state_it_is(
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
