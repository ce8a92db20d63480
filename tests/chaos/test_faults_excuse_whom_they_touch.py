"""A fault excuses those that it may have touched, and nobody else."""

from __future__ import annotations

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
from .run import Run
from .traffic.tasks import EXIT_CODE
from .validate.history import RunHistory
from .validate.validator import Validator


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
        # With the one that gets the trigger.
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
def test_a_fault_excuses_the_processes_and_the_exit_codes_that_it_makes(
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


def test_a_poke_excuses_the_process_that_took_it_and_no_earlier_taker(cluster: Cluster) -> None:
    take_poke(cluster, "exit", cluster.processes[0])
    inject(cluster, CATALOGUE["task exits"].fault())
    take_poke(cluster, "exit", cluster.processes[2])
    take_poke(cluster, "arm", cluster.processes[1])
    assert excused(cluster) == {"worker2"}
