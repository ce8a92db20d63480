"""Thousands of seeded runs of the real protocol, with faults at every request."""

from __future__ import annotations

import os

import pytest

from .seeds import failures
from .world import World

#: How many seeds are run; the first is always 0, so that every run of the tests is the same.
SEEDS = int(os.environ.get("ZKPLAN_SIM_SEEDS", "20000"))
SHOWN = 10


@pytest.mark.slow
@pytest.mark.timeout(max(600, SEEDS // 20))
def test_no_invariant_breaks_under_any_of_the_seeds() -> None:
    found = failures(0, SEEDS)
    assert not found, "\n".join([f"{len(found)} of {SEEDS} seeds failed:", *found[:SHOWN]])


def test_a_seed_replays_to_the_same_events() -> None:
    for seed in (3, 11, 42):
        first: list[str] = []
        second: list[str] = []
        World(seed, first.append).run()
        World(seed, second.append).run()
        assert first == second
        assert len(first) > 20
