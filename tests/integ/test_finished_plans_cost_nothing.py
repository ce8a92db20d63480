"""Workers find plans by the index of active ones: what else lies in the root costs them nothing."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE, make_acl

from zkplan import Client
from zkplan.errors import TransactionRejected
from zkplan.protocol.failpoints import VARIABLE
from zkplan.protocol.layout import active_entry
from zkplan.runtime import maintenance

from .support import WorkerProcess, wait_until, working
from .test_plans_of_plain_creates_run import Builder

#: Numbers that no counter of these tests reaches.
FIRST = 5_000_000
#: How much longer it may take beside them, in seconds: the shortest of so many tries.
LATER_S, TRIES = 1.0, 3
COUNTS = [2000, pytest.param(20_000, marks=[pytest.mark.bench, pytest.mark.timeout(600)])]


def put_plans(client: Client, znodes: KazooClient, count: int, *names: str) -> None:
    """Plans with these children; with `ready` and `done` they are finished."""
    client.prepare()
    for start in range(0, count, 200):
        many = znodes.transaction()
        for number in range(FIRST + start, FIRST + min(count, start + 200)):
            path = f"{client.root}/plan-{number:010d}"
            many.create(path)
            for name in names:
                many.create(f"{path}/{name}")
        assert not [made for made in many.commit() if isinstance(made, Exception)]


def indexed(client: Client, znodes: KazooClient) -> set[str]:
    return set(znodes.get_children(client.paths.active))


def first_result_s(hosts: str, client: Client) -> float:
    """How long a worker that starts now takes for the result of a plan that is ready."""
    with client.create_plan() as plan:
        task = plan.add_task(int, keep=True)
    began = time.monotonic()
    with working(hosts, client.root):
        assert task.result(60) == 0
        return time.monotonic() - began


def chain_s(hosts: str, client: Client, tasks: int) -> float:
    """How long a worker takes for tasks that wait for each other."""
    with client.create_plan() as plan:
        task = plan.add_task(int)
        for _ in range(tasks):
            task = plan.add_task(abs, [task])
    with working(hosts, client.root):
        began = time.monotonic()
        assert task.result(100) == 0
        return time.monotonic() - began


@pytest.mark.parametrize("count", COUNTS)
def test_a_worker_starts_beside_finished_plans_as_beside_none(
    zookeeper_hosts: str, zkplan_client: Client, znodes: KazooClient, count: int
) -> None:
    alone_s = min(first_result_s(zookeeper_hosts, zkplan_client) for _ in range(TRIES))
    put_plans(zkplan_client, znodes, count, "ready", "done")
    beside_s = min(first_result_s(zookeeper_hosts, zkplan_client) for _ in range(TRIES))
    sys.stdout.write(f"first result: {alone_s:.2f} s, beside {count} done: {beside_s:.2f} s\n")
    assert beside_s < alone_s + LATER_S


@pytest.mark.parametrize("count", COUNTS)
def test_plans_that_are_not_ready_do_not_stall_one_that_runs(
    zookeeper_hosts: str, zkplan_client: Client, znodes: KazooClient, count: int
) -> None:
    alone_s = min(chain_s(zookeeper_hosts, zkplan_client, 300) for _ in range(TRIES))
    put_plans(zkplan_client, znodes, count, "add-count", "runnable")
    beside_s = min(chain_s(zookeeper_hosts, zkplan_client, 300) for _ in range(TRIES))
    sys.stdout.write(f"300 tasks: {alone_s:.2f} s, beside {count} unready: {beside_s:.2f} s\n")
    assert beside_s < alone_s + LATER_S


@pytest.mark.parametrize("count", COUNTS)
def test_a_plan_of_plain_creates_is_found_beside_many_that_are_not_ready(
    zookeeper_hosts: str, zkplan_client: Client, znodes: KazooClient, count: int
) -> None:
    """It is the last of a round: those with higher numbers come first."""
    built = Builder(zkplan_client, znodes, fixed=False)
    name = built.task(int)
    put_plans(zkplan_client, znodes, count, "add-count", "runnable")
    with working(zookeeper_hosts, zkplan_client.root):
        assert zkplan_client.create_plan().path > built.path
        built.ready()
        began = time.monotonic()
        assert zkplan_client.plan(built.path).task(name[5:]).result(110) == 0
        found_s = time.monotonic() - began
    sys.stdout.write(f"beside {count} unready, one of plain creates: {found_s:.1f} s\n")


@pytest.mark.usefixtures("worker")
def test_an_entry_made_by_its_client_has_a_plan_of_plain_creates_found_at_once(
    zkplan_client: Client, znodes: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "SCAN_PERIOD_S", 1000.0)
    built = Builder(zkplan_client, znodes, fixed=False)
    name = built.task(int)
    built.ready()
    znodes.create(active_entry(built.path))
    assert zkplan_client.plan(built.path).task(name[5:]).result(30) == 0


def test_a_plan_is_in_the_index_from_ready_to_its_end(
    zookeeper_hosts: str, zkplan_client: Client, znodes: KazooClient
) -> None:
    plans = [zkplan_client.create_plan() for _ in range(4)]
    run, cancelled, removed, unready = plans
    for plan in plans:
        plan.add_task(int)
    assert indexed(zkplan_client, znodes) == set()
    for plan in plans[:3]:
        plan.mark_ready()
        plan.mark_ready()
    assert indexed(zkplan_client, znodes) == {plan.number for plan in plans[:3]}
    run.pause()
    run.resume()
    assert run.number in indexed(zkplan_client, znodes)
    cancelled.cancel()
    cancelled.cancel()
    unready.cancel()
    assert indexed(zkplan_client, znodes) == {run.number, removed.number}
    removed.remove()
    unready.remove()
    assert indexed(zkplan_client, znodes) == {run.number}
    with working(zookeeper_hosts, zkplan_client.root):
        run.wait(30)
    assert indexed(zkplan_client, znodes) == set()
    assert {plan.path for plan in zkplan_client.plans()} == {run.path, cancelled.path}


def test_a_plan_whose_last_worker_was_killed_before_done_is_ended_by_the_next(
    zookeeper_hosts: str,
    zkplan_client: Client,
    znodes: KazooClient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with zkplan_client.create_plan() as plan:
        task = plan.add_task(int, keep=True)
    monkeypatch.setenv(VARIABLE, "finish.between=kill")
    options = ("--session-timeout", "2")
    with WorkerProcess(zookeeper_hosts, zkplan_client.root, tmp_path, *options) as doomed:
        assert doomed.process.wait_ended(30)
        assert doomed.process.exit_code == -signal.SIGKILL
    assert (plan.status().state, plan.status().tasks) == ("running", 0)
    assert indexed(zkplan_client, znodes) == {plan.number}
    monkeypatch.delenv(VARIABLE)
    with working(zookeeper_hosts, zkplan_client.root):
        wait_until(lambda: plan.status().state == "done", "the plan is done")
    assert indexed(zkplan_client, znodes) == set()
    assert task.result(1) == 0


def test_an_imported_plan_is_in_the_index_where_it_may_run(
    zkplan_client: Client, znodes: KazooClient, tmp_path: Path
) -> None:
    with zkplan_client.create_plan("paused") as paused:
        paused.add_task(int)
    paused.pause()
    unready = zkplan_client.create_plan("unready")
    copies = {}
    for plan in (paused, unready):
        zkplan_client.export_plan(plan, tmp_path / plan.number)
        copies[plan] = zkplan_client.import_plan(tmp_path / plan.number, copy=True)
    assert indexed(zkplan_client, znodes) == {paused.number, copies[paused].number}
    zkplan_client.export_plan(paused, tmp_path / "last", remove=True)
    assert indexed(zkplan_client, znodes) == {copies[paused].number}
    copies[paused].cancel()
    zkplan_client.export_plan(copies[paused], tmp_path / "cancelled")
    zkplan_client.import_plan(tmp_path / "cancelled", copy=True)
    assert indexed(zkplan_client, znodes) == set()


def test_entries_of_somebody_else_stop_nothing(
    zookeeper_hosts: str, zkplan_client: Client, znodes: KazooClient
) -> None:
    """Below an entry, in the place of one, of plans that are done or are not."""
    done, first, second = [zkplan_client.create_plan() for _ in range(3)]
    with working(zookeeper_hosts, zkplan_client.root):
        done.mark_ready()
        done.wait(30)
        znodes.create(f"{active_entry(first.path)}/below/below", makepath=True)
        for path in (done.path, f"{zkplan_client.root}/plan-0099999999"):
            znodes.create(active_entry(path))
        for name in ("x", "plan-0000000004", "00000000001"):
            znodes.create(f"{zkplan_client.paths.active}/{name}")
        tasks = [plan.add_task(int, keep=True) for plan in (first, second)]
        first.mark_ready()
        second.mark_ready()
        znodes.create(f"{active_entry(second.path)}/below")
        assert [task.result(30) for task in tasks] == [0, 0]
        for plan in (first, second):
            plan.wait(30)
        left = {"x", "plan-0000000004", "00000000001", "0099999999"}
        wait_until(lambda: indexed(zkplan_client, znodes) == left, "the entry of the done one goes")


def test_an_index_or_an_entry_that_was_taken_away_comes_again(
    zookeeper_hosts: str, zkplan_client: Client, znodes: KazooClient
) -> None:
    hidden, plan = zkplan_client.create_plan(), zkplan_client.create_plan()
    hidden_task, task = hidden.add_task(int, keep=True), plan.add_task(int, keep=True)
    hidden.mark_ready()
    znodes.delete(zkplan_client.paths.active, recursive=True)
    with working(zookeeper_hosts, zkplan_client.root):
        plan.mark_ready()
        assert task.result(30) == 0
        assert hidden_task.result(30) == 0
        for each in (hidden, plan):
            each.wait(30)
    assert indexed(zkplan_client, znodes) == set()


def test_a_plan_that_cannot_be_indexed_is_not_marked_ready(
    zkplan_client: Client, znodes: KazooClient
) -> None:
    plan = zkplan_client.create_plan()
    znodes.set_acls(
        zkplan_client.paths.active, [make_acl("world", "anyone", read=True, admin=True)]
    )
    with pytest.raises(TransactionRejected, match="/active/"):
        plan.mark_ready()
    assert plan.status().state == "defining"
    znodes.set_acls(zkplan_client.paths.active, OPEN_ACL_UNSAFE)
    plan.mark_ready()
    assert plan.status().state == "running"
