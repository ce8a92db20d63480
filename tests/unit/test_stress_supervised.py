"""A fleet under one supervisor: who is killed, and what is recorded of the ends of its workers."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from zkplan.cli.stress import stress
from zkplan.stress.fleet import SupervisedFleet, WorkersDie
from zkplan.stress.history import Recorder, StressHistory

#: Has two workers and reaps them, as a shell that waits does.
TWO = "sleep 60 & echo worker $!; sleep 60 & echo worker $!; while :; do wait; done"
ONE_ENDED = "echo 'worker process 4194305 ended with 3; it is replaced in 0.2 s'; exec sleep 60"

MakeFleet = Callable[[str], SupervisedFleet]


@pytest.fixture
def make_fleet(tmp_path: Path) -> MakeFleet:
    recorder = Recorder(str(tmp_path), "harness")
    return lambda script: SupervisedFleet(["/bin/sh", "-c", script], 2, tmp_path, recorder)


def said(folder: Path, lines: int) -> list[str]:
    """What the supervisor has said, once it is so many lines."""
    deadline = time.monotonic() + 30
    while len(found := (folder / "workers.log").read_text().splitlines()) < lines:
        assert time.monotonic() < deadline
    return found


def history(tmp_path: Path) -> StressHistory:
    found = StressHistory(tmp_path)
    found.read()
    return found


def test_one_of_the_registered_is_killed_and_its_end_recorded(
    make_fleet: MakeFleet, tmp_path: Path
) -> None:
    with make_fleet(TWO) as fleet:
        first, second = [int(line.split()[1]) for line in said(tmp_path, 2)]
        assert fleet.is_complete([first, second])
        fleet.kill_one(random.Random(1), [first])
        assert fleet.gone == {first}
        # Its registration stands until it is signed off.
        assert not fleet.is_complete([first, second])
        fleet.kill_one(random.Random(1), [first, second])
        assert fleet.kills == 2
        fleet.kill_one(random.Random(1), [first, second])
        assert fleet.kills == 2
    kills = history(tmp_path).kills
    assert [(kill.pid, kill.intended) for kill in kills] == [(first, True), (second, True)]
    assert all(kill.sent <= kill.reaped for kill in kills)


def test_who_ended_by_itself_is_recorded_once(make_fleet: MakeFleet, tmp_path: Path) -> None:
    with make_fleet(ONE_ENDED) as fleet:
        said(tmp_path, 1)
        for _ in range(3):
            fleet.tend()
    (died,) = history(tmp_path).kills
    assert (died.pid, died.intended) == (4194305, False)
    assert "ended with 3" in died.note


def test_workers_that_keep_ending_by_themselves_break_the_run(
    make_fleet: MakeFleet, tmp_path: Path
) -> None:
    ends = "".join(f"echo worker process {pid} ended with 1; " for pid in (1, 2, 3))
    with make_fleet(f"{ends} exec sleep 60") as fleet:
        said(tmp_path, 3)
        with pytest.raises(WorkersDie, match="3 workers ended by themselves"):
            fleet.tend()


def test_a_supervisor_that_ends_breaks_the_run_with_its_log(make_fleet: MakeFleet) -> None:
    with make_fleet("echo no such module") as fleet:
        assert fleet._supervisor.wait_ended(30)
        with pytest.raises(WorkersDie, match="no such module"):
            fleet.tend()


def test_a_supervisor_that_does_not_stop_is_killed_and_told(
    make_fleet: MakeFleet, tmp_path: Path
) -> None:
    with make_fleet("trap '' TERM; echo here; while :; do sleep 1; done") as fleet:
        said(tmp_path, 1)
        fleet.stop(grace_s=0.05)
    (died,) = history(tmp_path).kills
    assert "did not stop within 0.05 s" in died.note


def test_one_worker_alone_is_refused_before_anything_is_started() -> None:
    # Of a single process `zkplan worker` makes no supervisor: nobody would sign it off.
    said = CliRunner().invoke(stress, ["--supervised", "--workers", "1", "--hosts", "127.0.0.1:1"])
    assert said.exit_code == 2
    assert "--supervised needs --workers of at least 2" in said.output
