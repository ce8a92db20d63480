"""`gc` removes ended plans by rule or by their own retention, and no running plan."""

from __future__ import annotations

import os
import pty
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.tools.support import Here, Run, fail, pass_gate, tree, wait_until, zkplan_command
from zkplan import Client, InvalidTask, Plan, Worker, ZkplanError, connect
from zkplan.author import retention
from zkplan.protocol.core import plan_life as control
from zkplan.protocol.records import PlanRecord
from zkplan.protocol.requests import ReadData
from zkplan.views.deadlock import dead_if_deadlocked


def ended(client: Client, name: str, **options: Any) -> Plan:
    """A plan that is cancelled; one that is done needs a worker."""
    plan = client.create_plan(name, **options)
    plan.add_task(int)
    plan.mark_ready()
    plan.cancel()
    return plan


def names(client: Client) -> list[str]:
    return [plan.name for plan in client.plans()]


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the server is ten days ahead."""
    real = retention.server_now
    monkeypatch.setattr(retention, "server_now", lambda client: real(client) + 864000)


def test_only_plans_that_have_ended_are_collected(
    zkplan_client: Client, worker: Worker, tmp_path: Path, later: None
) -> None:
    with zkplan_client.create_plan("done") as done:
        done.add_task(int, keep=True)
    done.wait(30)
    with zkplan_client.create_plan("runs") as runs:
        runs.add_task(pass_gate, [str(tmp_path / "gate")])
    with zkplan_client.create_plan("cancelled, but its task runs") as stops:
        stops.add_task(pass_gate, [str(tmp_path / "other")])
    for gate in ("gate", "other"):
        wait_until((tmp_path / f"{gate}-reached").exists, "the task runs")
    stops.cancel()
    zkplan_client.create_plan("is being defined")
    ended(zkplan_client, "cancelled")
    found = zkplan_client.gc(older_than=86400)
    assert [(plan.name, plan.state, plan.outcome) for plan in found] == [
        ("done", "done", "removed"),
        ("cancelled", "cancelled", "removed"),
    ]
    for gate in ("gate", "other"):
        (tmp_path / gate).touch()
    assert names(zkplan_client) == ["runs", "cancelled, but its task runs", "is being defined"]
    assert runs.wait(30).state == "done"


def test_a_plan_is_removed_only_if_every_rule_allows_it(zkplan_client: Client, later: None) -> None:
    plans = [ended(zkplan_client, f"plan {index}") for index in range(4)]
    assert zkplan_client.gc() == zkplan_client.gc(older_than=2 * 864000, keep=1) == []
    found = zkplan_client.gc(older_than=86400, keep=3, dry_run=True)
    assert [(plan.path, plan.outcome) for plan in found] == [(plans[0].path, "")]
    size = zkplan_client.transport.run(retention.znodes_of(plans[0].path))
    found = zkplan_client.gc(max_znodes=2 * size)
    assert [(plan.name, plan.znodes) for plan in found] == [("plan 0", size), ("plan 1", size)]
    assert names(zkplan_client) == ["plan 2", "plan 3"]


def test_the_znodes_of_a_plan_are_counted_exactly(
    zkplan_client: Client, worker: Worker, zookeeper_hosts: str
) -> None:
    with zkplan_client.create_plan() as plan:
        for _ in range(3):
            plan.add_task(int, keep=True)
    plan.wait(30)
    counted = zkplan_client.transport.run(retention.znodes_of(plan.path))
    assert counted == len(tree(zkplan_client.transport.client, plan.path))


def test_a_plan_with_a_retention_ignores_the_given_rules(
    zkplan_client: Client, request: pytest.FixtureRequest
) -> None:
    ended(zkplan_client, "a day", retention=86400)
    ended(zkplan_client, "a year", retention=365 * 86400)
    assert zkplan_client.gc(keep=0) == []
    request.getfixturevalue("later")
    (found,) = zkplan_client.gc()
    assert (found.name, found.outcome) == ("a day", "removed")
    assert found.reason == "its retention of 24 h is over"
    assert names(zkplan_client) == ["a year"]
    assert zkplan_client.plan("a year").record.retention == 365 * 86400


def test_a_plan_without_retention_has_no_retention_in_its_record() -> None:
    record = PlanRecord("name", "uid", 1.0)
    assert b"retention" not in record.to_bytes()
    kept = PlanRecord("name", "uid", 1.0, retention=5.0)
    assert PlanRecord.from_bytes(kept.to_bytes()) == kept
    damaged = kept.to_bytes().replace(b'"retention":5.0', b'"retention":"soon"')
    assert PlanRecord.from_bytes(damaged).retention is None


@pytest.mark.usefixtures("quick_looks")
def test_a_failed_plan_is_removed_only_if_asked_for_and_still_failed(
    zkplan_client: Client, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zkplan_client.create_plan("failed", attempts=1) as plan:
        plan.add_task(str, [plan.add_task(fail)])
    wait_until(lambda: plan.status().state == "failed", "the plan has failed")
    assert zkplan_client.gc(keep=0) == []

    def changed_after(paths: Any, path: str) -> Any:
        dead = yield from dead_if_deadlocked(paths, path)
        plan.add_task(int)
        return dead

    monkeypatch.setattr(retention, "dead_if_deadlocked", changed_after)
    (found,) = zkplan_client.gc(keep=0, states=["failed"])
    assert found.outcome == "kept: it is not failed any more, or has changed"
    monkeypatch.setattr(retention, "dead_if_deadlocked", dead_if_deadlocked)
    wait_until(lambda: plan.status().state == "failed", "the plan has failed again")
    (found,) = zkplan_client.gc(keep=0, states=["failed"])
    assert (found.outcome, names(zkplan_client)) == ("removed", [])


def test_a_retry_after_the_proof_saves_a_failed_plan(zkplan_client: Client, worker: Worker) -> None:
    with zkplan_client.create_plan("failed", attempts=1) as plan:
        task = plan.add_task(fail)
    wait_until(lambda: plan.status().state == "failed", "the plan has failed")
    ask = zkplan_client.transport.ask
    ready, adds = (ask(ReadData(f"{plan.path}/{name}")) for name in ("ready", "add-count"))
    worker.stop(10)
    assert task.retry()
    step = control.cancel_as_read(plan.path, ready, adds, True, [task.number])
    assert not zkplan_client.transport.run(step)
    assert plan.status().state == "running"


def test_several_collectors_at_once_remove_each_plan_without_an_error(
    zkplan_client: Client, here: Here
) -> None:
    for index in range(30):
        ended(zkplan_client, f"plan {index}")
    outcomes: list[str] = []
    start = threading.Barrier(4)

    def collect() -> None:
        with connect(here[0], root=here[1]) as client:
            start.wait()
            outcomes.extend(plan.outcome for plan in client.gc(keep=0))

    threads = [threading.Thread(target=collect) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(outcomes) == {"removed"}
    assert names(zkplan_client) == []


def test_gc_lists_the_plans_to_remove_and_asks(zkplan_client: Client, here: Here, run: Run) -> None:
    ended(zkplan_client, "old")
    dry = run("plan", "gc", "--keep", "0", "--dry-run", "-o", "json")
    assert [(row["name"], row["outcome"]) for row in dry.data] == [("old", "")]
    asked = run("plan", "gc", "--keep", "0")
    assert (asked.code, names(zkplan_client)) == (2, ["old"])
    assert "confirm with --yes" in asked.err
    typed, terminal = pty.openpty()
    os.write(typed, b"n\n")
    words = ("plan", "gc", "--keep", "0", "--hosts", here[0], "--root", here[1])
    no = zkplan_command(*words, stdin=terminal)
    os.close(terminal)
    os.close(typed)
    assert (no.returncode, names(zkplan_client)) == (2, ["old"])
    assert "Remove 1 finished plan?" in no.stderr
    assert "old" in no.stdout
    assert "removed" in run("plan", "gc", "--older-than", "0s", "--yes").out
    assert names(zkplan_client) == []
    assert "no finished plan under" in run("plan", "gc", "--keep", "0", "--yes").err


def test_an_invalid_rule_is_refused(zkplan_client: Client, run: Run) -> None:
    for rule in ({"older_than": -1}, {"keep": -1}, {"states": ["running"]}, {"states": "done"}):
        with pytest.raises(ZkplanError):
            zkplan_client.gc(**rule)
    for wrong_retention in (-1, "7d"):
        with pytest.raises(InvalidTask, match="retention must be 0 or more seconds"):
            zkplan_client.create_plan(retention=wrong_retention)  # type: ignore[arg-type]
    wrong = run("plan", "gc", "--older-than", "a week")
    assert (wrong.code, "write 90s, 30m, 12h, 7d or 2w" in wrong.err) == (2, True)
