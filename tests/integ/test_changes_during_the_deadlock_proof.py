"""A wait reports the truth even if a plan changes between a look and its deadlock proof."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE, make_acl

import zkplan
from tests.tools.support import WAIT_S, Here, blocked_plan, fail, pass_gate, wait_until, working
from zkplan import Client, PlanFailed, WaitTimeout
from zkplan.author import patience
from zkplan.protocol.features.plan_check import Report, check
from zkplan.protocol.layout import Paths
from zkplan.protocol.requests import Step
from zkplan.views import deadlock

#: A proof comes after some looks without a change.
pytestmark = pytest.mark.usefixtures("quick_looks")

Between = Callable[[zkplan.Plan, Callable[[zkplan.Plan], bool]], None]


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    return tmp_path / "gate"


def fail_behind(gate: str) -> None:
    pass_gate(gate)
    fail()


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch, gate: Path) -> Iterator[Between]:
    """Opens the gate when it is to be proved that nothing can run, and waits for what follows."""

    def when(plan: zkplan.Plan, has_come: Callable[[zkplan.Plan], bool]) -> None:
        def proved(paths: Paths, plan_path: str) -> Step[int | None]:
            gate.touch()
            wait_until(lambda: has_come(plan), "what is to come between has come")
            return deadlock.dead_if_deadlocked(paths, plan_path)

        monkeypatch.setattr(patience, "dead_if_deadlocked", proved)

    yield when
    gate.touch()


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("what", ["plan", "task"])
def test_a_task_that_dies_during_the_check_is_reported_and_not_called_a_cycle(
    what: str, zkplan_client: Client, between: Between, gate: Path
) -> None:
    with zkplan_client.create_plan(attempts=1) as plan:
        task = plan.add_task(fail_behind, [str(gate)])
        plan.add_task(str, [task])
    between(plan, lambda plan: plan.status().dead == 1)
    if what == "plan":
        with pytest.raises(PlanFailed, match="is out of attempts, the other depends on it"):
            plan.wait(WAIT_S)
    else:
        assert repr(task.exception(WAIT_S)) == "ValueError('on purpose')"


@pytest.mark.usefixtures("worker")
def test_a_wait_returns_a_result_although_another_task_is_dead(
    zkplan_client: Client, between: Between, gate: Path
) -> None:
    with zkplan_client.create_plan(attempts=1) as plan:
        plan.add_task(fail)
        task = plan.add_task(pass_gate, [str(gate)], keep=True)
    wait_until(lambda: plan.status().dead == 1, "the other is dead")
    between(plan, lambda plan: plan.status().tasks == 1)
    assert task.result(WAIT_S) == "open"


def test_a_plan_is_not_stuck_if_a_task_is_added_during_the_check(
    zkplan_client: Client, znodes: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes after the proof, and before the plan is read for what its tasks wait for."""
    plan = blocked_plan(zkplan_client, znodes)

    def adds_first(paths: Paths, number: str, repair: bool) -> Step[Report]:
        monkeypatch.setattr(deadlock, "check", check)
        plan.add_task(str, [plan.add_task(int)])
        return check(paths, number, repair)

    monkeypatch.setattr(deadlock, "check", adds_first)
    with pytest.raises(WaitTimeout, match="no worker is registered"):
        plan.wait(1)


def test_a_plan_is_not_stuck_if_a_task_is_claimed_during_the_check(
    zkplan_client: Client, znodes: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that a worker has claimed at once: no number of the plan shows it."""
    plan = blocked_plan(zkplan_client, znodes)
    claim = f"{zkplan_client.root}/claims/of-somebody/{plan.number}-0000000099.0.7f"

    def claimed_first(paths: Paths, number: str, repair: bool) -> Step[Report]:
        znodes.create(claim, makepath=True)
        return check(paths, number, repair)

    monkeypatch.setattr(deadlock, "check", claimed_first)
    with pytest.raises(WaitTimeout):
        plan.wait(1)
    znodes.delete(claim)
    monkeypatch.setattr(deadlock, "check", check)
    with pytest.raises(zkplan.PlanStuck):
        plan.wait(WAIT_S)


def test_a_client_that_may_not_repair_a_plan_does_not_call_it_stuck(
    zkplan_client: Client, znodes: KazooClient
) -> None:
    """A task that is in no index, which any worker's check would let run."""
    plan = zkplan_client.create_plan()
    path = znodes.create(f"{plan.path}/task-", b"", sequence=True)
    znodes.create(f"{path}/ready", b"0")
    plan.mark_ready()
    znodes.set_acls(f"{plan.path}/runnable", [make_acl("world", "anyone", read=True, admin=True)])
    with pytest.raises(WaitTimeout):
        plan.wait(1)
    znodes.set_acls(f"{plan.path}/runnable", OPEN_ACL_UNSAFE)
    assert plan.check().published == [path.rpartition("/")[2]]


def test_no_plan_is_called_stuck_while_a_claims_node_is_unreadable(
    here: Here, zkplan_client: Client, znodes: KazooClient, caplog: pytest.LogCaptureFixture
) -> None:
    """A claim may lie there."""
    plan = blocked_plan(zkplan_client, znodes)
    claims_node = f"{zkplan_client.root}/claims/of-somebody"
    znodes.create(
        claims_node, makepath=True, acl=[make_acl("world", "anyone", admin=True, delete=True)]
    )
    with working(*here):
        with pytest.raises(WaitTimeout, match="an access list does not let this client read"):
            plan.wait(1)
        assert f"{plan.path}: this client cannot see whether the plan can go on" in caplog.text
    znodes.delete(claims_node)
    with pytest.raises(zkplan.PlanStuck, match="waits for dep-0000000000"):
        plan.wait(WAIT_S)
