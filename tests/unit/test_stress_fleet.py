"""The fleet of a stress run, also under one supervisor: it records every end of a process."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.integ.support import wait_until
from zkplan.cli.stress import stress
from zkplan.runtime.claims import HANDED_BACK
from zkplan.stress.fleet import Fleet, SupervisedFleet, WorkersDie
from zkplan.stress.history import Recorder, StressHistory

DIES = ["/bin/sh", "-c", "echo no such module; exit 1"]
IGNORES_SIGTERM = ["/bin/sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.01; done"]

#: Has two workers and reaps them, as a shell that waits does.
TWO = "sleep 60 & echo worker $!; sleep 60 & echo worker $!; while :; do wait; done"
ONE_ENDED = "echo 'worker process 4194305 ended with 3; it is replaced in 0.2 s'; exec sleep 60"

MakeFleet = Callable[[list[str]], Fleet]
MakeCrew = Callable[[str], SupervisedFleet]


@pytest.fixture
def make_fleet(tmp_path: Path) -> MakeFleet:
    recorder = Recorder(str(tmp_path), "harness")
    return lambda command: Fleet(command, 2, tmp_path, recorder)


@pytest.fixture
def make_crew(tmp_path: Path) -> MakeCrew:
    recorder = Recorder(str(tmp_path), "harness")
    return lambda script: SupervisedFleet(["/bin/sh", "-c", script], 2, tmp_path, recorder)


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
        wait_until(lambda: all(log.read_text() for log in logs), "both ignore it")
        fleet.stop(grace_s=0.05)
        assert fleet.pids == set()
    notes = [kill.note for kill in history(tmp_path).kills]
    assert len(notes) == 2
    assert all("did not stop within 0.05 s" in note for note in notes)


def test_hand_backs_are_counted_in_what_the_workers_say(
    make_fleet: MakeFleet, tmp_path: Path
) -> None:
    says = f"echo '7 claims {HANDED_BACK} for 0.2 s: handed back'; echo; "
    with make_fleet(["/bin/sh", "-c", f"{says * 2} exec sleep 60"]) as fleet:
        logs = list(tmp_path.glob("worker-*.log"))
        wait_until(lambda: all(log.read_text().count(HANDED_BACK) == 2 for log in logs), "two each")
        fleet.kill_one(random.Random(1))
        fleet.note_hand_backs()
    # Those of the killed one count; its successor may have spoken or not.
    found = history(tmp_path)
    assert found.hand_backs in range(4, 7)
    assert found.handed_back == 7 * found.hand_backs


def said(folder: Path, lines: int) -> list[str]:
    """What the supervisor has said, once it is so many lines."""
    log = folder / "workers.log"
    wait_until(lambda: len(log.read_text().splitlines()) >= lines, f"{lines} lines")
    return log.read_text().splitlines()


def test_one_of_the_registered_is_killed_and_its_end_recorded(
    make_crew: MakeCrew, tmp_path: Path
) -> None:
    with make_crew(TWO) as fleet:
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


def test_who_ended_by_itself_is_recorded_once(make_crew: MakeCrew, tmp_path: Path) -> None:
    with make_crew(ONE_ENDED) as fleet:
        said(tmp_path, 1)
        for _ in range(3):
            fleet.tend()
    (died,) = history(tmp_path).kills
    assert (died.pid, died.intended) == (4194305, False)
    assert "ended with 3" in died.note


def test_workers_that_keep_ending_by_themselves_break_the_run(
    make_crew: MakeCrew, tmp_path: Path
) -> None:
    ends = "".join(f"echo worker process {pid} ended with 1; " for pid in (1, 2, 3))
    with make_crew(f"{ends} exec sleep 60") as fleet:
        said(tmp_path, 3)
        with pytest.raises(WorkersDie, match="3 workers ended by themselves"):
            fleet.tend()


def test_a_supervisor_that_ends_breaks_the_run_with_its_log(make_crew: MakeCrew) -> None:
    with make_crew("echo no such module") as fleet:
        assert fleet._supervisor.wait_ended(30)
        with pytest.raises(WorkersDie, match="no such module"):
            fleet.tend()


def test_a_supervisor_that_does_not_stop_is_killed_and_told(
    make_crew: MakeCrew, tmp_path: Path
) -> None:
    with make_crew("trap '' TERM; echo here; while :; do sleep 1; done") as fleet:
        said(tmp_path, 1)
        fleet.stop(grace_s=0.05)
    (died,) = history(tmp_path).kills
    assert "did not stop within 0.05 s" in died.note


def test_one_worker_alone_is_refused_before_anything_is_started() -> None:
    # Of a single process `zkplan worker` makes no supervisor: nobody would sign it off.
    said = CliRunner().invoke(stress, ["--supervised", "--workers", "1", "--hosts", "127.0.0.1:1"])
    assert said.exit_code == 2
    assert "--supervised needs --workers of at least 2" in said.output
