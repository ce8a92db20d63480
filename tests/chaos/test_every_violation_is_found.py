"""Each change of an honest history gives its violation, and the honest history gives none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from zkplan.testing.stress_verdict import CHECKS as STRESS_CHECKS

from .honest import cancelled, done, found_in, held, removed, resting
from .validate.checks import DONE, EVERY, STOPPED
from .validate.evidence import PlanEvidence
from .validate.snapshot import is_quiet
from .violations import TABLE as OF_CHAOS
from .violations_of_histories import TABLE as OF_HISTORIES
from .violations_of_histories import told
from .violations_of_stress import TABLE as OF_STRESS
from .violations_of_stress import StressRun, stressed

TABLE = {**OF_CHAOS, **OF_STRESS, **OF_HISTORIES}
ROWS = [
    pytest.param(check, *row, id=f"{check}: {row[2] or 'allowed'}")
    for check, rows in TABLE.items()
    for row in rows
]
SHAPES = ["adding", "failing", "random", "growing", "hub", "huge join", "pure chain"]
HONEST: dict[str, Callable[[Path], Any]] = {
    **{f"{shape} {seed}": done(shape, seed) for shape in SHAPES for seed in range(5)},
    **{each.__name__: each for each in (held, cancelled, removed, stressed, told)},
}


def all_found_in(subject: PlanEvidence | StressRun) -> list[str]:
    return found_in(subject) if isinstance(subject, PlanEvidence) else subject.found()


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_history_gives_no_violation(name: str, tmp_path: Path) -> None:
    assert all_found_in(HONEST[name](tmp_path)) == []


@pytest.mark.parametrize(("check", "history", "change", "piece"), ROWS)
def test_a_changed_history_gives_its_violation(
    check: str,
    history: Callable[[Path], Any],
    change: Callable[[Any], object],
    piece: str,
    tmp_path: Path,
) -> None:
    subject = history(tmp_path)
    change(subject)
    found = all_found_in(subject)
    if piece:
        assert any(text.startswith(check) and piece in text for text in found), found
    else:
        assert found == []


def test_every_check_has_a_violation_in_the_table() -> None:
    named = {f"{n} {check.__name__.replace('_', ' ')}" for n, check in (*EVERY, *DONE, *STOPPED)}
    named |= {f"{invariant} {promise}" for invariant, promise, _ in STRESS_CHECKS}
    found = {check for check, rows in TABLE.items() if any(piece for _, _, piece in rows)}
    assert named - found == set()


def test_a_plan_with_a_claim_or_an_unfinished_delivery_is_not_quiet() -> None:
    assert is_quiet(resting())
    owed = replace(resting(), versions={"2": (1, 1)})
    owed.places["2"] = ["pending"]
    assert not is_quiet(owed)
    assert not is_quiet(replace(resting(), claims=["claims/claim"]))
