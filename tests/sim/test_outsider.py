"""S20: data that was not sealed for its place is never used, whatever an outsider writes."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from typing import Any

import pytest

from zkplan.protocol.core import load
from zkplan.protocol.requests import Node
from zkplan.values import guard
from zkplan.values.guard import Guard
from zkplan.values.keyring import _Hash, without_proof
from zkplan.values.sealed_places import Life, Places, SealedPlace

from .mix import replaced
from .outsider import Run
from .story import Violation

SEEDS = max(10, int(os.environ.get("ZKPLAN_SIM_SEEDS", "20000")) // 200)
#: Each mutant must be found within this number of seeds.
SEEDS_MAX = 400


def _ordered_by_nothing(self: Places, path: str) -> SealedPlace | None:
    found = _OF(self, path)
    return (*found[:2], found[2]._replace(ordered=False)) if found is not None else None


def _one_life(self: Guard, plan: str) -> Generator[Any, Any, Life]:
    yield from ()
    return Life.of(plan, 1)


def _used_all_the_same(self: Guard, path: str, node: Node, error: Exception) -> bytes:
    return without_proof(node.data)


_OF, _PROOF = Places.of, _Hash._proof
MUTANTS: dict[str, tuple[Any, str, Any]] = {
    "the place is left out": (_Hash, "_proof", lambda self, _, body: _PROOF(self, b"", body)),
    "arguments are not sealed": (Places, "open_in_task", Places.open_in_task | {"/arg-"}),
    "an argument is taken from any task": (load, "misplaced", lambda *_: ""),
    "the version of a state is left out": (Places, "of", _ordered_by_nothing),
    "the life of a plan is left out": (Guard, "_learn", _one_life),
    "a state runs from its first version on": (guard, "starting_control", lambda data: data),
    "an end counts after a retry": (guard, "require_last_end", lambda *_: None),
    "a failure counts without its dead letter": (guard, "is_failure", lambda _: False),
    "what was refused is parsed": (Guard, "_refused", _used_all_the_same),
}


def first_seed_that_finds(mutant: tuple[Any, str, Any]) -> tuple[int, str] | None:
    with replaced([mutant]):
        for seed in range(SEEDS_MAX):
            try:
                Run(seed).run()
            except Violation as violation:
                return seed, str(violation)
            except Exception:  # something else fell over it first: not enough
                continue
    return None


def test_nothing_is_used_unless_a_key_holder_sealed_it_for_its_place() -> None:
    judged = sum(Run(seed).run() for seed in range(SEEDS))
    assert judged > 3 * SEEDS  # else these runs would show nothing


@pytest.mark.parametrize("name", MUTANTS)
def test_an_outsider_exploits_each_broken_protection(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = first_seed_that_finds(MUTANTS[name])
    assert found is not None, f"{name}: not found within {SEEDS_MAX} seeds"
    seed, why = found
    with capsys.disabled():
        sys.stdout.write(f"\n{name}: found after {seed + 1} seeds: {why[:100]}\n")
    Run(seed).run()
