"""Each change of an honest history gives its violation, and the honest history gives none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from zkplan.stress.validate.stress import CHECKS as STRESS_CHECKS

from .broken import attempts, operators, plans, stress, unplanned
from .broken.honest import cancelled, done, found_in, held, removed, resting, stressed
from .broken.table import ROWS, Row
from .validate.operator_checks import OF_OPERATIONS, OF_STOPPED
from .validate.plan_checks import CHECKS
from .validate.snapshot import is_quiet

#: Each puts its rows into the table.
CHANGES = (plans, attempts, operators, unplanned, stress)
SHAPES = ["adding", "failing", "random", "growing", "hub", "huge join"]
HONEST: dict[str, Callable[[Path], Any]] = {
    **{f"{shape} {seed}": done(shape, seed) for shape in SHAPES for seed in range(5)},
    **{each.__name__: each for each in (held, cancelled, removed, stressed)},
}


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_history_gives_no_violation(name: str, tmp_path: Path) -> None:
    assert found_in(HONEST[name](tmp_path)) == []


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_changed_history_gives_its_violation(row: Row, tmp_path: Path) -> None:
    subject = row.history(tmp_path)
    row.change(subject, **row.given)
    found = found_in(subject)
    if row.violation:
        assert row.found_in(found), found
    else:
        assert found == []


def test_every_check_has_a_row() -> None:
    found = {row.violation.partition(" … ")[0].partition(":")[0] for row in ROWS}
    named = {
        f"{number} {check.__name__.replace('_', ' ')}"
        for checks in (CHECKS, OF_STOPPED, OF_OPERATIONS)
        for number, check in checks
    }
    named |= {f"{invariant} {promise}" for invariant, promise, _ in STRESS_CHECKS}
    assert named - found == set()


def test_a_plan_with_a_claim_or_a_delivery_that_is_owed_is_not_at_rest() -> None:
    assert is_quiet(resting())
    owed, claimed = resting(), resting()
    owed.places["2"], owed.versions["2"] = ["pending"], (1, 1)
    claimed.claims.append("claims/claim")
    assert not is_quiet(owed)
    assert not is_quiet(claimed)
