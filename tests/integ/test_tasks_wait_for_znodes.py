"""Gates are tasks that wait for a znode: they take no slot and open once, on their condition."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl

import zkplan
from tests.tools.support import Here, described, note, notes, wait_until, working
from zkplan import Client, GateTimeout, PlanFailed, TaskSpec, when
from zkplan.protocol.features.gates import open_gates
from zkplan.protocol.fields import from_json
from zkplan.runtime import gates as keeping


@pytest.fixture
def outside(znodes: KazooClient, zkplan_root: str) -> str:
    """A folder of znodes that is none of zkplan's."""
    path = f"/outside-{zkplan_root.strip('/')}"
    znodes.create(path)
    return path


def states(plan: zkplan.Plan) -> dict[str | None, str]:
    return {task.name: task.state for task in plan.tasks()}


def test_each_kind_of_gate_opens_when_its_condition_holds(
    here: Here, zkplan_client: Client, znodes: KazooClient, outside: str
) -> None:
    znodes.create(f"{outside}/lock")
    znodes.create(f"{outside}/phase", b"1")
    znodes.create(f"{outside}/members")
    with zkplan_client.create_plan() as plan:
        there = plan.add_task(bytes.decode, [when(f"{outside}/done")])
        holds = plan.add_task(len, [when(f"{outside}/phase", value="23")])
        gone = plan.add_task(repr, [when(f"{outside}/lock", absent=True)])
        many = plan.add_task(list, [when(f"{outside}/members", children=2)])
        itself = plan.add_task(when(f"{outside}/done"), name="the gate", keep=True)
        ordered = plan.add_task(lambda: "after", after=[when(f"{outside}/done")])
    with working(*here, threads=1):
        free = zkplan_client.create_plan()
        with free:
            proof = free.add_task(lambda: "a slot is free")
        assert proof.result(30) == "a slot is free"
        assert set(states(plan).values()) == {"gated", "waiting"}
        assert plan.progress().gated == 6
        znodes.set(f"{outside}/phase", b"2")
        znodes.create(f"{outside}/members/a")
        znodes.create(f"{outside}/done", b"yes")
        results = [there.result(30), itself.result(30), ordered.result(30)]
        assert results == ["yes", b"yes", "after"]
        assert plan.progress().gated == 3
        znodes.create(f"{outside}/members/b")
        znodes.delete(f"{outside}/lock")
        znodes.set(f"{outside}/phase", b"23")
        assert (holds.result(30), gone.result(30), many.result(30)) == (2, "None", ["a", "b"])
        plan.wait(30)
    assert zkplan_client.transport.client.get_children(f"{here[1]}/gates") == []


def test_other_workers_watch_the_gates_of_workers_that_left(
    here: Here, zkplan_client: Client, znodes: KazooClient, outside: str, tmp_path: Path
) -> None:
    file = tmp_path / "ran"
    with ExitStack() as stack:
        workers = [stack.enter_context(working(*here, threads=1)) for _ in range(3)]
        with zkplan_client.create_plan() as plan:
            plan.add_task(note, [str(file), "once"], after=[when(f"{outside}/go")])

        def watching() -> str:
            data, _ = znodes.get(f"{here[1]}/gates")
            return str(from_json(data, "gates").get("worker", "")) if data else ""

        wait_until(watching, "a worker watches the gate")
        for worker in sorted(workers, key=lambda each: each.id)[:2]:
            worker.stop(5)
        znodes.create(f"{outside}/go")
        plan.wait(30)
    assert notes(file) == ["once"]


def test_a_gate_that_times_out_fails_and_waits_again_after_a_retry(
    here: Here, zkplan_client: Client, znodes: KazooClient, outside: str
) -> None:
    with zkplan_client.create_plan() as plan:
        task = plan.add_task(len, [when(f"{outside}/late", timeout=0.2)], name="length")
    with working(*here, threads=1):
        with pytest.raises(
            PlanFailed, match=rf"the time for znode {outside}/late to exist is over"
        ):
            plan.wait(30)
        with pytest.raises(GateTimeout) as failed:
            plan.task(f"when {outside}/late").result(5)
        assert failed.value.path == f"{outside}/late"
        znodes.create(f"{outside}/late", b"four")
        assert plan.retry() == 1
        assert task.result(30) == 4


def test_many_gates_on_one_znode_share_one_watch(
    here: Here, zkplan_client: Client, znodes: KazooClient, outside: str
) -> None:
    path, count = f"{outside}/start", 300
    with zkplan_client.create_plan() as plan:
        for number in range(count):
            plan.add_task(lambda n: n, [number], after=[when(path)])
        shared = when(path)
        plan.add_tasks([TaskSpec(lambda n: n, [number], after=[shared]) for number in range(20)])
    assert plan.status().added == 2 * count + 1 + 20  # one gate for each call
    with working(*here) as worker:
        client = worker.client.transport.client
        wait_until(lambda: client._data_watchers.get(path), "the znode is watched")
        wait_until(lambda: znodes.get(f"{here[1]}/gates")[0], "all gates were looked at")
        assert len(client._data_watchers[path]) == 1
        assert sum(outside in watched for watched in client._data_watchers) == 1
        said = str(plan.why())
        assert "last looked at" in said
        assert worker.id in said
        znodes.create(path)
        plan.wait(60)


def test_an_unreadable_znode_of_a_gate_is_named_with_the_missing_right(
    here: Here,
    zkplan_client: Client,
    znodes: KazooClient,
    outside: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keeping, "PERIOD_S", 0.2)
    path = f"{outside}/shut"
    znodes.create(path, b"", [make_digest_acl("other", "word", all=True)])
    with zkplan_client.create_plan() as plan:
        task = plan.add_task(len, [when(path)])
    with working(*here, threads=1) as worker:

        def told() -> bool:
            return f"{path}: the right `read` is missing on {path}" in str(task.why())

        wait_until(told, "why names the path and the right")
        assert f"worker {worker.id} cannot look at it" in str(plan.why())
        gate = next(each for each in plan.tasks() if each.state == "gated")
        shown = described(plan.task(gate.number))
        assert shown["gate"] == zkplan.when(path).condition.text
        assert shown["gate_error"].startswith(f"worker {worker.id}: an access list")
        znodes.add_auth("digest", "other:word")
        znodes.set_acls(path, zkplan_client.transport.client.get_acls(outside)[0])
        assert task.result(30) == 0


def test_a_gate_opens_only_if_its_condition_still_holds_at_that_moment(
    here: Here,
    zkplan_client: Client,
    znodes: KazooClient,
    outside: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path, first = f"{outside}/flag", threading.Event()

    def changed_before(*arguments):  # type: ignore[no-untyped-def]
        if not first.is_set():
            first.set()
            znodes.set(path, b"no")  # after the look, and before the opening
        return (yield from open_gates(*arguments))

    monkeypatch.setattr(keeping, "open_gates", changed_before)
    znodes.create(path, b"go")
    with zkplan_client.create_plan() as plan:
        task = plan.add_task(bytes.decode, [when(path, value=b"go")])
    with working(*here, threads=1):
        wait_until(first.is_set, "a worker was about to open it")
        free = zkplan_client.create_plan()
        with free:
            free.add_task(int)
        free.wait(30)
        assert states(plan) == {f"when {path}": "gated", "bytes.decode": "waiting"}
        znodes.set(path, b"go")
        assert task.result(30) == "go"


def test_a_gate_is_moved_and_removed_with_its_plan(
    here: Here,
    there: Here,
    zkplan_client: Client,
    elsewhere: Client,
    znodes: KazooClient,
    outside: str,
    tmp_path: Path,
) -> None:
    with zkplan_client.create_plan() as plan:
        plan.add_task(len, [when(f"{outside}/moved")], keep=True, name="length")
    plan.pause()
    zkplan_client.export_plan(plan, tmp_path / "plan.zkplan", remove=True)
    assert znodes.get_children(f"{here[1]}/gates") == []
    moved = elsewhere.import_plan(tmp_path / "plan.zkplan")
    assert "gated" in states(moved).values()
    moved.resume()
    with working(*there):
        znodes.create(f"{outside}/moved", b"123")
        assert moved.task("length").result(30) == 3


def test_a_task_adds_tasks_that_wait_for_a_znode(
    here: Here, zkplan_client: Client, znodes: KazooClient, outside: str
) -> None:
    path = f"{outside}/inner"

    def grow() -> None:
        plan = zkplan.current().plan
        plan.add_task(bytes.decode, [zkplan.when(path)], name="inner", keep=True)

    with zkplan_client.create_plan() as plan:
        plan.add_task(grow)
    with working(*here):
        wait_until(lambda: states(plan).get("inner") == "waiting", "the inner task was added")
        znodes.create(path, b"grown")
        plan.wait(30)
    assert plan.task("inner").result(5) == "grown"


def test_a_gate_gets_its_queue_and_key_from_the_task_that_waits_for_it(
    here: Here, zkplan_client: Client, znodes: KazooClient, outside: str
) -> None:
    def report(data: bytes) -> str:
        return data.decode()

    path = f"{outside}/done"
    for is_new in (True, False):  # the second start of a program finds what the first has added
        with zkplan_client.create_plan(key="nightly") as plan:
            assert plan.is_new is is_new
            told = plan.add_task(report, [when(path)], queue="gpu", key="told", keep=True)
            own = plan.add_task(when(path, timeout=0.01), queue="gpu", key="own")
            with pytest.raises(zkplan.InvalidTask, match="takes no not_before"):
                plan.add_task(when(path), key="late", not_before=1.0)
    assert plan.status().tasks == 3
    with working(*here, of_worker={"queues": ["gpu"]}):
        wait_until(lambda: states(plan).get(own.name) == "dead", "its time is over")
        own.retry()
        wait_until(lambda: plan.status().dead, "it has waited anew, and its time is over again")
        znodes.create(path, b"v7")
        assert told.result(30) == "v7"
