"""Processes that are watched: what may happen to one between two looks at it."""

from __future__ import annotations

from pathlib import Path

import pytest

from zkplan.testing.process import WatchedProcess


def test_a_process_that_ends_while_it_is_paused_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread looks whether it runs, and so takes its end from the one that waits."""
    process = WatchedProcess(["/bin/sleep", "60"], tmp_path / "log")
    running = process.is_running

    def ends_meanwhile() -> bool:
        ran = running()
        process.end(0)
        return ran

    monkeypatch.setattr(process, "is_running", ends_meanwhile)
    process.pause()
    assert not running()
