"""The locks by which a task of a stress run notices that somebody else runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from zkplan.errors import ZkplanError
from zkplan.stress.probe import _running, _take_attempt, run_task
from zkplan.stress.workload import digest_of


def test_a_task_that_somebody_runs_is_noticed_until_he_ends(tmp_path: Path) -> None:
    with _running(str(tmp_path), 3) as first, _running(str(tmp_path), 3) as second:
        assert (first, second) == (True, False)
    with _running(str(tmp_path), 3) as third:
        assert third


def test_other_tasks_run_at_the_same_time(tmp_path: Path) -> None:
    with _running(str(tmp_path), 3) as first, _running(str(tmp_path), 4) as second:
        assert first
        assert second


def test_an_attempt_number_is_taken_once(tmp_path: Path) -> None:
    folder = str(tmp_path)

    assert _take_attempt(folder, 3, 0)
    assert not _take_attempt(folder, 3, 0)
    assert _take_attempt(folder, 3, 1)
    assert _take_attempt(folder, 4, 0)


def test_the_task_refuses_to_run_outside_of_a_worker(tmp_path: Path) -> None:
    with pytest.raises(ZkplanError, match="inside a task"):
        run_task(0, {}, expected=digest_of({}), folder=str(tmp_path), sleep_s=0)
