"""Workers archive and remove plans whose retention is over; a root can have a budget."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.tools.stores import Place
from tests.tools.support import (
    Here,
    Run,
    Told,
    fail,
    pass_gate,
    secret_of,
    tree,
    wait_until,
    working,
)
from zkplan import (
    BudgetSpent,
    Client,
    PayloadUndecodable,
    Plan,
    StoreUnavailable,
    TaskSpec,
    Worker,
    ZkplanError,
    connect,
)
from zkplan.author.archives import FOLDER, archive_plan
from zkplan.integrations.prometheus import WorkerCollector
from zkplan.integrations.prometheus_endpoint import generate_latest
from zkplan.protocol.requests import ReadData, Request
from zkplan.runtime import maintenance
from zkplan.runtime import retention as bounds
from zkplan.transport import Transport
from zkplan.transport.server_clock import Clock

SECRET = secret_of("ours")


def done(client: Client, name: str, value: Any = 1, **options: Any) -> Plan:
    """A plan of one task, which a worker ends."""
    with client.create_plan(name, **options) as plan:
        plan.add_task(str, [value], keep=True, name="one")
    plan.wait(30)
    return plan


def ended(client: Client, name: str, **options: Any) -> Plan:
    """A plan that is cancelled; no worker takes its queue, or the plan might be done before."""
    plan = client.create_plan(name, **options)
    plan.add_task(int, queue="nobody")
    plan.mark_ready()
    plan.cancel()
    return plan


def names(client: Client) -> set[str]:
    return {plan.name for plan in client.plans()}


@pytest.fixture(autouse=True)
def quick_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "SCAN_PERIOD_S", 0.05)
    # A scan of 0.3 s on a loaded machine is followed by a rest of 30 s with the usual cost.
    monkeypatch.setattr(maintenance, "SCAN_COST", 1.0)
    for name in ("PERIOD_S", "REST_S", "LOOK_S", "HEAD_START_S"):
        monkeypatch.setattr(bounds, name, 0.1)


def test_workers_remove_only_done_or_cancelled_plans(
    zkplan_client: Client, here: Here, tmp_path: Path, znodes: KazooClient
) -> None:
    zkplan_client.prepare()
    gate = tmp_path / "gate"
    zkplan_client.create_plan("is being defined", retention=0)
    with zkplan_client.create_plan("paused", retention=0) as paused:
        paused.add_task(int)
    paused.pause()
    with working(*here), working(*here):
        with zkplan_client.create_plan("failed", attempts=1, retention=0) as failed:
            failed.add_task(str, [failed.add_task(fail)])
        with zkplan_client.create_plan("stops", retention=0) as stops:
            stops.add_task(pass_gate, [str(gate)])
        done(zkplan_client, "for ever", retention=math.inf)
        done(zkplan_client, "the root's")
        wait_until((tmp_path / "gate-reached").exists, "the task runs")
        stops.cancel()
        wait_until(lambda: failed.status().dead == 1, "a dead task")
        for index in range(5):
            ended(zkplan_client, f"cancelled {index}", retention=0)
            with zkplan_client.create_plan(f"done {index}", retention=0.2) as plan:
                plan.add_task(str, ["x"], keep=True)
        stay = {"is being defined", "paused", "failed", "stops", "for ever", "the root's"}
        wait_until(lambda: names(zkplan_client) == stay, "the others are removed")
        gate.touch()
        wait_until(lambda: "stops" not in names(zkplan_client), "its task has ended")
        assert zkplan_client.set_retention(0).retention == 0
        wait_until(lambda: "the root's" not in names(zkplan_client), "the root's is over")
        assert names(zkplan_client) == stay - {"stops", "the root's"}
        assert failed.status().state in ("running", "failed")
    standing = {path.split("/")[1] for path in tree(znodes, here[1]) if path.startswith("/plan-")}
    assert standing == {plan.path.rpartition("/")[2] for plan in zkplan_client.plans()}


@pytest.mark.either
def test_a_plan_keeps_the_retention_of_its_plan_file_wherever_it_is_moved(
    zkplan_client: Client, here: Here, run: Run, tmp_path: Path
) -> None:
    file, moved = tmp_path / "plan.toml", tmp_path / "moved"
    text = '[plan]\nname = "{}"\nretention = {}\n[tasks.t]\nshell = "true"\n'
    file.write_text(text.format("wrong", -1))
    refused = run("run", str(file), "--check").err
    assert "[plan]: retention must be 0 or more seconds" in refused
    for name, retention in (("stays", "inf"), ("moves", "0.5")):
        file.write_text(text.format(name, retention))
        assert run("run", str(file), "--no-wait").code == 0
    zkplan_client.export_plan(zkplan_client.plan("moves"), moved, pause=True, remove=True)
    plan = zkplan_client.import_plan(moved)
    assert plan.record.retention == 0.5
    plan.resume()
    with working(*here):
        wait_until(lambda: names(zkplan_client) == {"stays"}, "the moved plan is over")


@pytest.mark.parametrize("days", [10, -10])
def test_retention_ends_by_the_clock_of_the_server_not_of_the_worker(
    days: int, zkplan_client: Client, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten days ahead, a retention of a day is over at once; ten days behind, none is for days."""
    wrong = Clock(wall=lambda: time.time() + 86400 * days)
    monkeypatch.setattr("zkplan.worker.CLOCK", wrong)
    monkeypatch.setattr(bounds, "PERIOD_S", 3600.0)  # no round is early by itself
    ended(zkplan_client, "a day", retention=86400)
    ended(zkplan_client, "over", retention=0)
    with working(*here):
        wait_until(lambda: names(zkplan_client) == {"a day"}, "the others are removed")
        ended(zkplan_client, "over, too", retention=0)
        wait_until(lambda: names(zkplan_client) == {"a day"}, "the next is removed")
    assert zkplan_client.gc() == []


def test_a_worker_reads_the_bounds_of_its_root_when_it_finds_a_finished_plan(
    zkplan_client: Client, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that live for less than a round would never know it."""
    monkeypatch.setattr(bounds, "PERIOD_S", 3600.0)
    zkplan_client.set_retention(0)
    tick = zkplan_client.schedule("tick", "* * * * * *", int)
    with working(*here):
        wait_until(lambda: tick.info().fired, "it is fired, so the time is known")
        tick.pause()
        wait_until(lambda: names(zkplan_client) == set(), "its plans are removed")


def test_the_next_worker_completes_a_half_done_removal_and_frees_the_key(
    zkplan_client: Client, here: Here, znodes: KazooClient
) -> None:
    plan = ended(zkplan_client, "keyed", retention=0, key="nightly")
    for name in (f"task-{next(plan.tasks()).number}", "runnable", "dead"):
        znodes.delete(f"{plan.path}/{name}", recursive=True)
    with working(*here):
        wait_until(lambda: names(zkplan_client) == set(), "it is removed")
    assert zkplan_client.create_plan("again", key="nightly").is_new
    assert znodes.get_children(zkplan_client.paths.keys) != []


def test_an_end_written_without_the_key_removes_no_plan(here: Here, znodes: KazooClient) -> None:
    with connect(*here, secret=SECRET) as client:
        forged = client.create_plan("forged", retention=0)
        forged.add_task(int, queue="nobody")
        forged.mark_ready()
        znodes.create(f"{forged.path}/done", b'{"when":1,"failed":0}')
        znodes.delete(f"{client.paths.active}/{forged.number}")
        with working(*here, secret=SECRET):
            for name in ("over", "over, too"):
                ended(client, name, retention=0)
                wait_until(lambda: names(client) == {"forged"}, "the other is removed")
        client.set_retention(7.0)
        znodes.set(client.paths.bounds, b'{"retention":0}')
        with pytest.raises(PayloadUndecodable):
            client.bounds()


def test_finished_plans_that_are_kept_cost_a_worker_one_request_a_round(
    zkplan_client: Client, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, submit = list[str](), Transport.submit

    def recorded(transport: Transport, request: Request, end: Any) -> Any:
        reads = [request] if type(request) is ReadData else getattr(request, "reads", ())
        seen.extend(each.path for each in reads if "/plan-" in each.path or "bounds" in each.path)
        return submit(transport, request, end)

    for index in range(20):
        ended(zkplan_client, f"stays {index}")
    monkeypatch.setattr(Transport, "submit", recorded)
    with working(*here):
        rounds = zkplan_client.paths.bounds
        wait_until(lambda: seen.count(rounds) > 3, "some rounds")
        wait_until(lambda: len(seen) - seen.count(rounds) >= 60, "all plans are scanned")
        so_far = len(seen) - seen.count(rounds)
        wait_until(lambda: seen.count(rounds) > 8, "more rounds")
    assert len(seen) - seen.count(rounds) == so_far == 60  # ready, done, record


# ---- archives


@contextmanager
def archiving(place: Place) -> Iterator[Worker]:
    with place.working() as worker:
        yield worker


def test_a_plan_is_archived_before_its_removal_and_can_be_restored_whole(
    client: Client, place: Place, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.set_retention(archive=True)
    with archiving(place):
        plan = done(client, "report", "x" * 1000, retention=0.3)
        task = plan.task("one").number
        wait_until(lambda: names(client) == set(), "it is archived and removed")
    (found,) = client.archived_plans()
    assert (found.plan, found.path, found.state) == ("report", plan.path, "done")
    monkeypatch.setenv("ZKPLAN_STORE", place.options["store"])
    (row,) = run("plan", "archived", "-o", "json").data
    assert row["file"] == found.file
    run("plan", "import", found.file, "--archived")
    back = client.plan("report")
    assert (back.status().state, back.task(task).result(1)) == ("done", "x" * 1000)
    # Its retention begins anew, by the time of its import.
    assert client.archived_plans() == [found]
    missing = run("plan", "import", found.file.replace("plan-0", "plan-1"), "--archived")
    assert "is not in the store" in missing.err


def test_an_archive_is_not_overwritten_from_a_half_removed_plan(
    client: Client, place: Place, znodes: KazooClient
) -> None:
    """So does whoever finds what a worker left that died in the removal."""
    plan = ended(client, "half")
    name = archive_plan(client, plan.path)
    znodes.delete(f"{plan.path}/task-{next(plan.tasks()).number}", recursive=True)
    (row,) = client.gc(keep=0, archive=True)
    assert (row.outcome, row.archived) == ("removed", name)
    back = client.import_plan(name, archived=True)
    assert len(list(back.tasks())) == 1
    again = archive_plan(client, back.path)
    (place.folder / FOLDER / again).write_bytes(b"damaged")
    (row,) = client.gc(keep=0, archive=True)
    assert "is damaged" in row.outcome
    assert names(client) == {"half"}


def test_a_plan_that_could_not_be_archived_is_not_removed(
    client: Client, zkplan_client: Client, place: Place, here: Here, told: Told
) -> None:
    (place.folder / FOLDER).parent.mkdir(exist_ok=True)
    (place.folder / FOLDER).write_text("a file where the folder belongs")
    client.set_retention(0, archive=True)
    ended(client, "kept")
    with archiving(place) as worker:
        told("but it stays")
        text = generate_latest(WorkerCollector(worker)).decode()
        assert f'zkplan_worker_failed_removals_total{{worker="{worker.id}"}} 1.0' in text
        (row,) = client.gc(archive=True)
        assert row.outcome.startswith("kept: the store")
        assert names(client) == {"kept"}
        (place.folder / FOLDER).unlink()
        wait_until(lambda: names(client) == set(), "it is archived after all")
    ended(zkplan_client, "no store")
    (row,) = zkplan_client.gc(archive=True)
    assert "there is no store for archives" in row.outcome
    with pytest.raises(StoreUnavailable, match="give one"):
        zkplan_client.archived_plans()


# ---- the budget


def test_a_root_at_its_budget_refuses_new_plans_and_the_others_go_on(
    zkplan_client: Client, here: Here, caplog: pytest.LogCaptureFixture
) -> None:
    with zkplan_client.create_plan("first") as first:
        first.add_tasks([TaskSpec(int) for _ in range(10)])
    used = zkplan_client.set_budget(znodes=1000).used
    assert used is not None
    assert used.exact
    assert used.znodes == len(tree(zkplan_client.transport.client, first.path))
    zkplan_client.set_budget(znodes=used.znodes + 3)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            ended(zkplan_client, "second", retention=0)
    assert len([each for each in caplog.messages if "or more of their budget" in each]) == 1
    assert zkplan_client.bounds(count=True).share > 1
    for key in (None, "one"):
        with pytest.raises(BudgetSpent, match="zkplan root budget set") as refused:
            zkplan_client.create_plan("third", key=key)
    assert refused.value.root == here[1]
    first.add_task(int)
    with working(*here):
        assert first.wait(30).state == "done"
        wait_until(lambda: names(zkplan_client) == {"first"}, "the worker removes them")
        wait_until(lambda: zkplan_client.bounds().share < 0.8, "the worker counts anew")
    zkplan_client.create_plan("third")
    assert zkplan_client.set_budget(bytes=10).share > 1
    assert not zkplan_client.set_budget().has_budget
    zkplan_client.create_plan("fourth")


def test_commands_show_and_set_retention_and_budget(zkplan_client: Client, run: Run) -> None:
    ended(zkplan_client, "old")
    assert run("root", "retention", "show", "-o", "json").data["retention"] == 30 * 86400
    asked = run("root", "retention", "set", "7d")
    assert (asked.code, "confirm with --yes" in asked.err) == (2, True)
    assert zkplan_client.bounds().retention == 30 * 86400
    words = ("root", "retention", "set")
    assert "7 days" in run(*words, "7d", "--archive", "--yes").out
    assert "for ever" in run(*words, "forever").out
    assert zkplan_client.bounds().archive
    run("root", "retention", "rm", "--yes")
    assert (zkplan_client.bounds().archive, zkplan_client.bounds().retention) == (False, 2592000)
    facts = run("root", "budget", "set", "--znodes", "18", "--bytes", "1MB", "-o", "json").data
    assert (facts["znodes"], facts["bytes"], facts["used"]["plans"]) == (18, 1_000_000, 1)
    ended(zkplan_client, "second")
    spent = run("root", "budget", "show", "--count", "-o", "json")
    assert (spent.code, spent.data["share"] >= 1) == (1, True)
    refused = run("schedule", "add", "nightly", "@yearly", "operator:pos", "--args", "[1]")
    assert refused.code == 0
    refused = run("schedule", "trigger", "nightly")
    assert (refused.code, "all of their budget" in refused.err) == (2, True)
    gone = run("plan", "gc", "--keep", "0", "--yes")
    assert gone.code == 0
    assert run("root", "budget", "show").code == 0
    assert run("root", "budget", "rm", "-o", "json").data["share"] is None
    assert "give --znodes or --bytes" in run("root", "budget", "set").err


def test_bounds_damaged_by_hand_remove_and_refuse_nothing(
    zkplan_client: Client, here: Here, znodes: KazooClient, told: Told
) -> None:
    ended(zkplan_client, "stays")
    zkplan_client.set_budget(znodes=0)
    znodes.set(zkplan_client.paths.bounds, b"\xff{")
    zkplan_client.create_plan("new")
    with working(*here):
        told("is damaged, somebody changed it")
    with pytest.raises(ZkplanError, match="set again"):
        zkplan_client.gc()
    for wrong in ({"znodes": -1}, {"bytes": "much"}):
        with pytest.raises(ZkplanError, match="must be a"):
            zkplan_client.set_budget(**wrong)
    with pytest.raises(ZkplanError, match="0 or more seconds"):
        zkplan_client.set_retention(-1)
    assert zkplan_client.set_retention(math.inf).retention == math.inf
    assert zkplan_client.gc() == []
