"""Of two faults that would undo each other a round has one; the others leave each other alone."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

import zkplan

from . import test_every_fault as single
from .faults.catalogue import CATALOGUE
from .faults.fault import SHAPE, Entry, Fault
from .faults.points import AtPoint, Where
from .faults.processes import Killed, Paused
from .quiet import Quiet, sleeping
from .run import Run
from .test_a_run_ends_well import InTheWay
from .validate.validator import Validator
from .world.arena import Arena, Role
from .world.proc import is_stopped

WORKERS: list[tuple[str, Role]] = [(f"worker{n}", "worker") for n in range(3)]


class Claiming(InTheWay):
    """It has that for itself."""

    def __init__(self, name: str, claim: str) -> None:
        super().__init__(name, "")
        self.claim = claim

    @property
    def claims(self) -> frozenset[str]:
        return frozenset({self.claim})


def _same(fault: Fault, name: str) -> Fault:
    return fault


@pytest.fixture
def arena(tmp_path: Path) -> Iterator[Arena]:
    with sleeping(tmp_path, WORKERS) as arena:
        yield arena


@pytest.mark.parametrize(
    ("one", "other"),
    [
        # The first that is healed would leave the second one without its plans.
        ("worker killed at publish", "dead tasks retried"),
        # To arm a point, or to disarm it, disarms all others.
        ("worker pauses at point claim.made", "delays at all points of one worker"),
        ("worker dies at point claim.made", "worker dies at point load.read"),
        # To heal it, all servers are started and all partitions ended.
        ("server killed", "outage"),
        ("follower killed", "leader cut off"),
        ("server clock steps back", "server paused"),
        # All workers that stand are told to go on.
        ("worker paused in a task", "all workers paused"),
        ("worker pauses at point claim.made", "worker paused"),
        ("worker paused at claim", "worker paused shortly"),
        # Who is told to stop goes on once more, and one that stands still then does not stop.
        ("worker told to stop", "worker paused"),
        ("worker told to stop", "worker pauses at point commit.before"),
        ("worker told to stop", "worker paused in a task"),
        # The second weather replaces the first.
        ("worker link slow", "worker killed at claim"),
        ("all links slow", "author answers held"),
        ("follower stale", "worker session replaced"),
    ],
)
def test_faults_that_would_undo_each_other_claim_the_same(one: str, other: str) -> None:
    assert CATALOGUE[one].fault().claims & CATALOGUE[other].fault().claims


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("worker killed", "all workers paused"),
        ("worker dies at point claim.made", "worker paused"),
        ("worker link slow", "author answers held"),
        ("worker link slow", "link cut"),
        ("outage", "plans paused"),
        ("leader cut off", "plans paused"),
        ("leader killed", "worker link hangs"),
        ("author dies at point add.before", "delays at all points"),
    ],
)
def test_faults_that_leave_each_other_alone_may_meet(one: str, other: str) -> None:
    assert not CATALOGUE[one].fault().claims & CATALOGUE[other].fault().claims


def test_every_fault_that_wants_a_shape_claims_it() -> None:
    faults = [entry.fault() for entry in CATALOGUE.values()]
    assert [fault.name for fault in faults if fault.shape and SHAPE not in fault.claims] == []


@pytest.mark.parametrize(("claims", "played"), [("ab", {"1", "2"}), ("aa", {"1"})])
def test_a_round_has_one_of_two_that_claim_the_same(
    tmp_path: Path, claims: str, played: set[str]
) -> None:
    arena = Quiet(tmp_path)
    run = Run(arena, Validator(arena))
    made = [Claiming(str(number), claim) for number, claim in enumerate(claims, 1)]
    run.at_once([Entry(each.name, "", "", partial(_same, each)) for each in made])
    assert set(run.outcome.faults) == played


def test_a_process_that_another_fault_has_paused_stays_so(arena: Arena) -> None:
    paused = Paused("all workers paused", "worker", everyone=True)
    paused.inject(arena, random.Random(1))
    killed = Killed("worker killed", "worker")
    killed.inject(arena, random.Random(1))
    armed = AtPoint("at a point", "claim.made", "kill", Where(most=100))
    armed.inject(arena, random.Random(1))
    (victim,) = killed.victims
    killed.heal(arena)
    armed.heal(arena)
    others = [actor for actor in arena.workers if actor is not victim]
    assert victim.pid
    assert len(others) == 2
    assert all(is_stopped(actor.pid) for actor in others)
    paused.heal(arena)
    assert not any(is_stopped(actor.pid) for actor in arena.workers)


def test_paused_plans_are_resumed_without_an_end_of_what_other_faults_do_to_servers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    @contextmanager
    def connect(hosts: str, root: str, **patience: float) -> Iterator[None]:
        asked.append(hosts)
        yield

    monkeypatch.setattr(zkplan, "connect", connect)
    # It has nothing that starts one, or ends a partition.
    arena = SimpleNamespace(servers=SimpleNamespace(hosts="the servers"), journal=None)
    CATALOGUE["plans paused"].fault().heal(arena)  # type: ignore[arg-type]
    assert asked == ["the servers"]


@pytest.mark.parametrize("step", ["inject", "heal"])
def test_a_single_fault_may_not_break_off(
    tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CATALOGUE, "one", Entry("one", "", "", lambda name: InTheWay(name, step)))
    arena = Quiet(tmp_path)
    with pytest.raises(AssertionError, match="no other fault is in its way"):
        single.test_a_fault_breaks_no_promise(Run(arena, Validator(arena)), "one")
