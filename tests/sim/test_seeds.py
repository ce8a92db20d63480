"""Thousands of seeded runs of the real protocol, with faults at every request."""

from __future__ import annotations

import os

import pytest

from .mutants import MUTANTS
from .seeds import failures, main
from .world import World

#: How many seeds are run; the first is always 0, so that every run of the tests is the same.
SEEDS = int(os.environ.get("ZKPLAN_SIM_SEEDS", "20000"))
SHOWN = 10


@pytest.mark.timeout(max(600, SEEDS // 20))
def test_no_seed_breaks_an_invariant() -> None:
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


def test_a_run_by_hand_prints_how_many_seeds_ran(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["1", "6"]) == 0
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "5 seeds from 1, violations: 0\n")


def test_a_run_by_hand_prints_and_counts_failed_seeds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant = next(each for each in MUTANTS if each.name == "publish left out")
    for module, name, broken in mutant.patches:
        monkeypatch.setattr(module, name, broken)
    # Which seeds need a publication changes with each feature that the simulation gets.
    seed = next(seed for seed in range(100) if main([str(seed), str(seed + 2), "2"]))
    told, counted = capsys.readouterr()
    assert told.startswith(f"python -m tests.sim.replay {seed}  # ")
    assert counted.endswith(f"1 seed from {seed}, violations: 1\n")


@pytest.mark.parametrize(("words", "code"), [(["--help"], 0), (["1"], 2), (["1", "9", "0"], 2)])
def test_a_run_by_hand_with_wrong_arguments_exits_with_a_code(words: list[str], code: int) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == code
