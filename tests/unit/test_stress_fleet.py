"""The fleet of a stress run, with and without a supervisor, records every end of a process."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.tools.support import wait_until
from zkplan.cli import cli
from zkplan.runtime.claims import HANDED_BACK
from zkplan.testing.stress_run import Fleet, SupervisedFleet, WorkersDie
from zkplan.testing.stress_tasks import Recorder, StressHistory

DIES = ["/bin/sh", "-c", "echo no such module; exit 1"]
IGNORES_SIGTERM = ["/bin/sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.01; done"]

#: Has two workers and reaps them, as a shell that waits does.
TWO = "sleep 60 & echo worker $!; sleep 60 & echo worker $!; while :; do wait; done"
ONE_ENDED = "echo 'worker process 4194305 ended with 3; it is replaced in 0.2 s'; exec sleep 60"


class Fleets:
    """Makes fleets of two that record into one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._recorder = Recorder(str(folder), "harness")

    def of(self, *command: str) -> Fleet:
        return Fleet(command, 2, self.folder, self._recorder)

    def supervised(self, script: str) -> SupervisedFleet:
        return SupervisedFleet(["/bin/sh", "-c", script], 2, self.folder, self._recorder)

    @property
    def history(self) -> StressHistory:
        found = StressHistory(self.folder)
        found.read()
        return found

    def said(self, lines: int) -> list[str]:
        """What the supervisor has said, once it is so many lines."""
        log = self.folder / "workers.log"
        wait_until(lambda: len(log.read_text().splitlines()) >= lines, f"{lines} lines")
        return log.read_text().splitlines()


@pytest.fixture
def fleets(tmp_path: Path) -> Fleets:
    return Fleets(tmp_path)


def tend_for_ever(fleet: Fleet | SupervisedFleet) -> None:
    while True:
        fleet.tend()


def test_a_killed_worker_is_replaced_and_its_end_is_recorded(fleets: Fleets) -> None:
    with fleets.of("sleep", "60") as fleet:
        before = fleet.pids
        killed = fleet.kill_one(random.Random(1))
        assert killed in before
        assert len(fleet.pids) == 2
        assert killed not in fleet.pids
    (kill,) = fleets.history.kills
    assert (kill.pid, kill.intended) == (killed, True)
    assert kill.sent <= kill.reaped


def test_a_seed_always_chooses_the_same_victims(fleets: Fleets) -> None:
    def victims() -> list[int]:
        chance, places = random.Random(5), []
        with fleets.of("sleep", "60") as fleet:
            for _ in range(4):
                order = list(fleet._crew.processes)
                pid = fleet.kill_one(chance)
                places.append([process.pid for process in order].index(pid))
        return places

    assert victims() == victims()


def test_workers_that_keep_exiting_fail_the_run_and_their_log_is_shown(
    fleets: Fleets,
) -> None:
    with fleets.of(*DIES) as fleet, pytest.raises(WorkersDie, match="no such module"):
        tend_for_ever(fleet)
    assert {kill.intended for kill in fleets.history.kills} == {False}


def test_a_worker_that_does_not_stop_is_killed_and_recorded(fleets: Fleets) -> None:
    with fleets.of(*IGNORES_SIGTERM) as fleet:
        logs = [fleets.folder / f"worker-{number}.log" for number in (1, 2)]
        wait_until(lambda: all(log.read_text() for log in logs), "both ignore it")
        fleet.stop(grace_s=0.05)
        assert fleet.pids == set()
    notes = [kill.note for kill in fleets.history.kills]
    assert len(notes) == 2
    assert all("did not stop within 0.05 s" in note for note in notes)


def test_hand_backs_are_counted_from_the_logs_of_the_workers(fleets: Fleets) -> None:
    says = f"echo '7 claims {HANDED_BACK} for 0.2 s: handed back'; echo; "
    with fleets.of("/bin/sh", "-c", f"{says * 2} exec sleep 60") as fleet:
        logs = list(fleets.folder.glob("worker-*.log"))
        wait_until(lambda: all(log.read_text().count(HANDED_BACK) == 2 for log in logs), "two each")
        fleet.kill_one(random.Random(1))
        fleet.note_hand_backs()
    # Those of the killed one count; its successor may have spoken or not.
    found = fleets.history
    assert found.hand_backs in range(4, 7)
    assert found.handed_back == 7 * found.hand_backs


def test_one_registered_worker_is_killed_and_its_end_is_recorded(fleets: Fleets) -> None:
    with fleets.supervised(TWO) as fleet:
        first, second = [int(line.split()[1]) for line in fleets.said(2)]
        assert fleet.is_complete([first, second])
        fleet.kill_one(random.Random(1), [first])
        assert fleet.gone == {first}
        # Its registration stands until it is signed off.
        assert not fleet.is_complete([first, second])
        fleet.kill_one(random.Random(1), [first, second])
        assert fleet.kills == 2
        fleet.kill_one(random.Random(1), [first, second])
        assert fleet.kills == 2
    kills = fleets.history.kills
    assert [(kill.pid, kill.intended) for kill in kills] == [(first, True), (second, True)]
    assert all(kill.sent <= kill.reaped for kill in kills)


def test_a_worker_that_exited_by_itself_is_recorded_once(fleets: Fleets) -> None:
    with fleets.supervised(ONE_ENDED) as fleet:
        fleets.said(1)
        for _ in range(3):
            fleet.tend()
    (died,) = fleets.history.kills
    assert (died.pid, died.intended) == (4194305, False)
    assert "ended with 3" in died.note


def test_workers_that_keep_exiting_under_a_supervisor_fail_the_run(fleets: Fleets) -> None:
    ends = "".join(f"echo worker process {pid} ended with 1; " for pid in (1, 2, 3))
    with fleets.supervised(f"{ends} exec sleep 60") as fleet:
        fleets.said(3)
        with pytest.raises(WorkersDie, match="3 workers ended by themselves"):
            fleet.tend()


def test_a_supervisor_that_exits_fails_the_run_and_its_log_is_shown(fleets: Fleets) -> None:
    with (
        fleets.supervised("echo no such module") as fleet,
        pytest.raises(WorkersDie, match="no such module"),
    ):
        tend_for_ever(fleet)


def test_a_supervisor_that_does_not_stop_is_killed_and_recorded(fleets: Fleets) -> None:
    with fleets.supervised("trap '' TERM; echo here; while :; do sleep 1; done") as fleet:
        fleets.said(1)
        fleet.stop(grace_s=0.05)
    (died,) = fleets.history.kills
    assert "did not stop within 0.05 s" in died.note


def test_a_fleet_of_one_worker_is_refused_before_anything_is_started() -> None:
    # `zkplan worker` with a single process has no supervisor that would sign it off.
    options = ["--supervised", "--workers", "1", "--hosts", "127.0.0.1:1"]
    said = CliRunner().invoke(cli, ["stress", *options])
    assert said.exit_code == 2
    assert "--supervised needs --workers of at least 2" in said.output
