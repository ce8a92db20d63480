"""Each plan is judged, whatever becomes of the others, and what was removed is shown by nobody.

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
from tests.integ.support import wait_until
from tests.sim.world import ROOT
from zkplan.stress.history import Recorder
from zkplan.testing.embedded_process import EmbeddedServerProcess
from zkplan.testing.server_process import ServerProcess

from .actors.waiter import wait_for
from .judges import members, removals
from .judges import referee as referees
from .judges.members import Silence, children_at, shown_by
from .judges.referee import Referee
from .quiet import Quiet
from .run import Run
from .world.arena import Arena, Settings
from .world.servers import Servers

_HANGS_S = 40.0


class Pair(Servers):
    """Two servers, of which clients are told the first only."""

    def __init__(self, members: Sequence[ServerProcess]) -> None:
        self.members = members

    @property
    def hosts(self) -> str:
        return self.members[0].hosts


class Looking(Referee):
    """Looks when it is told to."""

    def __enter__(self) -> Looking:
        self._client = zkplan.connect(self.arena.servers.hosts, ROOT, connect_timeout=60.0)
        self._client.prepare()
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    @property
    def client(self) -> zkplan.Client:
        return self._client

    def look(self, times: int = 1) -> None:
        for _ in range(times):
            self._look()

    def look_until(self, condition: Callable[[], object], what: str) -> None:
        def looked() -> object:
            self._look()
            return condition()

        wait_until(looked, what)

    def judge_all(self) -> None:
        self.look_until(self.is_idle, "nothing stands any more")


@pytest.fixture(scope="module")
def servers() -> Iterator[Pair]:
    with ExitStack() as stack:
        makes = [EmbeddedServerProcess(tick_time_ms=250) for _ in range(2)]
        yield Pair([stack.enter_context(each) for each in makes])


@pytest.fixture
def referee(servers: Pair, tmp_path: Path) -> Iterator[Looking]:
    arena = Arena(Settings("embedded", 1), tmp_path)
    arena.servers, arena.actors = servers, []
    with Looking(arena, shown_s=0.0) as referee:
        yield referee
        for plan in referee.client.plans():
            plan.remove()
    arena.journal.close()


def made(referee: Looking, seed: int) -> zkplan.Plan:
    """A plan without tasks, whose author has left: it is done as soon as somebody looks."""
    plan = referee.client.create_plan(f"chaos-{seed}")
    author = Recorder(str(referee.arena.folder), f"worker-{seed}")
    facts = {"seed": seed, "shape": "one"}
    author.write("plan begun", **facts)
    author.write("plan made", path=plan.path, **facts)
    plan.mark_ready()
    author.write("plan closed", **facts)
    author.close()
    return plan


def operate(referee: Looking, plan: zkplan.Plan, outcome: str) -> None:
    """What an operator's removal leaves in the journal."""
    uid, journal = uuid.uuid4().hex, referee.arena.journal
    journal.write("operator begun", uid=uid, what="remove", plan=plan.name, path=plan.path)
    if outcome:
        journal.write("operator answered", uid=uid, outcome=outcome)


# ---- plans that vanish


def test_a_plan_that_vanishes_is_found_at_the_end(referee: Looking) -> None:
    plan, other = made(referee, 1), made(referee, 2)
    plan.remove()
    referee.judge_all()
    assert referee.finished == 1
    (found,) = referee.never_judged()
    assert f"{plan.name} ({plan.path}) was made and never judged" in found
    assert other.name not in found


@pytest.mark.parametrize("outcome", ["", "done"])
def test_a_plan_that_an_operator_may_have_removed_is_judged(referee: Looking, outcome: str) -> None:
    plan = made(referee, 1)
    operate(referee, plan, outcome)
    plan.remove()
    referee.judge_all()
    assert referee.finished == 1
    assert list(referee.never_judged()) == []
    assert referee.violations == []


def test_a_plan_that_is_gone_in_the_middle_of_its_judging_keeps_its_trouble(
    referee: Looking,
) -> None:
    plan, other = made(referee, 1), made(referee, 2)
    listed = [plan, other]
    plan.remove()
    referee.judge_histories()
    for each in listed:
        referee._try(each, referee.ledger.plans[each.name], time.monotonic())
    referee.judge_all()
    assert other.name not in " ".join(referee.never_judged())
    (found,) = referee.never_judged()
    assert "the referee's last look at it: PlanNotFound" in found


def test_idle_is_who_has_looked_since(referee: Looking) -> None:
    """An author may have made a plan behind the last look."""
    referee.look()
    now = time.monotonic()
    assert referee.is_idle()
    assert not referee.is_idle(now)
    referee.look()
    assert referee.is_idle(now)


def test_a_run_ends_with_a_look_for_plans_that_nobody_has_judged(
    servers: Pair, tmp_path: Path
) -> None:
    arena = Quiet(tmp_path)
    arena.servers, arena.actors = Pair(servers.members[:1]), []
    with Referee(arena) as referee, Looking(arena) as other:
        plan = made(other, 1)
        plan.remove()
        outcome = Run(arena, referee).finish()
    arena.journal.close()
    (found,) = outcome.violations
    assert f"{plan.name} ({plan.path}) was made and never judged" in found


# ---- removals


class Hanging:
    """The removal of one plan, that comes to no end."""

    def __init__(self, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go_on, self.tried = threading.Event(), 0
        remove = zkplan.Plan.remove

        def hang(plan: zkplan.Plan) -> int:
            if plan.path == path:
                self.tried += 1
                self.go_on.wait(_HANGS_S)
            return remove(plan)

        monkeypatch.setattr(zkplan.Plan, "remove", hang)


def test_a_removal_that_hangs_keeps_nobody_from_the_others_and_is_told(
    referee: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removals, "_WAIT_S", 0.05)
    referee.arena.servers = Pair(referee.arena.servers.members[:1])
    plan, other = made(referee, 1), made(referee, 2)
    hanging, began = Hanging(plan.path, monkeypatch), time.monotonic()
    referee.look_until(lambda: referee.finished == 2, "both are judged")
    referee.look(removals._LOOKS + 2)
    assert referee.standing == [plan.name]
    assert [each.path for each in referee.client.plans()] == [plan.path]
    assert other.path in referee._removals.done
    assert referee.violations == []
    referee._removals._lasts_s = 0.0
    referee.look(2)
    (found,) = referee.violations
    assert found.startswith(f"S6: {plan.name} ({plan.path}) was judged, and stands for ")
    assert found.endswith("; member 1 shows it")
    assert hanging.tried == 1
    assert time.monotonic() - began < _HANGS_S / 2, "nobody has waited for its end"
    assert referee.is_idle(), "whoever was told of it waits for it no more"
    hanging.go_on.set()
    referee.judge_all()


def test_servers_that_do_not_answer_make_no_removal_last_longer(referee: Looking) -> None:
    lasting = removals.Removals(
        referee.violations.append, lambda path: shown_by([], path), lasts_s=0.0
    )
    for _ in range(3):
        for _ in range(removals._LOOKS):
            lasting.stands("chaos-1", "/z/plan-1", "was judged", 0.0)
        lasting.no_answer()
    assert referee.violations == []
    for _ in range(removals._LOOKS + 2):
        lasting.stands("chaos-1", "/z/plan-1", "was judged", 0.0)
        lasting.listed(set())
    assert referee.violations == []
    for _ in range(removals._LOOKS + 2):
        lasting.stands("chaos-1", "/z/plan-1", "was judged", 0.0)
    assert len(referee.violations) == 1


def test_a_removal_that_fails_is_told_with_its_error(
    referee: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(plan: zkplan.Plan) -> int:
        raise zkplan.TransactionRejected("it is too busy")

    plan = made(referee, 1)
    with monkeypatch.context() as patched:
        patched.setattr(zkplan.Plan, "remove", refuse)
        referee.look_until(lambda: referee.violations, "it is told")
        referee.look()
    (found,) = referee.violations
    assert f"{plan.name} ({plan.path}) cannot be removed" in found
    assert "it is too busy" in found


def test_a_plan_that_stands_again_after_its_removal_is_found_at_once(referee: Looking) -> None:
    plan = made(referee, 1)
    referee.judge_all()
    assert referee.finished == 1
    raw = referee.client.transport.client
    record = zkplan.protocol.records.PlanRecord(plan.name, "again", 0.0).to_bytes()
    raw.create(plan.path, record)
    raw.create(f"{plan.path}/ready", b"running")
    referee.look()
    (found,) = referee.violations
    assert f"{plan.name} ({plan.path}) was judged" in found
    assert "was judged and removed, and it stands again" in found


@pytest.mark.parametrize("by", ["the referee", "an operator"])
def test_a_member_that_shows_what_was_removed_is_told_from_a_fault_of_zkplan(
    referee: Looking, servers: Pair, by: str
) -> None:
    plan = made(referee, 1)
    if by == "an operator":
        operate(referee, plan, "done")
        plan.remove()
    referee.judge_all()
    assert referee.finished == 1
    with zkplan.connect(servers.members[1].hosts, ROOT, connect_timeout=60.0) as behind:
        behind.prepare()
        assert list(referee.come_back()) == []
        behind.transport.client.create(plan.path, b"")
        try:
            (found,) = referee.come_back()
        finally:
            behind.transport.client.delete(plan.path)
    assert found.startswith("ZooKeeper: its members differ after a sync: chaos-1")
    assert found.endswith("member 1 does not, member 2 shows it")


def test_a_member_that_gives_no_answer_shows_nothing(
    servers: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent, asked = EmbeddedServerProcess(), members._asked

    def impatient(member: ServerProcess, path: str, ask: Callable[[Any], Any]) -> Any:
        with monkeypatch.context() as now:
            now.setattr(members, "_ASK_S", 1.0 if member is silent else 30.0)
            return asked(member, path, ask)

    monkeypatch.setattr(members, "_asked", impatient)
    shown = shown_by([*servers.members, silent], "/")
    assert not shown.differ
    assert "member 2 shows it, member 3 gives no answer" in str(shown)
    assert isinstance(children_at([silent], "/")[1], Silence)
    silent.close()


@pytest.mark.parametrize("outcome", ["", "done"])
def test_a_removal_that_was_acknowledged_and_removed_nothing_is_found(
    referee: Looking, outcome: str
) -> None:
    """One that was cut short is brought to its end instead."""
    plan = made(referee, 1)
    operate(referee, plan, outcome)
    referee._removals._lasts_s = 0.0
    referee.look(removals._LOOKS + 2)
    referee.judge_all()
    assert bool(referee.violations) == (outcome == "done")
    if referee.violations:
        (found,) = referee.violations
        assert f"{plan.name} ({plan.path}) was removed by an operator, who was told so" in found
    assert referee.finished == 1, "it is judged all the same"


# ---- those that stand for too long


def test_whoever_gives_up_passes_over_what_is_gone_meanwhile(
    referee: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, other = made(referee, 1), made(referee, 2)
    names = [plan.name, other.name]
    listed = referee.client.plans()
    monkeypatch.setattr(referee.client, "plans", lambda: listed)
    plan.remove()
    (found,) = referee.give_up(names)
    assert found.startswith(f"L3 {other.name} ")
    monkeypatch.undo()


def test_whoever_gives_up_without_servers_says_so(
    referee: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody() -> list[zkplan.Plan]:
        raise zkplan.ZooKeeperUnavailable("nobody answers")

    with monkeypatch.context() as patched:
        patched.setattr(referee.client, "plans", nobody)
        (found,) = referee.give_up(["chaos-1"])
    assert "nobody says what stands of ['chaos-1']" in found


def test_what_another_thread_has_judged_is_not_judged_again(referee: Looking) -> None:
    plan = made(referee, 1)
    operate(referee, plan, "done")
    plan.remove()
    referee.judge_histories()
    history = referee.ledger.plans[plan.name]
    assert referee._judge_removed(plan.name, history)
    assert referee._judge_removed(plan.name, history)
    assert referee.finished == 1


def test_what_is_left_is_asked_of_a_server_that_knows_all(
    referee: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last worker has signed off at another member: until a sync, this one may show it."""
    client, has_synced = referee.client, threading.Event()
    show = client.transport.ask

    def synced(client: zkplan.Client, path: str) -> None:
        has_synced.set()

    def ask(request: Any) -> Any:
        return show(request) if has_synced.is_set() else [["worker-1"], ["worker-1"], []]

    monkeypatch.setattr(referees, "sync", synced)
    monkeypatch.setattr(client.transport, "ask", ask)
    assert referee.orphans() == []


def test_a_waiter_tells_that_a_plan_is_gone(referee: Looking) -> None:
    plan = made(referee, 1)
    plan.remove()
    assert wait_for(plan, referee.arena.journal)
    referee.ledger.read()
    (heard,) = referee.ledger.plans[plan.name].waited
    assert heard["state"] == "gone"
