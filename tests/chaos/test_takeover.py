"""Tasks of a dead worker run elsewhere within a bound, and those of a stopped worker at once."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.tools.available import skip_without

from .cluster.servers import KINDS, Kind
from .takeover import Series, measure, settings_for

SEED = 5
SESSION_S, TICK_MS = 3.0, 250
TIMES = 4


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    wanted = metafunc.config.getoption("--zookeeper-kind")
    if "kind" in metafunc.fixturenames:
        metafunc.parametrize("kind", [kind for kind in KINDS if wanted in ("both", kind)])


def series(kind: Kind, folder: Path, kills: int = 0, stops: int = 0) -> Series:
    """What so many kills, or clean stops, one after another, have shown."""
    skip_without(kind)
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    settings = settings_for(kind, SEED, SESSION_S, TICK_MS)
    (found,), broken = measure(settings, kills, stops, folder)
    assert broken == ""
    assert len(found.waits) >= TIMES, "so many were ended while they ran something"
    return found


@pytest.mark.timeout(300)
def test_a_dead_workers_tasks_run_elsewhere_within_a_second_of_session_end(
    kind: Kind, tmp_path: Path
) -> None:
    found = series(kind, tmp_path, kills=TIMES)
    assert found.bound_s == SESSION_S + TICK_MS / 1000 + 1.0
    assert found.met, found.row


@pytest.mark.timeout(300)
def test_a_stopped_workers_tasks_run_elsewhere_long_before_its_session_would_end(
    kind: Kind, tmp_path: Path
) -> None:
    """Its own bound of half a second is for a quiet machine: the measurement demands it."""
    found = series(kind, tmp_path, stops=TIMES)
    assert max(found.waits) < SESSION_S / 2, found.row
