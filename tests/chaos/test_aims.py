"""A fault excuses those that it may have touched, and nobody else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from zkplan.stress.history import Recorder

from .faults.catalogue import CATALOGUE
from .faults.fault import Fault
from .faults.points import AtPoint, Where
from .judges.checks import noticed_s
from .judges.ledger import Ledger, Window
from .judges.referee import Referee
from .run import Run
from .world.arena import Actor, Arena, Settings
from .world.link import Link
from .world.servers import Servers


class Sleepers(Arena):
    """Real processes that do nothing."""

    def _command(self, actor: Actor) -> list[str]:
        return ["sleep", "600"]


@pytest.fixture
def arena(tmp_path: Path) -> Iterator[Arena]:
    arena = Sleepers(Settings("embedded", 1), tmp_path)
    arena.actors = [Actor(f"worker{n}", "worker", Link([])) for n in range(4)]
    arena.actors.append(Actor("author", "author", Link([])))
    for actor in arena.actors:
        arena.start(actor)
    yield arena
    for actor in arena.actors:
        arena.kill(actor, "the end")
        actor.link.close()
    arena.journal.close()


def inject(arena: Arena, fault: Fault) -> None:
    Run(arena, Referee(arena))._inject(fault)


def touched(arena: Arena) -> set[str]:
    """Who is excused now."""
    ledger, now = Ledger(arena.folder), time.monotonic()
    ledger.read()
    return {actor.name for actor in arena.actors if ledger.disturbed(actor.pid, now, now)}


def test_a_point_excuses_those_that_are_armed_and_the_bait(arena: Arena) -> None:
    fault = AtPoint("a point", "claim.made", "kill", Where(most=1, bait="task.before=stop"))
    inject(arena, fault)
    assert len(touched(arena)) == 2
    assert {actor.name for actor in fault.victims} < touched(arena)


def test_a_poke_excuses_the_process_that_took_it(arena: Arena) -> None:
    inject(arena, CATALOGUE["task exits"].fault())
    assert touched(arena) == set()
    taker = Recorder(str(arena.folder), "worker-1")
    taker.write("poked", what="exit", pid=arena.actors[2].pid)
    taker.write("poked", what="arm", pid=arena.actors[1].pid)
    taker.close()
    assert touched(arena) == {"worker2"}


def test_a_poke_of_before_is_another_fault(arena: Arena) -> None:
    taker = Recorder(str(arena.folder), "worker-1")
    taker.write("poked", what="exit", pid=arena.actors[2].pid)
    taker.close()
    inject(arena, CATALOGUE["task exits"].fault())
    assert touched(arena) == set()


def test_a_bad_link_excuses_whoever_is_started_behind_it(arena: Arena) -> None:
    fault = CATALOGUE["worker link slow"].fault()
    inject(arena, fault)
    (victim,) = fault.victims
    assert touched(arena) == {victim.name}
    arena.kill(victim, "another fault")
    arena.start(victim)
    assert touched(arena) == {victim.name}


def test_the_operations_of_operators_and_the_links_of_authors_excuse_no_worker(
    arena: Arena,
) -> None:
    inject(arena, CATALOGUE["author answers held"].fault())
    assert touched(arena) == {"author"}
    for name in ("plans paused", "plans removed", "plans cancelled", "dead tasks retried"):
        assert CATALOGUE[name].fault().aim().facts()["everybody"] is False


def test_a_process_that_ended_is_remembered_when_its_id_is_used_again(tmp_path: Path) -> None:
    journal, ledger = Recorder(str(tmp_path), "arena"), Ledger(tmp_path)
    for sent in (10.0, 20.0):
        journal.write("ended", pid=7, sent=sent, why="a fault")
    journal.close()
    ledger.read()
    assert ledger.disturbed(7, 9.0, 11.0)
    assert ledger.disturbed(7, 19.0, 21.0)
    assert not ledger.disturbed(7, 12.0, 18.0)


def test_a_link_that_nothing_was_done_to_is_not_cut_when_all_is_mended(arena: Arena) -> None:
    """It would be a fault that no window tells of."""
    with ExitStack() as stack:
        arena.servers = Servers("embedded", stack, 250)
        fault = CATALOGUE["worker link slow"].fault()
        inject(arena, fault)
        before = {actor.name: actor.link.weather for actor in arena.actors}
        arena.heal()
        after = {actor.name: actor.link.weather for actor in arena.actors}
    (victim,) = fault.victims
    assert {name for name in before if before[name] is not after[name]} == {victim.name}
    assert victim.link.is_fair


def test_the_share_in_which_everybody_is_excused(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    early = noticed_s(3.0)
    assert ledger.excused_s(0.0, 100.0, early) == 0.0
    ledger.windows += [
        Window("one", 10.0, end=20.0),
        Window("two", 12.0, end=15.0),
        Window("last", 99.0),
    ]
    assert ledger.excused_s(0.0, 100.0, early) == 10.0 + early + 1.0


def test_a_fault_of_all_workers_excuses_everybody(arena: Arena) -> None:
    ledger, now = Ledger(arena.folder), time.monotonic()
    inject(arena, CATALOGUE["worker link slow"].fault())
    ledger.read()
    assert ledger.excused_s(now, now + 10.0, 0.0) == 0.0
    inject(arena, CATALOGUE["all workers killed"].fault())
    ledger.read()
    assert ledger.excused_s(now, now + 10.0, 0.0) > 9.0
