"""Workers find plans by the index of active plans; other plans in the root cost them nothing."""

from __future__ import annotations

import itertools
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE, make_acl

from tests.tools.session import monitored
from tests.tools.support import Here, WorkerProcess, wait_until, working
from zkplan import Client, Plan, connect
from zkplan.errors import TransactionRejected
from zkplan.protocol.failpoints import VARIABLE
from zkplan.protocol.layout import active_entry
from zkplan.protocol.requests import Request
from zkplan.runtime import maintenance
from zkplan.runtime import maintenance as plan_scan
from zkplan.testing.server_process import EmbeddedServerProcess
from zkplan.testing.servers import ZooKeeperServer
from zkplan.transport import Transport

#: Numbers that no counter of these tests reaches, so that a scan comes to these plans first.
FIRST = 5_000_000
#: How many seconds longer a worker may take beside such plans: the shortest of TRIES tries.
LATER_S, TRIES = 1.0, 3
FINISHED, NOT_READY = ("ready", "done"), ("add-count", "runnable")


def put_plans(client: Client, znodes: KazooClient, count: int, names: tuple[str, ...]) -> None:
    """Plans with these children."""
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


def first_result_s(here: Here, client: Client) -> float:
    """How long a worker that starts now takes for the result of a plan that is ready."""
    with client.create_plan() as plan:
        task = plan.add_task(int, keep=True)
    began = time.monotonic()
    with working(*here):
        assert task.result(60) == 0
        return time.monotonic() - began


def chain_s(here: Here, client: Client) -> float:
    """How long a worker takes for 300 tasks that wait for each other."""
    with client.create_plan() as plan:
        task = plan.add_task(int)
        for _ in range(300):
            task = plan.add_task(abs, [task])
    with working(*here):
        began = time.monotonic()
        assert task.result(100) == 0
        return time.monotonic() - began


@pytest.mark.bench
@pytest.mark.timeout(600)
@pytest.mark.parametrize("count", [2000, 20_000])
@pytest.mark.parametrize(("what", "names"), [(first_result_s, FINISHED), (chain_s, NOT_READY)])
def test_plans_that_need_nothing_do_not_slow_a_worker_down(
    what: Callable[[Here, Client], float],
    names: tuple[str, ...],
    count: int,
    here: Here,
    zkplan_client: Client,
    znodes: KazooClient,
) -> None:
    alone_s = min(what(here, zkplan_client) for _ in range(TRIES))
    put_plans(zkplan_client, znodes, count, names)
    beside_s = min(what(here, zkplan_client) for _ in range(TRIES))
    sys.stdout.write(f"alone: {alone_s:.2f} s, beside {count} with {names}: {beside_s:.2f} s\n")
    assert beside_s < alone_s + LATER_S


def without_entry(client: Client, znodes: KazooClient) -> Plan:
    """A plan that is ready, and has no entry in the index: as if somebody had deleted that."""
    plan = client.create_plan()
    plan.add_task(int)
    znodes.create(f"{plan.path}/ready", b'{"state":"running"}')
    return plan


@pytest.mark.bench
@pytest.mark.timeout(600)
@pytest.mark.parametrize("count", [2000, 20_000])
def test_a_plan_missing_in_the_index_is_found_among_many_that_are_not_ready(
    here: Here, zkplan_client: Client, znodes: KazooClient, count: int
) -> None:
    """It is the last of a round: those with higher numbers come first."""
    plan = without_entry(zkplan_client, znodes)
    put_plans(zkplan_client, znodes, count, NOT_READY)
    began = time.monotonic()
    with working(*here):
        assert plan.wait(110).state == "done"
        found_s = time.monotonic() - began
    sys.stdout.write(f"beside {count} not ready, one without its entry: {found_s:.1f} s\n")


class Asked(NamedTuple):
    """A request that names plans of `put_plans`, with a name for each time that it names one."""

    at: float
    plans: list[str]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Asked]:
    """The requests of zkplan from now on that name such plans."""
    seen, submit = list[Asked](), Transport.submit

    def recorded(transport: Transport, request: Request, done: Any) -> Any:
        if plans := re.findall(r"/plan-0005\d{6}", repr(request)):
            seen.append(Asked(time.monotonic(), plans))
        return submit(transport, request, done)

    monkeypatch.setattr(Transport, "submit", recorded)
    return seen


@pytest.mark.parametrize("names", [FINISHED, NOT_READY])
def test_a_worker_reads_no_idle_plan_before_its_first_result(
    names: tuple[str, ...],
    here: Here,
    zkplan_client: Client,
    znodes: KazooClient,
    asked: list[Asked],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(maintenance, "SCAN_PERIOD_S", 1000.0)
    put_plans(zkplan_client, znodes, 20, names)
    with zkplan_client.create_plan() as plan:
        task = plan.add_task(int, keep=True)
    with working(*here):
        assert task.result(30) == 0
    assert asked == []


def test_finished_plans_are_read_only_once(
    here: Here,
    zkplan_client: Client,
    znodes: KazooClient,
    asked: list[Asked],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(maintenance, "SCAN_PERIOD_S", 0.01)
    put_plans(zkplan_client, znodes, 20, FINISHED)
    with working(*here):
        wait_until(lambda: len(asked) == 2, "whether they are ready, and whether they are done")
        # Only a later scan finds this one.
        assert without_entry(zkplan_client, znodes).wait(30).state == "done"
    # With the end of each its record is read, which says for how long it stays.
    assert [len(each.plans) for each in asked] == [20, 40]


def test_plans_that_are_not_ready_are_read_in_one_slice_each_period(
    here: Here,
    zkplan_client: Client,
    znodes: KazooClient,
    asked: list[Asked],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One without its entry is found beside them: those with higher numbers come first."""
    size = 50
    monkeypatch.setattr(plan_scan, "SLICE", size)
    monkeypatch.setattr(maintenance, "SCAN_PERIOD_S", 0.2)
    plan = without_entry(zkplan_client, znodes)
    put_plans(zkplan_client, znodes, 2 * size, NOT_READY)
    with working(*here):
        assert plan.wait(30).state == "done"
    first, second = asked[:2]
    assert len(first.plans) == len(second.plans) == size
    assert len({*first.plans, *second.plans}) == 2 * size
    ats = [each.at for each in asked]
    assert all(later - sooner >= 0.2 for sooner, later in itertools.pairwise(ats))


def test_a_plan_is_in_the_index_from_mark_ready_to_its_end(
    here: Here, zkplan_client: Client, znodes: KazooClient
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
    with working(*here):
        run.wait(30)
    assert indexed(zkplan_client, znodes) == set()
    assert {plan.path for plan in zkplan_client.plans()} == {run.path, cancelled.path}


def test_another_worker_ends_a_plan_whose_last_worker_died_before_done(
    here: Here,
    zkplan_client: Client,
    znodes: KazooClient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with zkplan_client.create_plan() as plan:
        task = plan.add_task(int, keep=True)
    monkeypatch.setenv(VARIABLE, "finish.between=kill")
    options = ("--session-timeout", "2")
    with WorkerProcess(*here, tmp_path, *options) as doomed:
        assert doomed.process.wait_ended(30)
        assert doomed.process.exit_code == -signal.SIGKILL
    assert (plan.status().state, plan.status().tasks) == ("running", 0)
    assert indexed(zkplan_client, znodes) == {plan.number}
    monkeypatch.delenv(VARIABLE)
    with working(*here):
        wait_until(lambda: plan.status().state == "done", "the plan is done")
    assert indexed(zkplan_client, znodes) == set()
    assert task.result(1) == 0


def test_an_imported_plan_is_in_the_index_if_it_may_run(
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


@pytest.mark.usefixtures("quick_checks")
def test_foreign_entries_in_the_index_do_not_stop_other_plans(
    here: Here, zkplan_client: Client, znodes: KazooClient
) -> None:
    """Below an entry, in the place of one, of plans that are done or are not."""
    done, first, second = [zkplan_client.create_plan() for _ in range(3)]
    with working(*here):
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


@pytest.mark.usefixtures("quick_checks")
def test_a_deleted_index_or_index_entry_is_restored(
    here: Here, zkplan_client: Client, znodes: KazooClient
) -> None:
    hidden, plan = zkplan_client.create_plan(), zkplan_client.create_plan()
    hidden_task, task = hidden.add_task(int, keep=True), plan.add_task(int, keep=True)
    hidden.mark_ready()
    znodes.delete(zkplan_client.paths.active, recursive=True)
    with working(*here):
        plan.mark_ready()
        assert task.result(30) == 0
        assert hidden_task.result(30) == 0
        for each in (hidden, plan):
            each.wait(30)
    assert indexed(zkplan_client, znodes) == set()


@pytest.mark.parametrize("where", ["plan", "index"])
def test_a_plan_that_may_not_be_marked_ready_or_indexed_reports_it(
    where: str, zkplan_client: Client, znodes: KazooClient
) -> None:
    plan = zkplan_client.create_plan()
    shut = plan.path if where == "plan" else zkplan_client.paths.active
    plan.add_task(int)
    znodes.set_acls(shut, [make_acl("world", "anyone", read=True, delete=True, admin=True)])
    with pytest.raises(TransactionRejected, match=rf"ready was refused: {shut}/.*access list"):
        plan.mark_ready()
    assert plan.status().state == "defining"
    znodes.set_acls(shut, OPEN_ACL_UNSAFE)
    plan.mark_ready()
    assert plan.status().state == "running"


@pytest.fixture
def telling_hosts(zookeeper_kind: str) -> Iterator[str]:
    """A server of its own that answers `mntr`."""
    config = {"4lw.commands.whitelist": "*"}
    is_embedded = zookeeper_kind == "embedded"
    with EmbeddedServerProcess() if is_embedded else ZooKeeperServer(config=config) as server:
        yield server.hosts


def test_workers_keep_no_watches_of_finished_plans(telling_hosts: str) -> None:
    """Two workers alone have twelve, and would have four more for each plan."""
    here = telling_hosts, "/z"
    with working(*here), working(*here), connect(*here) as client:
        for _ in range(10):
            with client.create_plan() as plan:
                plan.add_task(int)
            plan.wait(60)
        wait_until(lambda: monitored(telling_hosts, "zk_watch_count") < 20, "watches are gone")
