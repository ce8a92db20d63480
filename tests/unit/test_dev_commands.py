"""dev.py: runs side by side pass only where each of them has run something."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

_FILE = Path(__file__).parents[2] / "dev.py"


@pytest.mark.parametrize(
    ("codes", "arguments", "good"),
    [
        ([0, 0], [], True),
        ([0, 5], [], False),
        ([0, 5], ["-m", "chaos"], False),
        ([0, 5], ["--kind", "x", "-k", "some"], True),
        ([0, 5], ["-ksome"], True),
        ([5, 5], ["-k", "some"], False),
        ([0, 1], ["-k", "some"], False),
    ],
)
def test_a_run_that_collects_nothing_passes_only_with_a_selection(
    codes: list[int], arguments: list[str], good: bool
) -> None:
    spec = importlib.util.spec_from_file_location("dev", _FILE)
    assert spec is not None
    assert spec.loader is not None
    dev = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(dev)
    assert dev.passed(codes, arguments) is good
