"""Faults are felt: they wait for their moment, pokes find their process, shapes can be had."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from zkplan import failpoints
from zkplan.stress.history import Recorder

from .fault import Fault
from .run import UnderWay
from .tasks import POKES, obey_a_poke, poke
from .workloads import BRIEF, SHAPES, Workload, drawn_shape

SEEDS = range(200)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / POKES).mkdir()
    yield tmp_path
    failpoints.arm("")


def test_a_fault_that_waits_for_nothing_holds_for_its_time() -> None:
    under_way = UnderWay(Fault("any"), hold_s=2.0, began=10.0)
    assert not under_way.is_over(11.9, felt=True)
    assert under_way.is_over(12.0, felt=False)


def test_a_fault_that_waits_holds_for_its_time_once_it_was_felt() -> None:
    fault = Fault("rare")
    fault.waits_s = 5.0
    under_way = UnderWay(fault, hold_s=2.0, began=10.0)
    assert not under_way.is_over(14.0, felt=False)
    assert not under_way.is_over(14.0, felt=True)
    assert not under_way.is_over(15.9, felt=True)
    assert under_way.is_over(16.0, felt=True)


def test_a_fault_that_nobody_feels_ends_all_the_same() -> None:
    fault = Fault("never")
    fault.waits_s = 5.0
    assert UnderWay(fault, hold_s=0.5, began=10.0).is_over(15.0, felt=False)


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
