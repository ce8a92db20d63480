"""A run fails if a process or server ends wrongly, a plan is stuck too long, or memory grows."""

from __future__ import annotations

import os
import random
import shlex
import signal
import sys
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.tools.support import wait_until
from zkplan.testing.server_process import ServerDidNotStart

from . import recovery
from . import run as runs
from .cluster.cluster import Cluster, Role, Settings
from .cluster.servers import Servers
from .cluster.stub import ENDS_WITH, IGNORES_TERM, ScriptCluster, StubCluster, scripted
from .faults import processes
from .faults.processes import ToldToStop
from .report.page import summary, write_page
from .report.usage import Usage, growth
from .run import Outcome, Run
from .test_faults_take_effect import Scripted, entry_of
from .traffic.workloads import Workload
from .validate.validator import Validator

NAMES: list[tuple[str, Role]] = [("worker0", "worker"), ("waiter", "waiter")]
WAITS = "while [ ! -e waiters-stop ]; do sleep 0.05; done; exit {code}"
DUMPS = "import threading as t; print('it is ready', flush=True); t.Event().wait(600)"


class Satisfied(Validator):
    """No plan stands, and none has left anything."""

    def is_idle(self, since: float = 0.0) -> bool:
        return True

    def orphans(self) -> list[str]:
        return []

    def never_checked(self) -> Iterator[str]:
        return iter(())

    def come_back(self) -> Iterator[str]:
        return iter(())


def violations(cluster: Cluster) -> list[str]:
    validator = Validator(cluster)
    validator.check_history()
    return Run(cluster, validator).broken()


def ready(cluster: ScriptCluster) -> None:
    wait_until(lambda: cluster._is_ready(cluster.workers[0]), "it has a handler", 10)


# ---- processes


@pytest.mark.parametrize("by_a_fault", [False, True])
def test_a_worker_that_does_not_stop_in_time_is_a_violation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_a_fault: bool
) -> None:
    monkeypatch.setattr(processes, "stops_within_s", lambda session_s: 0.3)
    script = f"trap '' TERM; exec {sys.executable} -c {shlex.quote(DUMPS)}"
    with scripted(tmp_path, NAMES, {"worker": script}) as cluster:
        ready(cluster)
        if by_a_fault:
            ToldToStop("told", "worker").inject(cluster, random.Random(1))
        else:
            cluster.stop(cluster.workers[0], "the end", 0.3)
        assert violations(cluster) == ["worker0 did not end within 0.3 s of SIGTERM"]
        assert "(most recent call first)" in cluster.log_of(cluster.workers[0])


@pytest.mark.parametrize(
    ("script", "says", "found"),
    [
        (ENDS_WITH.format(code=0), "is ready", ""),
        (ENDS_WITH.format(code=3), "is ready", "with 3"),
        # Before it is ready, the signal itself may end it.
        ("echo it starts; exec sleep 600", "starts", ""),
        ("echo it is ready; exec sleep 600", "is ready", "with -15"),
    ],
)
def test_a_worker_that_is_stopped_ends_with_0(
    tmp_path: Path, script: str, says: str, found: str
) -> None:
    with scripted(tmp_path, NAMES, {"worker": script}) as cluster:
        worker = cluster.workers[0]
        wait_until(lambda: says in cluster.log_of(worker), "it has begun", 10)
        cluster.stop(worker, "the end")
        texts = violations(cluster)
        assert (len(texts), all(found in text for text in texts)) == (bool(found), True)


@pytest.mark.parametrize(
    ("script", "found"),
    [
        (WAITS.format(code=0), []),
        (WAITS.format(code=3), ["waiter (pid"]),
        (IGNORES_TERM, ["waiter was told to end, and is there after 2 s"]),
    ],
)
def test_a_waiter_ends_with_0_after_the_last_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, found: list[str]
) -> None:
    monkeypatch.setattr(runs, "_WAITERS_S", 2.0)
    scripts: dict[Role, str] = {"worker": ENDS_WITH.format(code=0), "waiter": script}
    with scripted(tmp_path, NAMES, scripts) as cluster:
        ready(cluster)
        texts = Run(cluster, Satisfied(cluster)).finish().violations
        assert len(texts) == len(found)
        assert all(map(str.__contains__, texts, found)), texts


# ---- servers


class Served(StubCluster):
    """With an embedded server, and no processes."""

    fallen, heal = Cluster.fallen, Cluster.heal


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    cluster = Served(tmp_path)
    with ExitStack() as stack:
        cluster.servers = Servers("embedded", stack, 250)
        yield cluster


class ServerCrash(Scripted):
    """The server ends by itself."""

    def __init__(self, ends_servers: bool) -> None:
        super().__init__("server crash", range(9))
        self.ends_servers = ends_servers

    def inject(self, cluster: Cluster, chance: random.Random) -> None:
        (server,) = cluster.servers.members
        assert server.pid is not None
        os.kill(server.pid, signal.SIGSEGV)
        wait_until(server.broke_down, "it has ended", 10)


def test_a_server_that_ends_by_itself_is_a_violation_once_and_starts_again(served: Served) -> None:
    run = Run(served, Validator(served))
    run.at_once([entry_of(ServerCrash(ends_servers=False))])
    (text,) = run.broken()
    assert text.startswith(f"server 1 (port {served.servers.ports[0]}) ended by itself, with -11:")
    assert served.servers.members[0].log.read_text().splitlines()[-1] in text
    assert served.servers.serving()
    ServerCrash(False).inject(served, random.Random(1))  # before anybody has looked again
    run._mend()
    assert len(run.broken()) == 2
    run.at_once([entry_of(ServerCrash(ends_servers=True))])
    assert len(run.broken()) == 2, "a fault of that round ends servers"


def test_a_server_that_does_not_start_again_is_a_violation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def heal(cluster: Cluster) -> None:
        raise ServerDidNotStart("its log is damaged")

    monkeypatch.setattr(StubCluster, "heal", heal)
    cluster = StubCluster(tmp_path)
    run = Run(cluster, Validator(cluster))
    run.at_once([entry_of(Scripted("one", range(9)))])
    assert run.broken() == ["a server does not start again: its log is damaged"]


# ---- plans


class Stubborn(Validator):
    """One plan stands for ever, while others are done; `says`: why, at the second look."""

    says = True

    @property
    def standing(self) -> list[str]:
        self.finished += 1
        return ["chaos-5"]

    @standing.setter
    def standing(self, names: list[str]) -> None:
        """Nothing."""

    def give_up(self, names: Collection[str]) -> list[str]:
        return [f"L3 {name} is not done" for name in names if self.says]


@pytest.mark.parametrize("says", [True, False])
@pytest.mark.parametrize("at_the_end", [True, False])
def test_a_plan_that_is_stuck_too_long_without_faults_is_a_violation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_the_end: bool, says: bool
) -> None:
    monkeypatch.setattr(recovery, "repair_s", lambda session_s: 0.3)
    cluster = StubCluster(tmp_path)
    validator = Stubborn(cluster)
    validator.says = says
    validator.history._plan(5).workload = Workload.make(5, "one")
    run = Run(cluster, validator)
    if at_the_end:
        run._drain(run._recovery())
    else:
        run.recover()
    (text,) = run.outcome.violations
    assert text.startswith("L3 chaos-5 is not done" if says else "L3 without new faults it took")


def test_a_violation_that_only_the_history_shows_is_reported_once(tmp_path: Path) -> None:
    cluster = Cluster(Settings("embedded", 1), tmp_path)
    cluster.journal.write("wait broke", plan="chaos-5", error="PlanStuck: no reason")
    validator = Validator(cluster)
    for _ in range(2):
        validator.check_history()
    cluster.journal.close()
    (found,) = validator.violations
    assert found == "- a wait for chaos-5 broke: PlanStuck: no reason"


# ---- memory


def an_hour(**more: int) -> list[Usage]:
    """A sample every ten seconds, with peaks and lost connections; in the last ten minutes more."""
    made = []
    for number in range(361):
        peak, cut = number % 7 == 0, number % 11 == 0
        blocks = 124_000 + 5_000 * peak + number if number and number % 6 == 0 else 0
        memory = 36_000_000 + 2_000_000 * peak
        used = {"memory": memory, "blocks": blocks, "threads": 6, "sockets": 3 - cut}
        used["descriptors"] = 8 - cut
        for what, count in more.items():
            used[what] += count if number >= 300 and used[what] else 0
        made.append(Usage("a worker", 7, 10.0 * number, used))
    return made


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ({}, ""),
        ({"threads": 1}, "ever more threads: 6"),
        ({"sockets": 2}, "ever more sockets: 3"),
        ({"descriptors": 2}, "ever more descriptors"),
        ({"blocks": 1700}, "ever more blocks"),
        ({"memory": 4_000_000}, "ever more memory"),
    ],
)
def test_a_long_lived_process_that_grows_is_a_violation(more: dict[str, int], found: str) -> None:
    texts = list(growth(an_hour(**more), began=0.0))
    assert (len(texts), all(found in text for text in texts)) == (bool(found), True), texts


def test_a_long_lived_process_that_ends_or_records_nothing_is_a_violation() -> None:
    silent = [each._replace(used=each.used | {"blocks": 0}) for each in an_hour()]
    assert list(growth(silent, began=0.0)) == ["a worker did not note its blocks"]
    (text,) = growth([*an_hour(), an_hour()[0]._replace(pid=8)], began=0.0)
    assert "its processes were [7, 8]" in text


def test_the_report_names_violations_and_faults_without_effect(tmp_path: Path) -> None:
    validator = Validator(StubCluster(tmp_path))
    made = Outcome(Settings("embedded", 7, long_lived=True), validator, 0.0, 3600.0)
    made.faults.update({"worker expired": 3})
    made.took_effect.update({"worker expired": 2})
    made.without_effect.update({"worker expired": 1})
    made.usage, made.violations = an_hour(), ["S5 something"]
    assert "3 faults (1 different), 1 without effect" in summary(made)
    assert summary(made).endswith("violations: 1")
    write_page(made, tmp_path / "page.md", "the command")
    text = (tmp_path / "page.md").read_text()
    for part in (
        "- `S5 something`",
        "| faults without effect | 1: worker expired (1) |",
        "| worker expired | 3 | 2 | a second client closes the session of a worker |",
        "| a worker | late | 36.0 MB | 124330 | 6 | 3 | 8 |",
    ):
        assert part in text
    assert "## Takeovers" not in text, "a table without rows is left out"
