"""The checker finds each broken variant of the protocol, and does not blame the real one."""

from __future__ import annotations

import sys
from itertools import chain

import pytest

from .broken_adds import OF_ADDS
from .broken_decisions import OF_DECISIONS
from .broken_history import OF_HISTORY
from .broken_loops import OF_LOOPS
from .broken_mends import OF_MENDS
from .broken_reopening import OF_REOPENING
from .broken_sharing import OF_SHARING
from .broken_store import OF_STORE
from .broken_updates import OF_UPDATES
from .found_at import FOUND_AT
from .mutant import Mutant, first_seed_that_finds
from .mutants import MUTANTS, SIMULATION_ONLY

#: Every mutant must be found within this number of seeds.
SEEDS_MAX = 20_000
ALL = (
    *(*MUTANTS, *SIMULATION_ONLY, *OF_STORE, *OF_DECISIONS, *OF_HISTORY, *OF_UPDATES),
    *(*OF_REOPENING, *OF_ADDS, *OF_MENDS, *OF_LOOPS, *OF_SHARING),
)


#: A search for these takes many minutes, so `dev.py sim` makes it.
RARE = {
    "dead task that keeps the mark of a delivery",
    "retry of a plan: parts not fenced",
    "second report that goes on with the first outcome",
}


def _marked(mutant: Mutant) -> object:
    """The mutant as a parameter, marked as slow if it is rare."""
    marks = [pytest.mark.slow] if mutant.name in RARE else []
    return pytest.param(mutant, id=mutant.name.replace(" ", "-"), marks=marks)


# Where a seed means another run than before, the search from 0 on takes a minute or two.
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mutant", [*map(_marked, ALL)])
def test_a_broken_protocol_is_found(mutant: Mutant, capsys: pytest.CaptureFixture[str]) -> None:
    seeds = chain([FOUND_AT.get(mutant.name, 0)], range(SEEDS_MAX))
    found = first_seed_that_finds(mutant, seeds)
    assert found is not None, f"{mutant.name}: not found within {SEEDS_MAX} seeds"
    seed, why = found
    with capsys.disabled():
        sys.stdout.write(f"\n{mutant.name}: found at seed {seed}: {why[:100]}\n")
    with mutant.mixed():
        mutant.makes(seed).run()  # what is not broken passes where its mutant fails


def test_each_recorded_seed_is_of_an_existing_mutant() -> None:
    assert set(FOUND_AT) <= {mutant.name for mutant in ALL}


def test_no_mutant_leaves_the_protocol_changed() -> None:
    for mutant in ALL:
        before = [getattr(module, name) for module, name, _ in mutant.patches]
        first_seed_that_finds(mutant, range(1))
        assert [getattr(module, name) for module, name, _ in mutant.patches] == before
