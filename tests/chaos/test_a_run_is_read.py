"""What a run recorded is read as it was meant: losses, operations, what authors were told."""

from __future__ import annotations

from pathlib import Path

import pytest

from zkplan.stress.history import Recorder

from .changes import known_as
from .cluster.cluster import Cluster, Settings
from .faults.target import Target
from .validate.history import RunHistory
from .validate.operations import Operations
from .validate.validator import Validator
from .validate.windows import Window


@pytest.fixture
def history(tmp_path: Path) -> RunHistory:
    return RunHistory(tmp_path, "one")


def kill(history: RunHistory, pid: int, at: float) -> None:
    """That process, of a worker of its own, was killed then."""
    history._kills[pid].append(at)
    known_as(history, pid, f"worker{pid}")


def test_a_kill_and_its_fault_are_one_loss(history: RunHistory) -> None:
    kill(history, 77, at=10.0)
    assert history.losses(9.0, 12.0) == 1
    history.windows.append(Window("worker killed", 9.9, Target(names=["worker77"]), 10.5))
    assert history.losses(9.0, 12.0) == 1
    # By another fault it is one more, as is the kill of another worker.
    history.windows.append(Window("link cut", 9.9, Target(names=["worker78"]), 10.5))
    assert history.losses(9.0, 12.0) == 1
    kill(history, 78, at=11.0)
    assert history.losses(9.0, 12.0) == 3
    # Who is told to stop loses nothing by it, and is killed where that takes too long.
    kill(history, 79, at=20.0)
    aim = Target(names=["worker79"], hands_back=True)
    history.windows.append(Window("worker told to stop", 19.0, aim, 21.0))
    assert history.losses(18.0, 22.0) == 1


def test_who_died_at_a_point_and_is_found_late_is_one_loss(history: RunHistory) -> None:
    kill(history, 77, at=12.0)
    history.windows.append(Window("at a point", 9.0, Target(pids=[77], codes=[-9]), 11.0))
    assert history.losses(10.0, 13.0) == 1
    history.windows[0].aim = Target(pids=[77])
    assert history.losses(10.0, 13.0) == 2


def test_what_several_faults_excuse_counts_once(history: RunHistory) -> None:
    assert history.excused_s(0.0, 100.0, 4.5) == 0.0
    for name, begin, end in (("one", 10.0, 20.0), ("two", 12.0, 15.0), ("last", 99.0, 101.0)):
        history.windows.append(Window(name, begin, end=end))
    assert history.excused_s(0.0, 100.0, 4.5) == 10.0 + 4.5 + 1.0
    # A fault of one of two workers excuses that one alone.
    for pid in (77, 78):
        known_as(history, pid, f"worker{pid}")
    history.windows[:] = [Window("one", 10.0, Target(names=["worker77"]), 20.0)]
    assert history.excused_s(0.0, 100.0, 4.5) == 0.0
    history.windows[0].aim = Target(names=["worker77", "worker78"])
    assert history.excused_s(0.0, 100.0, 4.5) == 10.0 + 4.5


def test_an_operator_that_was_told_of_the_removal_is_owed_it() -> None:
    operations = Operations()
    begun = {"event": "operator begun", "uid": "1", "what": "remove", "plan": "P", "path": "/p"}
    operations.take({**begun, "at": 1.0})
    assert operations.ending("P") == "removed"
    assert not operations.was_removed("P", 9.0)
    operations.take({"event": "operator answered", "uid": "1", "outcome": "done", "at": 2.0})
    assert not operations.was_removed("P", 1.5)
    assert operations.was_removed("P", 9.0)
    operations.take({"event": "operator heard", "uid": "1", "heard": "PlanNotFound", "at": 3.0})
    assert operations.of_plan["P"][0].heard_at == 3.0


def test_what_an_author_was_told_of_its_plan_is_read(history: RunHistory, tmp_path: Path) -> None:
    author = Recorder(str(tmp_path), "author-7")
    author.write("cut short", seed=5, shape="one", error="PlanNotFound('chaos-5')")
    author.close()
    history.read()
    assert history.plans["chaos-5"].cut_short == "PlanNotFound('chaos-5')"


def test_what_shows_in_the_history_alone_is_told_once(tmp_path: Path) -> None:
    cluster = Cluster(Settings("embedded", 1), tmp_path)
    cluster.journal.write("wait broke", plan="chaos-5", error="PlanStuck: no reason")
    validator = Validator(cluster)
    for _ in range(2):
        validator.check_history()
    cluster.journal.close()
    (found,) = validator.violations
    assert found == "- a wait for chaos-5 broke: PlanStuck: no reason"
