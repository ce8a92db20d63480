"""A fault excuses those that it may have touched, and nobody else."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from zkplan.stress.history import Recorder

from .actors.tasks import POKES
from .faults import network
from .faults.aim import Aim
from .faults.catalogue import CATALOGUE
from .faults.fault import Fault
from .faults.network import Clinging
from .faults.points import AtPoint, Where
from .quiet import sleeping
from .run import Run
from .under_way import UnderWay
from .validate.evidence import noticed_s
from .validate.history import RunHistory
from .validate.validator import Validator
from .validate.windows import Death, Window
from .world.arena import Actor, Arena, Role
from .world.link import Link
from .world.servers import Servers


@pytest.fixture
def arena(tmp_path: Path) -> Iterator[Arena]:
    names: list[tuple[str, Role]] = [*((f"worker{n}", "worker") for n in range(4))]
    with sleeping(tmp_path, [*names, ("author", "author")]) as arena:
        yield arena


def inject(arena: Arena, fault: Fault) -> None:
    Run(arena, Validator(arena))._inject(fault)


def touched(arena: Arena) -> set[str]:
    """Who is excused now."""
    history, now = RunHistory(arena.folder), time.monotonic()
    history.read()
    return {actor.name for actor in arena.actors if history.disturbed(actor.pid, now, now)}


def test_a_point_excuses_those_that_are_armed_and_the_bait(arena: Arena) -> None:
    fault = AtPoint("a point", "claim.made", "kill", Where(most=1, bait="task.before=stop"))
    inject(arena, fault)
    assert len(touched(arena)) == 2
    assert {actor.name for actor in fault.victims} < touched(arena)


def test_the_bait_is_thrown_when_all_that_live_are_armed(arena: Arena) -> None:
    """Whoever is not yet would come through the point unharmed."""
    fault = AtPoint("a point", "claim.made", "kill", Where(most=100, bait="task.before=stop"))
    inject(arena, fault)
    pokes = arena.folder / POKES
    given = sorted(pokes.iterdir())
    assert len(given) == len(fault.victims) > 1
    for count, each in enumerate(given, start=1):
        assert sorted(pokes.iterdir()) == given[count - 1 :]
        each.rename(arena.folder / f"taken-{each.name}")
        assert not fault.felt(arena)
    (bait,) = pokes.iterdir()
    assert bait.read_text() == "task.before=stop"
    assert bait not in given
    fault.heal(arena)
    assert not list(pokes.iterdir())


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


def test_operators_lost_watches_and_the_links_of_authors_excuse_no_worker(
    arena: Arena,
) -> None:
    inject(arena, CATALOGUE["author answers held"].fault())
    assert touched(arena) == {"author"}
    operations = ("plans paused", "plans removed", "plans cancelled", "dead tasks retried")
    for name in (*operations, "watches lost"):
        assert CATALOGUE[name].fault().aim().facts()["everybody"] is False


def test_a_process_that_ended_is_remembered_when_its_id_is_used_again(tmp_path: Path) -> None:
    journal, history = Recorder(str(tmp_path), "arena"), RunHistory(tmp_path)
    for sent in (10.0, 20.0):
        journal.write("ended", pid=7, sent=sent, why="a fault", killed=True)
    journal.close()
    history.read()
    assert history.disturbed(7, 9.0, 11.0)
    assert history.disturbed(7, 19.0, 21.0)
    assert not history.disturbed(7, 12.0, 18.0)


def test_a_link_that_nothing_was_done_to_is_not_cut_when_all_is_mended(arena: Arena) -> None:
    """It would be a fault that no window tells of."""
    with ExitStack() as stack:
        arena.servers = Servers("embedded", stack, 250)
        fault = CATALOGUE["worker link slow"].fault()
        inject(arena, fault)
        before = {actor.name: actor.link.weather for actor in arena.actors}
        Arena.heal(arena)
        after = {actor.name: actor.link.weather for actor in arena.actors}
    (victim,) = fault.victims
    assert {name for name in before if before[name] is not after[name]} == {victim.name}
    assert victim.link.is_fair


@pytest.mark.parametrize("name", ["worker session replaced", "workers reach one follower"])
def test_a_link_that_was_mended_without_a_cut_is_not_cut_afterwards(
    arena: Arena, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    fault = CATALOGUE[name].fault()
    cuts: list[Link] = []
    monkeypatch.setattr(Link, "_hang_up", lambda link: cuts.append(link))
    monkeypatch.setattr(Servers, "make_serve", lambda servers: None)
    monkeypatch.setattr(network, "wait_a_while", lambda ready: None)
    with ExitStack() as stack:
        arena.servers = Servers("embedded", stack, 250)
        if isinstance(fault, Clinging):
            fault.ports = [1, 2, 3]
            fault.before_parting(arena, random.Random(1))
        else:
            fault.inject(arena, random.Random(1))
        cuts.clear()
        fault.heal(arena)
        Arena.heal(arena)
    assert cuts == []
    assert all(actor.link.is_fair for actor in arena.actors)


def test_the_share_in_which_everybody_is_excused(tmp_path: Path) -> None:
    history = RunHistory(tmp_path)
    early = noticed_s(3.0)
    assert history.excused_s(0.0, 100.0, early) == 0.0
    history.windows += [
        Window("one", 10.0, end=20.0),
        Window("two", 12.0, end=15.0),
        Window("last", 99.0),
    ]
    assert history.excused_s(0.0, 100.0, early) == 10.0 + early + 1.0


def test_a_fault_of_all_workers_excuses_everybody(arena: Arena) -> None:
    history, now = RunHistory(arena.folder), time.monotonic()
    inject(arena, CATALOGUE["worker link slow"].fault())
    history.read()
    assert history.excused_s(now, now + 10.0, 0.0) == 0.0
    inject(arena, CATALOGUE["all workers killed"].fault())
    history.read()
    assert history.excused_s(now, now + 10.0, 0.0) > 9.0


# ---- whose death a fault has made


def blamed(arena: Arena) -> list[str]:
    """Whose deaths no fault has made."""
    arena.tend()
    history = RunHistory(arena.folder)
    history.read()
    return [death.name for death in history.deaths if not history.made(death)]


def die(arena: Arena, actor: Actor, number: signal.Signals) -> int:
    """End it from outside, as by itself; its process ID."""
    pid, process = actor.pid, actor.process
    assert process is not None
    os.kill(pid, number)
    assert process.wait_ended(10)
    return pid


def test_a_point_makes_the_deaths_of_those_that_it_kills_and_no_other(arena: Arena) -> None:
    """Also of others while it waits: an author, or a worker that nothing was armed in."""
    fault = AtPoint("a point", "claim.made", "kill", Where())
    inject(arena, fault)
    (victim,) = fault.victims
    others = [actor for actor in arena.actors if actor is not victim]
    for actor in (victim, *others):
        die(arena, actor, signal.SIGKILL)
    assert blamed(arena) == [actor.name for actor in others]
    # Its next life is not armed.
    die(arena, victim, signal.SIGKILL)
    assert blamed(arena).count(victim.name) == 1


@pytest.mark.parametrize(
    ("action", "number"), [("kill", signal.SIGTERM), ("stop", signal.SIGKILL)], ids=str
)
def test_who_dies_at_a_point_dies_as_the_point_kills(
    arena: Arena, action: str, number: signal.Signals
) -> None:
    fault = AtPoint("a point", "claim.made", action, Where())
    inject(arena, fault)
    die(arena, fault.victims[0], number)
    assert blamed(arena) == [fault.victims[0].name]


def test_a_point_that_is_healed_has_killed_nobody_later(arena: Arena) -> None:
    run = Run(arena, Validator(arena))
    fault = AtPoint("a point", "claim.made", "kill", Where())
    run._heal(UnderWay(fault, 1.0, time.monotonic(), run._inject(fault)))
    die(arena, fault.victims[0], signal.SIGKILL)
    assert blamed(arena) == [fault.victims[0].name]


def test_a_poke_makes_the_death_of_the_process_that_took_it(arena: Arena) -> None:
    inject(arena, CATALOGUE["task segfaults"].fault())
    taker = Recorder(str(arena.folder), "worker-1")
    taker.write("poked", what="segfault", pid=arena.actors[2].pid)
    taker.close()
    for number in (1, 2):
        die(arena, arena.actors[number], signal.SIGSEGV)
    assert blamed(arena) == ["worker1"]


@pytest.mark.parametrize("name", ["task exits", "task holds the interpreter", "task forks"])
def test_who_took_a_poke_dies_as_the_poke_says(arena: Arena, name: str) -> None:
    fault = CATALOGUE[name].fault()
    inject(arena, fault)
    taker = Recorder(str(arena.folder), "worker-1")
    taker.write("poked", what=fault.aim().poke, pid=arena.actors[2].pid)
    taker.close()
    die(arena, arena.actors[2], signal.SIGSEGV)
    assert blamed(arena) == ["worker2"]


def test_a_poke_makes_a_death_soon_or_none(tmp_path: Path) -> None:
    """Who has gone on after it died of something else."""
    arena, worker = Recorder(str(tmp_path), "arena"), Recorder(str(tmp_path), "worker-77")
    arena.write("fault", name="task eats memory", **Aim(poke="memory", codes=[-6, 1]).facts())
    worker.write("poked", what="memory", pid=77)
    arena.write("healed", name="task eats memory")
    arena.close()
    history, now = RunHistory(tmp_path), time.monotonic()
    history.read()

    def made(seconds: float) -> bool:
        return history.made(Death("worker0", 77, now + seconds, 1, ""))

    # Nobody has seen it alive since: an arena that waits for servers finds it late.
    assert [made(seconds) for seconds in (0.5, 60.0, 3600.0)] == [True, True, False]
    history._heard[77] = now + 30.0
    assert [made(seconds) for seconds in (0.5, 60.0, 3600.0)] == [True, False, False]
    worker.write("raised late", uid="1")
    worker.close()
    history.read()
    assert history._heard[77] == now + 30.0


def test_an_author_that_is_told_to_end_has_to_end_well(arena: Arena) -> None:
    arena.end_authors()
    author = arena.of("author")[0]
    die(arena, author, signal.SIGABRT)
    assert blamed(arena) == ["author"]


def test_the_referee_tells_of_each_death_once(arena: Arena) -> None:
    validator = Validator(arena)
    pid = die(arena, arena.actors[0], signal.SIGKILL)
    arena.tend()
    for _ in range(2):
        validator.check_history()
    (found,) = validator.violations
    assert f"worker0 (pid {pid}) ended by itself, with -9" in found


def test_the_referee_tells_of_an_add_that_was_refused_wrongly_in_any_run(arena: Arena) -> None:
    author = Recorder(str(arena.folder), "worker-7")
    facts = {"seed": 3, "batch": 0}
    author.write("plan begun", **facts)
    author.write("add begun", keys=["0"], atomic=True, **facts)
    author.write("add refused", error="ResultNotKept('T')", added=0, **facts)
    author.close()
    validator = Validator(arena)
    validator.check_history()
    (found,) = validator.violations
    assert found.startswith("S4 adds are refused rightly")
