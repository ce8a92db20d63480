"""A clock that steps is told by what its process dates; one that does not step is not felt."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integ.support import wait_until

from .actors.workloads import BRIEF
from .faults.catalogue import CATALOGUE
from .faults.clocks import ClockSteps
from .validate.validator import Validator
from .world import false_time
from .world.arena import Arena, Settings, opened

WAIT_S = 40.0
#: A step is seen within a second.
SEEN_S = 1.5
WHOSE = ["worker", "author", "server"]


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    settings = Settings("embedded", 5, workers=1, shape=BRIEF)
    with opened(settings, tmp_path_factory.mktemp("clocks")) as arena, Validator(arena):
        # It removes the plans that are done, so that there are always others.
        yield arena


def stepping(arena: Arena, name: str) -> ClockSteps:
    fault = CATALOGUE[name].fault()
    assert isinstance(fault, ClockSteps)
    why = fault.unable(arena)
    if why:
        pytest.skip(why)
    fault.inject(arena, random.Random(1))
    return fault


def newest_offset(fault: ClockSteps, arena: Arena) -> float | None:
    offsets = fault.offsets(arena)
    return offsets[-1] if offsets else None


@pytest.mark.parametrize("way", ["forward", "back"])
@pytest.mark.parametrize("whose", WHOSE)
def test_a_clock_steps_and_steps_back(arena: Arena, whose: str, way: str) -> None:
    fault = stepping(arena, f"{whose} clock steps {way}")
    wait_until(lambda: fault.felt(arena), "what it dates is off by the step", WAIT_S)
    fault.heal(arena)

    def is_right() -> bool:
        off = newest_offset(fault, arena)
        return off is not None and abs(off) < abs(fault.seconds) / 2

    wait_until(is_right, "what it dates is right again", WAIT_S)


@pytest.mark.parametrize("whose", WHOSE)
def test_a_clock_that_does_not_step_is_not_felt(
    arena: Arena, whose: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stay(stamp: Path, seconds: float) -> None:
        """The file says that nothing is off."""
        stamp.write_text("+0\n")

    monkeypatch.setattr(false_time, "step", stay)
    fault = stepping(arena, f"{whose} clock steps forward")
    seen = time.monotonic() + SEEN_S
    dated = len(fault.offsets(arena))

    def would_be_felt() -> bool:
        assert not fault.felt(arena)
        enough = whose == "server" or len(fault.offsets(arena)) > dated
        return enough and time.monotonic() > seen

    wait_until(would_be_felt, "it has dated more after a step would have been seen", WAIT_S)
    fault.heal(arena)
