"""A short fuzz run: the server stays up, consistent and fast, whatever it is sent."""

from __future__ import annotations

import pytest

from .fuzz import run


@pytest.mark.parametrize("seed", [1, 2])
def test_a_server_that_gets_damaged_requests_still_serves_others(seed: int) -> None:
    report = run(requests=10_000, seed=seed)
    assert report.faults == []
    assert report.canary_rounds > 0
    assert report.answers > 4_000
