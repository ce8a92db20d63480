"""The fleet of a stress run keeps its size, and records every end of a process."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from zkplan.runtime.claims import HANDED_BACK
from zkplan.stress.fleet import Fleet, WorkersDie
from zkplan.stress.history import Recorder, StressHistory

DIES = ["/bin/sh", "-c", "echo no such module; exit 1"]
IGNORES_SIGTERM = ["/bin/sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.01; done"]

MakeFleet = Callable[[list[str]], Fleet]


@pytest.fixture
def make_fleet(tmp_path: Path) -> MakeFleet:
    recorder = Recorder(str(tmp_path), "harness")
    return lambda command: Fleet(command, 2, tmp_path, recorder)


def tend_for_ever(fleet: Fleet) -> None:
    while True:
        fleet.tend()


def history(tmp_path: Path) -> StressHistory:
    found = StressHistory(tmp_path)
    found.read()
    return found


def test_a_killed_worker_is_replaced_and_its_end_recorded(
    make_fleet: MakeFleet, tmp_path: Path
) -> None:
    with make_fleet(["sleep", "60"]) as fleet:
        before = fleet.pids
        killed = fleet.kill_one(random.Random(1))

        assert killed in before
        assert len(fleet.pids) == 2
        assert killed not in fleet.pids
    (kill,) = history(tmp_path).kills
    assert (kill.pid, kill.intended) == (killed, True)
    assert kill.sent <= kill.reaped


def test_a_seed_chooses_the_same_victims_again(make_fleet: MakeFleet) -> None:
    def victims() -> list[int]:
        chance, places = random.Random(5), []
        with make_fleet(["sleep", "60"]) as fleet:
            for _ in range(4):
                order = list(fleet._crew.processes)
                pid = fleet.kill_one(chance)
                places.append([process.pid for process in order].index(pid))
        return places

    assert victims() == victims()


def test_workers_that_keep_ending_by_themselves_break_the_run_with_their_log(
    make_fleet: MakeFleet, tmp_path: Path
) -> None:
    with make_fleet(DIES) as fleet, pytest.raises(WorkersDie, match="no such module"):
        tend_for_ever(fleet)
    assert {kill.intended for kill in history(tmp_path).kills} == {False}


def test_a_worker_that_does_not_stop_is_killed_and_told(
    make_fleet: MakeFleet, tmp_path: Path
) -> None:
    with make_fleet(IGNORES_SIGTERM) as fleet:
        logs = [tmp_path / f"worker-{number}.log" for number in (1, 2)]
        while not all(log.read_text() for log in logs):
            fleet.tend()
        fleet.stop(grace_s=0.05)

        assert fleet.pids == set()
    notes = [kill.note for kill in history(tmp_path).kills]
    assert len(notes) == 2
    assert all("did not stop within 0.05 s" in note for note in notes)


def test_workers_that_stop_when_asked_leave_no_record(
    make_fleet: MakeFleet, tmp_path: Path
) -> None:
    with make_fleet(["sleep", "60"]) as fleet:
        fleet.stop(grace_s=10)

    assert history(tmp_path).kills == []


def test_hand_backs_are_counted_in_what_the_workers_say(
    make_fleet: MakeFleet, tmp_path: Path
) -> None:
    says = f"echo '7 claims {HANDED_BACK} for 0.2 s: handed back'; echo; "
    with make_fleet(["/bin/sh", "-c", f"{says * 2} exec sleep 60"]) as fleet:
        logs = list(tmp_path.glob("worker-*.log"))
        deadline = time.monotonic() + 10
        while not all(log.read_text().count(HANDED_BACK) == 2 for log in logs):
            assert time.monotonic() < deadline
        fleet.kill_one(random.Random(1))
        fleet.note_hand_backs()
    # Those of the killed one count; its successor may have spoken or not.
    found = history(tmp_path)
    assert found.hand_backs in range(4, 7)
    assert found.handed_back == 7 * found.hand_backs
