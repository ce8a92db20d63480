"""The validator checks each plan despite faults in others, and finds removed plans that return.

On two servers that know nothing of each other, as two members of a damaged ensemble would be.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import zkplan
from tests.sim.world import ROOT
from tests.tools.support import wait_until
from zkplan.testing.server_process import EmbeddedServerProcess, ServerProcess
from zkplan.testing.stress_tasks import Recorder

from .cluster.cluster import Cluster, Settings
from .cluster.servers import Servers
from .cluster.stub import StubCluster
from .run import Run
from .validate import removals
from .validate.validator import Validator

_HANGS_S = 40.0


class Pair(Servers):
    """Two servers, of which clients are told the first only."""

    def __init__(self, members: Sequence[ServerProcess]) -> None:
        self.members = members

    @property
    def hosts(self) -> str:
        return self.members[0].hosts


class Looking(Validator):
    """Looks when it is told to."""

    def __enter__(self) -> Looking:
        self.client = self._client = zkplan.connect(
            self.cluster.servers.hosts, ROOT, connect_timeout=60.0
        )
        self.client.prepare()
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def look(self, times: int = 1) -> None:
        for _ in range(times):
            self._look()

    def look_until(self, condition: Callable[[], object], what: str) -> None:
        def looked() -> object:
            self._look()
            return condition()

        wait_until(looked, what)

    def check_all(self) -> None:
        self.look_until(self.is_idle, "nothing stands any more")

    def made(self, seed: int) -> zkplan.Plan:
        """A plan without tasks, whose author has left: it is done as soon as somebody looks."""
        plan = self.client.create_plan(f"chaos-{seed}")
        author = Recorder(str(self.cluster.folder), f"worker-{seed}")
        facts = {"seed": seed, "shape": "one"}
        author.write("plan begun", **facts)
        author.write("plan made", path=plan.path, **facts)
        plan.mark_ready()
        author.write("plan closed", **facts)
        author.close()
        return plan

    def operate(self, plan: zkplan.Plan, outcome: str) -> None:
        """What an operator's removal leaves in the journal."""
        uid, journal = uuid.uuid4().hex, self.cluster.journal
        journal.write("operator begun", uid=uid, what="remove", plan=plan.name, path=plan.path)
        if outcome:
            journal.write("operator answered", uid=uid, outcome=outcome)


def raising(error: Exception) -> Callable[..., Any]:
    def call(*_: object) -> Any:
        raise error

    return call


@pytest.fixture(scope="module")
def servers() -> Iterator[Pair]:
    with ExitStack() as stack:
        makes = [EmbeddedServerProcess(tick_time_ms=250) for _ in range(2)]
        yield Pair([stack.enter_context(each) for each in makes])


@pytest.fixture
def validator(servers: Pair, tmp_path: Path) -> Iterator[Looking]:
    cluster = Cluster(Settings("embedded", 1), tmp_path)
    cluster.servers, cluster.processes = servers, []
    with Looking(cluster, shown_s=0.0) as validator:
        yield validator
        for plan in validator.client.plans():
            plan.remove()
    cluster.journal.close()


# ---- plans that vanish


def test_the_end_of_a_run_reports_plans_that_were_never_checked(
    servers: Pair, tmp_path: Path
) -> None:
    """One is gone in the middle of a look; the other one is checked all the same."""
    cluster = StubCluster(tmp_path)
    cluster.servers, cluster.processes = Pair(servers.members[:1]), []
    with Looking(cluster) as other:
        plan = other.made(1)
        other.check_history()
        plan.remove()
        other.made(2)
        with Validator(cluster) as validator:
            validator._try(plan, other.history.plans[plan.name], time.monotonic())
            outcome = Run(cluster, validator).finish()
    cluster.journal.close()
    (found,) = outcome.violations
    assert f"{plan.name} ({plan.path}) was made and never checked" in found
    assert "the validator's last look at it: PlanNotFound" in found
    assert validator.finished == 1


def test_the_validator_is_idle_only_if_it_has_looked_since_that_time(validator: Looking) -> None:
    """An author may have made a plan behind the last look."""
    validator.look()
    now = time.monotonic()
    assert validator.is_idle()
    assert not validator.is_idle(now)
    validator.look()
    assert validator.is_idle(now)


# ---- removals


def test_a_removal_that_hangs_blocks_no_other_and_is_reported(
    validator: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removals, "_WAIT_S", 0.05)
    validator.cluster.servers = Pair(validator.cluster.servers.members[:1])
    plan, other = validator.made(1), validator.made(2)
    began, tried, go_on, remove = time.monotonic(), [], threading.Event(), zkplan.Plan.remove

    def hang(each: zkplan.Plan) -> int:
        if each.path == plan.path:
            tried.append(each)
            go_on.wait(_HANGS_S)
        return remove(each)

    monkeypatch.setattr(zkplan.Plan, "remove", hang)
    validator.look_until(lambda: validator.finished == 2, "both are checked")
    validator.look(removals._LOOKS + 2)
    assert validator.standing == [plan.name]
    assert [each.path for each in validator.client.plans()] == [plan.path]
    assert other.path in validator._removals.done
    assert validator.violations == []
    validator._removals._lasts_s = 0.0
    validator.look(2)
    (found,) = validator.violations
    assert found.startswith(f"S6: {plan.name} ({plan.path}) was checked, and stands for ")
    assert found.endswith("; member 1 shows it")
    assert len(tried) == 1
    assert time.monotonic() - began < _HANGS_S / 2, "nobody has waited for its end"
    assert validator.is_idle(), "whoever was told of it waits for it no more"
    go_on.set()
    # The fixture removes what is left: it must not meet the removal that goes on only now.
    validator.look_until(lambda: not validator.client.plans(), "the removal has ended")


def test_a_removal_that_fails_is_reported_with_its_error(
    validator: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = validator.made(1)
    with monkeypatch.context() as patched:
        refuse = raising(zkplan.TransactionRejected("it is too busy"))
        patched.setattr(zkplan.Plan, "remove", refuse)
        validator.look_until(lambda: validator.violations, "it is told")
        validator.look()
    (found,) = validator.violations
    assert f"{plan.name} ({plan.path}) cannot be removed" in found
    assert "it is too busy" in found


def test_a_plan_that_exists_again_after_its_removal_is_found_at_once(validator: Looking) -> None:
    plan = validator.made(1)
    validator.check_all()
    assert validator.finished == 1
    raw = validator.client.transport.client
    raw.create(plan.path, zkplan.protocol.records.PlanRecord(plan.name, "again", 0.0).to_bytes())
    raw.create(f"{plan.path}/ready", b"running")
    validator.look()
    (found,) = validator.violations
    assert f"{plan.name} ({plan.path}) was checked and removed, and it stands again" in found


@pytest.mark.parametrize("by", ["the validator", "an operator"])
def test_a_member_that_still_shows_a_removed_plan_is_blamed_on_zookeeper(
    validator: Looking, servers: Pair, by: str
) -> None:
    plan = validator.made(1)
    if by == "an operator":
        validator.operate(plan, "done")
        plan.remove()
    validator.check_all()
    assert validator.finished == 1
    with zkplan.connect(servers.members[1].hosts, ROOT, connect_timeout=60.0) as behind:
        behind.prepare()
        assert list(validator.come_back()) == []
        behind.transport.client.create(plan.path, b"")
        try:
            (found,) = validator.come_back()
        finally:
            behind.transport.client.delete(plan.path)
    assert found.startswith("ZooKeeper: its members differ after a sync: chaos-1")
    assert found.endswith("member 1 does not, member 2 shows it")


@pytest.mark.parametrize("outcome", ["", "done"])
def test_an_acknowledged_removal_that_removed_nothing_is_found(
    validator: Looking, outcome: str
) -> None:
    """One that was cut short is brought to its end instead."""
    plan = validator.made(1)
    validator.operate(plan, outcome)
    validator._removals._lasts_s = 0.0
    validator.look(removals._LOOKS + 2)
    validator.check_all()
    told = f"{plan.name} ({plan.path}) was removed by an operator, who was told so"
    assert [told in found for found in validator.violations] == [True] * (outcome == "done")
    assert validator.finished == 1, "it is checked all the same"


# ---- those that stand for too long


def test_giving_up_names_the_plans_left_or_that_no_server_answers(
    validator: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, other = validator.made(1), validator.made(2)
    listed = validator.client.plans()
    plan.remove()
    with monkeypatch.context() as patched:
        patched.setattr(validator.client, "plans", lambda: listed)
        (found,) = validator.give_up([plan.name, other.name])
        assert found.startswith(f"L3 {other.name} ")
        nobody = raising(zkplan.ZooKeeperUnavailable("nobody answers"))
        patched.setattr(validator.client, "plans", nobody)
        (found,) = validator.give_up(["chaos-1"])
    assert "nobody says what stands of ['chaos-1']" in found
