"""Delays grow from the first to the last, within their jitter, however many failures there were."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkplan.backoff import Backoff

BACKOFFS = st.builds(
    lambda initial, factor, stretch, jitter: Backoff(initial, factor, initial * stretch, jitter),
    st.floats(1e-3, 100),
    st.floats(1, 10),
    st.floats(1, 1e6),
    st.floats(0, 1),
)
CHANCES = st.floats(0, 1, exclude_max=True)


@given(BACKOFFS, st.integers(0, 10**9), CHANCES)
def test_a_delay_lies_within_its_bounds(backoff: Backoff, failures: int, chance: float) -> None:
    delay = backoff.delay_s(failures, chance)
    assert backoff.initial_s * (1 - backoff.jitter) <= delay <= backoff.max_s * (1 + 1e-9)


@given(BACKOFFS, st.integers(0, 10**6), CHANCES)
def test_delays_never_shrink_with_failures(backoff: Backoff, failures: int, chance: float) -> None:
    now, then = backoff.delay_s(failures, chance), backoff.delay_s(failures + 1, chance)
    assert now <= then * (1 + 1e-9)


@given(BACKOFFS, st.integers(0, 50), CHANCES)
def test_jitter_only_shortens(backoff: Backoff, failures: int, chance: float) -> None:
    full = backoff.delay_s(failures, 0.0)
    assert full * (1 - backoff.jitter) <= backoff.delay_s(failures, chance) * (1 + 1e-9)
    assert backoff.delay_s(failures, chance) <= full


@pytest.mark.parametrize(
    "wrong",
    [
        {"initial_s": 0},
        {"initial_s": 2, "max_s": 1},
        {"factor": 0.5},
        {"jitter": -0.1},
        {"jitter": 1.1},
    ],
)
def test_invalid_numbers_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Backoff(**wrong)
    with pytest.raises(ValueError, match="negative"):
        Backoff().delay_s(-1, 0.5)
