"""A broken protocol is caught here too, by real processes, within a bounded time."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from .arena import Settings, opened
from .catalogue import CATALOGUE
from .mutated import NAMES
from .referee import Referee
from .run import Run

MINUTES = 0.75
BOUND_S = 15.0
#: What has to happen for a mutant to show, where not anything will do.
LOSSES = ("worker killed", "worker expired", "worker paused", "worker paused in a task")
ANSWERS = ("commit answer lost", "claim answer lost", "commit late", "all links flap")
ADDS = ("add answer lost", "add late", "author expired", "all links flap")
#: Where chance does not find the race, a delay that widens it.
POINTS = {
    # Between the claim of a rival and its start: later the mark `started-N` is in the way.
    "commit fenced by owner only": "load.between=sleep:1:0.7",
    "load without looking for the claim afterwards": "load.between=sleep:2:0.2",
}
SHAPES = {"commit fenced by owner only": "long", "done without the version of adds": "growing"}
FAULTS: dict[str, tuple[str, ...]] = {
    "commit fenced by owner only": LOSSES,
    "claim without check of worker/ID": LOSSES,
    "release keeps N": LOSSES,
    "clearer without guard": LOSSES,
    "load without looking for the claim afterwards": LOSSES,
    "wake cleared without publishing": LOSSES,
    "no wake": LOSSES,
    "add without identity": ADDS,
    "refused repetition taken as fenced": ANSWERS,
}
#: Caught by nothing here, and why.
NOT_HERE: dict[str, str] = {}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", NAMES)
def test_a_mutant_is_caught(name: str, tmp_path: Path) -> None:
    if name in NOT_HERE:
        pytest.skip(NOT_HERE[name])
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    settings = Settings(
        "embedded",
        3,
        workers=3,
        session_s=1.5,
        backlog=3,
        points=POINTS.get(name, ""),
        shape=SHAPES.get(name, ""),
        mutant=name,
    )
    with opened(settings, tmp_path) as arena, Referee(arena) as referee:
        run = Run(arena, referee, bound_s=BOUND_S)
        run.warm_up()
        run.rounds([CATALOGUE[fault] for fault in FAULTS.get(name, LOSSES)], MINUTES)
        outcome = run.finish()
    # That a process dies of its own mutation proves nothing.
    caught = [text for text in outcome.violations if text.startswith(("S", "L"))]
    assert caught, f"{outcome.plans} plans, {dict(outcome.faults)}, {outcome.violations}"
