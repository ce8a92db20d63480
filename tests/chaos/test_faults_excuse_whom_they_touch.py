"""A fault excuses lost attempts and deaths of those that it may have touched, of nobody else."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from zkplan.stress.history import Recorder

from .cluster.cluster import Cluster, Process, Role
from .cluster.stub import scripted
from .faults.catalogue import CATALOGUE
from .faults.fault import Fault
from .faults.points import AtPoint, Setup
from .faults.running import RunningFault
from .faults.target import Target
from .run import Run
from .validate.history import RunHistory
from .validate.validator import Validator
from .validate.windows import Death


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    names: list[tuple[str, Role]] = [(f"worker{n}", "worker") for n in range(4)]
    with scripted(tmp_path, [*names, ("author", "author")]) as cluster:
        yield cluster


def inject(cluster: Cluster, fault: Fault | str) -> Fault:
    made = CATALOGUE[fault].fault() if isinstance(fault, str) else fault
    Run(cluster, Validator(cluster))._inject(made)
    return made


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
    ("name", "count"),
    [
        ("worker link slow", 1),
        ("worker paused", 1),
        ("author answers held", 1),
        ("task exits", 0),  # until a task has taken the poke
        ("plans removed", 0),
        ("dead tasks retried", 0),
        ("watches lost", 0),
        ("all links slow", 5),
    ],
)
def test_a_fault_excuses_as_many_processes_as_it_hits(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, name: str, count: int
) -> None:
    fault = CATALOGUE[name].fault()
    monkeypatch.setattr(type(fault), "heal", lambda *_: None)
    if "plans" in name or "tasks" in name:
        monkeypatch.setattr(type(fault), "inject", lambda *_: None)
    inject(cluster, fault)
    assert len(excused(cluster)) == count
    assert {victim.name for victim in fault.victims} <= excused(cluster)


def test_a_poke_excuses_the_process_that_took_it_and_no_earlier_taker(cluster: Cluster) -> None:
    take_poke(cluster, "exit", cluster.processes[0])
    inject(cluster, "task exits")
    take_poke(cluster, "exit", cluster.processes[2])
    take_poke(cluster, "arm", cluster.processes[1])
    assert excused(cluster) == {"worker2"}


# ---- whose death a fault explains


def unexplained(cluster: Cluster) -> list[str]:
    """The processes whose death no fault explains."""
    cluster.tend()
    history = RunHistory(cluster.folder)
    history.read()
    return [death.name for death in history.deaths if not history.made(death)]


def die(process: Process, number: int) -> None:
    """End it by a signal from outside, as by itself."""
    running = process.running
    assert running is not None
    os.kill(process.pid, number)
    assert running.wait_ended(10)


def test_a_point_explains_the_deaths_of_the_lives_in_which_it_is_armed(cluster: Cluster) -> None:
    fault = inject(cluster, AtPoint("a point", "claim.made", "kill", Setup()))
    (victim,) = fault.victims
    others = [process for process in cluster.processes if process is not victim]
    for process in cluster.processes:
        die(process, signal.SIGKILL)
    assert unexplained(cluster) == [process.name for process in others]
    die(victim, signal.SIGKILL)  # its next life is not armed
    assert unexplained(cluster).count(victim.name) == 1


@pytest.mark.parametrize(("number", "healed"), [(signal.SIGTERM, False), (signal.SIGKILL, True)])
def test_a_point_explains_no_other_signal_and_nothing_after_its_healing(
    cluster: Cluster, number: int, healed: bool
) -> None:
    run = Run(cluster, Validator(cluster))
    fault = AtPoint("a point", "claim.made", "kill", Setup())
    run._inject(fault)
    if healed:
        run._heal(RunningFault(fault, 1.0, time.monotonic()))
    die(fault.victims[0], number)
    assert unexplained(cluster) == [fault.victims[0].name]


@pytest.mark.parametrize(
    ("name", "explains"),
    [("task segfaults", True), ("task exits", False), ("task forks", False)],
)
def test_a_poke_explains_the_death_that_it_makes(
    cluster: Cluster, name: str, explains: bool
) -> None:
    fault = inject(cluster, name)
    take_poke(cluster, fault.target().poke, cluster.processes[2])
    die(cluster.processes[1], signal.SIGSEGV)
    die(cluster.processes[2], signal.SIGSEGV)
    assert unexplained(cluster) == ["worker1", *([] if explains else ["worker2"])]


def test_a_poke_explains_no_death_after_its_process_has_gone_on(tmp_path: Path) -> None:
    journal, worker = Recorder(str(tmp_path), "cluster"), Recorder(str(tmp_path), "worker-77")
    target = Target(poke="memory", codes=[-6, 1])
    journal.write("fault", name="task eats memory", **target.facts())
    worker.write("poked", what="memory", pid=77)
    journal.write("healed", name="task eats memory")
    journal.close()
    worker.close()
    history, now = RunHistory(tmp_path), time.monotonic()
    history.read()

    def explains(seconds: float) -> bool:
        return history.made(Death("worker0", 77, now + seconds, 1, ""))

    # It may be found dead late, while the run waits for servers.
    assert [explains(seconds) for seconds in (0.5, 60.0, 3600.0)] == [True, True, False]
    history._heard[77] = now + 30.0
    assert [explains(seconds) for seconds in (0.5, 60.0, 3600.0)] == [True, False, False]


def test_the_referee_reports_a_death_once_and_a_wrongly_refused_add(cluster: Cluster) -> None:
    validator = Validator(cluster)
    pid = cluster.processes[0].pid
    die(cluster.processes[0], signal.SIGKILL)
    cluster.tend()
    for _ in range(2):
        validator.check_history()
    (death,) = validator.violations
    assert f"worker0 (pid {pid}) ended by itself, with -9" in death
    author, facts = Recorder(str(cluster.folder), "worker-7"), {"seed": 3, "batch": 0}
    author.write("plan begun", **facts)
    author.write("add begun", keys=["0"], atomic=True, **facts)
    author.write("add refused", error="ResultNotKept('T')", added=0, **facts)
    author.close()
    validator.check_history()
    assert validator.violations[1].startswith("S4 adds are refused rightly")
