"""A fault excuses only the processes and plans that it may have touched."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from zkplan.testing.stress_tasks import Recorder

from .changes import known_as
from .cluster.cluster import Cluster, Process, Role
from .cluster.stub import scripted
from .faults.catalogue import CATALOGUE
from .faults.fault import Fault
from .faults.target import Target
from .run import Run
from .traffic.tasks import EXIT_CODE
from .validate.history import RunHistory
from .validate.validator import Validator
from .validate.windows import Window


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    names: list[tuple[str, Role]] = [(f"worker{n}", "worker") for n in range(4)]
    with scripted(tmp_path, [*names, ("author", "author")]) as cluster:
        yield cluster


def inject(cluster: Cluster, fault: Fault) -> None:
    Run(cluster, Validator(cluster))._inject(fault)


def excused(cluster: Cluster) -> set[str]:
    """The processes that are excused now."""
    history, now = RunHistory(cluster.folder), time.monotonic()
    history.read()
    return {each.name for each in cluster.processes if history.disturbed(each.pid, now, now)}


def take_poke(cluster: Cluster, what: str, process: Process) -> None:
    taker = Recorder(str(cluster.folder), "worker-1")
    taker.write("poked", what=what, pid=process.pid)
    taker.close()


@pytest.mark.parametrize(
    ("name", "count", "codes"),
    [
        ("worker link slow", 1, []),
        ("worker paused", 1, []),
        ("author answers held", 1, []),
        ("worker pauses at point claim.made", 1, []),
        ("worker dies at point claim.made", 1, [-signal.SIGKILL]),
        # The victims include the process that gets the trigger.
        ("worker dies at point clear.listed", 4, [-signal.SIGKILL]),
        # Until a task has taken the poke.
        ("task exits", 0, [EXIT_CODE]),
        ("task segfaults", 0, [-signal.SIGSEGV]),
        ("task forks", 0, []),
        ("plans removed", 0, []),
        ("dead tasks retried", 0, []),
        ("watches lost", 0, []),
        ("all links slow", 5, []),
    ],
)
def test_a_fault_excuses_only_its_processes_and_its_exit_codes(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, name: str, count: int, codes: list[int]
) -> None:
    fault = CATALOGUE[name].fault()
    monkeypatch.setattr(type(fault), "heal", lambda *_: None)
    if "plans" in name or "tasks" in name:
        monkeypatch.setattr(type(fault), "inject", lambda *_: None)
    inject(cluster, fault)
    assert (len(excused(cluster)), [*fault.target().codes]) == (count, codes)
    assert {victim.name for victim in fault.victims} <= excused(cluster)
    for victim in fault.victims if "dies" in name else ():
        cluster.kill(victim, "another fault")
        cluster.start(victim)
        assert victim.name not in excused(cluster), "its next life is not armed"


def test_a_poke_excuses_only_the_process_that_took_it_last(cluster: Cluster) -> None:
    take_poke(cluster, "exit", cluster.processes[0])
    inject(cluster, CATALOGUE["task exits"].fault())
    take_poke(cluster, "exit", cluster.processes[2])
    take_poke(cluster, "arm", cluster.processes[1])
    assert excused(cluster) == {"worker2"}


# ---- how much they excuse


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


def test_a_process_that_died_at_a_point_and_is_found_late_is_one_loss(history: RunHistory) -> None:
    kill(history, 77, at=12.0)
    history.windows.append(Window("at a point", 9.0, Target(pids=[77], codes=[-9]), 11.0))
    assert history.losses(10.0, 13.0) == 1
    history.windows[0].aim = Target(pids=[77])
    assert history.losses(10.0, 13.0) == 2


def test_time_that_several_faults_excuse_counts_once(history: RunHistory) -> None:
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
