"""Faults are felt: they wait for their moment, pokes find their process, shapes can be had."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integ.support import IN_CHECKOUT, wait_until
from zkplan.protocol import failpoints
from zkplan.stress.history import Recorder

from . import under_way
from .actors.author import Author, want
from .actors.tasks import ONE_HEAP, POKES, obey_a_poke, poke
from .actors.workloads import BRIEF, SHAPES, Workload, drawn_shape
from .faults.catalogue import CATALOGUE
from .faults.fault import Entry, Fault
from .quiet import Quiet
from .run import Outcome, Run
from .under_way import UnderWay
from .validate.history import RunHistory
from .validate.validator import Validator
from .world.arena import Arena, first_seed

SEEDS = range(200)
EATS_BESIDE_ANOTHER_THREAD = """
import threading
from tests.chaos.actors.tasks import use_up_memory

got, refused, phase, is_over = [0, 0], [0, 0], 0, False

def allocate():
    while not is_over:
        now = phase
        try:
            bytearray(20_000)
            got[now] += 1
        except MemoryError:
            refused[now] += 1

other = threading.Thread(target=allocate)
other.start()
for _ in range(100):
    told = []
    mine = use_up_memory(0.3, lambda: told.append(1))
    if refused[0]:
        break  # else the other thread had no turn in that time
phase = 1
while got[1] < 100:
    pass
is_over = True
other.join()
assert mine > 0, mine
assert told == [1], told
assert refused[0] > 0, (got, refused)
assert refused[1] == 0, (got, refused)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / POKES).mkdir()
    yield tmp_path
    failpoints.arm("")


def test_a_fault_that_waits_for_nothing_holds_for_its_time() -> None:
    each = UnderWay(Fault("any"), hold_s=2.0, began=10.0)
    assert not each.is_over(11.9, felt=True)
    assert each.is_over(12.0, felt=False)


def test_a_fault_that_waits_holds_for_its_time_once_it_was_felt() -> None:
    fault = Fault("rare")
    fault.waits_s = 5.0
    each = UnderWay(fault, hold_s=2.0, began=10.0)
    assert not each.is_over(14.0, felt=False)
    assert not each.is_over(14.0, felt=True)
    assert not each.is_over(15.9, felt=True)
    assert each.is_over(16.0, felt=True)


def test_a_fault_that_nobody_feels_ends_all_the_same() -> None:
    fault = Fault("never")
    fault.waits_s = 5.0
    assert UnderWay(fault, hold_s=0.5, began=10.0).is_over(15.0, felt=False)


class Shown(Fault):
    """It is felt at the looks of those numbers."""

    lasts = (0.0, 0.0)

    def __init__(self, name: str, at: range, late: bool) -> None:
        super().__init__(name)
        self.at, self.shows_late, self.looks = at, late, 0

    def inject(self, arena: Arena, chance: random.Random) -> None:
        """Nothing."""

    def felt(self, arena: Arena) -> bool:
        self.looks += 1
        return self.looks in self.at

    def heal(self, arena: Arena) -> None:
        """Nothing."""


def outcome_of(fault: Fault, folder: Path) -> Outcome:
    """After that fault alone, once it waits no more to be felt."""
    arena = Quiet(folder)
    run = Run(arena, Validator(arena))
    run.at_once([Entry(fault.name, "", "", lambda name: fault)])
    wait_until(lambda: not run.felt.still_waiting(), "it waits no more")
    return run.outcome


@pytest.mark.parametrize("late", [False, True])
def test_a_fault_that_nobody_ever_feels_is_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    monkeypatch.setattr(under_way, "LATE_S", 0.1)
    outcome = outcome_of(Shown("never", range(0), late), tmp_path)
    assert outcome.unfelt == {"never": 1}
    assert not outcome.felt


def test_a_fault_that_is_felt_after_its_healing_is_waited_for(tmp_path: Path) -> None:
    outcome = outcome_of(Shown("late", range(10, 11), late=True), tmp_path)
    assert outcome.felt == {"late": 1}
    assert not outcome.unfelt


def test_a_fault_that_shows_nothing_late_is_not_asked_again(tmp_path: Path) -> None:
    outcome = outcome_of(Shown("missed", range(10, 11), late=False), tmp_path)
    assert outcome.unfelt == {"missed": 1}


def test_a_fault_that_was_felt_while_it_lasted_was_felt(tmp_path: Path) -> None:
    outcome = outcome_of(Shown("early", range(1, 2), late=False), tmp_path)
    assert outcome.felt == {"early": 1}
    assert not outcome.unfelt


def test_a_poke_is_taken_once_by_the_process_it_is_for(folder: Path) -> None:
    journal = Recorder(str(folder), "test")
    other = poke(folder, "arm", "here=sleep:0", os.getpid() + 1)
    obey_a_poke(folder / POKES, journal)
    assert not other.was_taken()
    before = failpoints.reach
    mine = poke(folder, "arm", "here=sleep:0", os.getpid())
    anybodys = poke(folder, "arm", "here=sleep:0")
    obey_a_poke(folder / POKES, journal)
    assert mine.was_taken() != anybodys.was_taken()
    assert failpoints.reach is not before
    obey_a_poke(folder / POKES, journal)
    assert mine.was_taken()
    assert anybodys.was_taken()
    assert not other.was_taken()
    journal.close()


def test_a_poke_that_was_taken_back_does_nothing(folder: Path) -> None:
    journal = Recorder(str(folder), "test")
    taken_back = poke(folder, "exit")
    taken_back.take_back()
    obey_a_poke(folder / POKES, journal)
    assert not taken_back.was_taken()
    journal.close()


def test_a_task_that_eats_memory_leaves_none_to_other_threads_and_gives_it_back() -> None:
    environment = os.environ | ONE_HEAP
    command = [*IN_CHECKOUT, sys.executable, "-c", EATS_BESIDE_ANOTHER_THREAD]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_fault_says_itself_whether_it_was_felt() -> None:
    assert [name for name, entry in CATALOGUE.items() if not says_itself(entry)] == []


def says_itself(entry: Entry) -> bool:
    return type(entry.fault()).felt is not Fault.felt


def test_every_shape_can_be_had_by_its_seed() -> None:
    drawn = {name for name, (weight, _) in SHAPES.items() if weight}
    assert {drawn_shape(seed) for seed in SEEDS} == drawn
    assert all(drawn_shape(seed) == Workload.make(seed).shape for seed in range(20))


def test_a_brief_plan_has_its_shape_and_no_long_task() -> None:
    for seed in range(20):
        brief = Workload.make(seed, BRIEF)
        assert brief.shape == drawn_shape(seed)
        assert brief.digests == Workload.make(seed).digests
        assert max(item.seconds for item in brief.items.values()) <= 0.05


def test_a_fault_may_be_felt_from_the_moment_its_injection_begins(tmp_path: Path) -> None:
    arena = Quiet(tmp_path)
    history = RunHistory(tmp_path)

    class Felt(Fault):
        at = 0.0

        def inject(self, arena: Arena, chance: random.Random) -> None:
            history.read()
            self.at = time.monotonic()
            assert history.disturbed(2, self.at, self.at), "the validator judges meanwhile"

    fault = Felt("slow")
    Run(arena, Validator(arena))._inject(fault)
    history.read()
    assert history.disturbed(2, fault.at, fault.at)


def test_no_two_lives_of_authors_come_to_the_same_plan(tmp_path: Path) -> None:
    """The second would be judged by what was seen of the first, and removed while it runs."""
    author = object.__new__(Author)
    author.folder = tmp_path
    want(tmp_path, "huge join")
    seed = first_seed(7, 1, spared=False)
    for _ in range(200):
        seed = author._next(seed)
    assert seed < first_seed(7, 2, spared=False)
    assert first_seed(7, 5000, spared=False) < first_seed(7, 1, spared=True)
    assert first_seed(7, 5000, spared=True) < first_seed(8, 1, spared=False)
