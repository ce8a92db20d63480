"""Who is told to end does so in time and with 0; no server ends by itself; its log is kept."""

from __future__ import annotations

import os
import random
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.integ.support import wait_until
from zkplan.runtime.shutdown import DELIVER_S

from . import run as runs
from .faults import processes
from .faults.catalogue import CATALOGUE
from .faults.fault import Entry, Fault
from .faults.processes import Drained
from .quiet import DEAF, ENDS_WITH, Quiet, Sleepers, sleeping
from .run import Run
from .validate.validator import Validator
from .world.arena import GRACE_S, Arena, Role, Settings
from .world.servers import Servers

NAMES: list[tuple[str, Role]] = [("worker0", "worker"), ("waiter", "waiter")]
STANDS = "trap 'kill -STOP $$' TERM; echo it is ready; while :; do sleep 0.05; done"
WAITS = "while [ ! -e waiters-stop ]; do sleep 0.05; done; exit {code}"
Told = Callable[[Sleepers], None]


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


def at_the_end(arena: Sleepers) -> None:
    arena.stop(arena.workers[0], "the end", 0.3)


def by_a_fault(arena: Sleepers) -> None:
    Drained("worker told to stop").inject(arena, random.Random(1))


def _same(fault: Fault, name: str) -> Fault:
    return fault


def ready(arena: Sleepers) -> None:
    worker = arena.workers[0]
    wait_until(lambda: arena._is_ready(worker), "it hears signals", 10)


def found(arena: Arena) -> list[str]:
    """What is judged of how each has ended."""
    validator = Validator(arena)
    validator.check_history()
    return [*Run(arena, validator).broken()]


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """For those that do not end."""
    monkeypatch.setattr(processes, "stops_within_s", lambda session_s: 0.3)


@pytest.mark.parametrize("told", [at_the_end, by_a_fault])
def test_a_worker_that_does_not_stop_is_found_wherever_it_is_told(
    tmp_path: Path, told: Told
) -> None:
    with sleeping(tmp_path, NAMES, {"worker": DEAF}) as arena:
        ready(arena)
        told(arena)
        (text,) = found(arena)
        assert text == "worker0 did not end within 0.3 s of SIGTERM"


def test_a_worker_that_does_not_stop_writes_where_it_stands(tmp_path: Path) -> None:
    waits = "import threading as t; print('it is ready', flush=True); t.Event().wait(600)"
    does = f"trap '' TERM; exec {sys.executable} -c {shlex.quote(waits)}"
    with sleeping(tmp_path, NAMES[:1], {"worker": does}) as arena:
        ready(arena)
        (worker,) = arena.workers
        arena.stop(worker, "the end", 0.3)
        assert arena.too_slow == ["worker0 did not end within 0.3 s of SIGTERM"]
        assert "(most recent call first)" in arena.log_of(worker)


def test_nobody_is_told_to_stop_beside_a_fault_that_stops_it_on_its_way(tmp_path: Path) -> None:
    """As at a point of its commit: the arena waits for its end, and that for the healing."""
    with sleeping(tmp_path, NAMES, {"worker": STANDS}) as arena:
        ready(arena)
        run = Run(arena, Validator(arena))
        faults = [CATALOGUE["worker pauses at point commit.before"].fault(), Drained("told")]
        for fault in faults:
            fault.waits_s, fault.lasts = 0.0, (0.0, 0.0)
        run.at_once([Entry(each.name, "", "", partial(_same, each)) for each in faults])
        assert found(arena) == []


@pytest.mark.parametrize("session_s", [3.0, 10.0, 30.0])
def test_a_worker_has_longer_to_stop_than_it_waits_for_silent_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, session_s: float
) -> None:
    monkeypatch.undo()
    waited: list[float] = []
    with sleeping(tmp_path, NAMES) as arena:
        arena.settings = replace(arena.settings, session_s=session_s)
        monkeypatch.setattr(arena, "stop", lambda actor, why, within_s: waited.append(within_s))
        Drained("told").inject(arena, random.Random(1))
    # What it does then takes some seconds more: it gives up its connection.
    assert waited[0] >= GRACE_S + max(DELIVER_S, session_s) + 5


@pytest.mark.parametrize(("code", "count"), [(0, 0), (3, 1)])
def test_a_worker_that_is_told_to_stop_ends_with_0(tmp_path: Path, code: int, count: int) -> None:
    with sleeping(tmp_path, NAMES, {"worker": ENDS_WITH.format(code=code)}) as arena:
        ready(arena)
        arena.stop(arena.workers[0], "the end")
        texts = found(arena)
        assert len(texts) == count
        assert all("worker0" in text and "with 3" in text for text in texts)


@pytest.mark.parametrize(("says", "count"), [("it starts", 0), ("it is ready", 1)])
def test_a_worker_that_the_signal_itself_ends_is_found_once_it_was_ready(
    tmp_path: Path, says: str, count: int
) -> None:
    """Before, nothing says as yet what it does with that signal."""
    with sleeping(tmp_path, NAMES, {"worker": f"echo {says}; exec sleep 600"}) as arena:
        wait_until(lambda: says in arena.log_of(arena.workers[0]), "it has begun", 10)
        arena.stop(arena.workers[0], "the end")
        texts = found(arena)
        assert len(texts) == count
        assert all("with -15" in text for text in texts)


def test_who_had_ended_by_itself_before_a_fault_killed_it_is_found(tmp_path: Path) -> None:
    with sleeping(tmp_path, NAMES, {"worker": "exit 5"}) as arena:
        worker = arena.workers[0]
        assert worker.process is not None
        assert worker.process.wait_ended(10)
        arena.kill(worker, "worker killed")
        arena.kill(arena.of("waiter")[0], "waiter killed")
        (text,) = found(arena)
        assert "worker0" in text
        assert "with 5" in text


@pytest.mark.parametrize(
    ("waiter", "within_s", "texts"),
    [
        (WAITS.format(code=0), 30.0, []),
        (WAITS.format(code=3), 30.0, ["waiter (pid"]),
        ("exec sleep 600", 0.3, ["waiter was told to end, and is there after 0.3 s"]),
    ],
)
def test_at_the_end_of_a_run_every_waiter_ends_with_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waiter: str, within_s: float, texts: list[str]
) -> None:
    monkeypatch.setattr(runs, "_WAITERS_S", within_s)
    does: dict[Role, str] = {"worker": ENDS_WITH.format(code=0), "waiter": waiter}
    with sleeping(tmp_path, NAMES, does) as arena:
        ready(arena)
        violations = Run(arena, Satisfied(arena)).finish().violations
        assert len(violations) == len(texts)
        assert all(map(str.__contains__, violations, texts)), violations


# ---- servers


class Served(Quiet):
    """With an embedded server, and nobody else."""

    fallen, heal = Arena.fallen, Arena.heal


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    arena = Served(tmp_path)
    with ExitStack() as stack:
        arena.servers = Servers("embedded", stack, 250)
        yield arena


class Segfault(Fault):
    """The server ends by itself."""

    lasts = (0.0, 0.0)

    def __init__(self, name: str, expected: bool = False, heals: bool = False) -> None:
        super().__init__(name)
        self.breaks_servers, self.heals = expected, heals

    def inject(self, arena: Arena, chance: random.Random) -> None:
        break_down(arena)

    def felt(self, arena: Arena) -> bool:
        return True

    def heal(self, arena: Arena) -> None:
        if self.heals:
            arena.servers.make_serve()


def break_down(arena: Arena) -> None:
    (server,) = arena.servers.members
    assert server.pid is not None
    os.kill(server.pid, signal.SIGSEGV)
    wait_until(server.broke_down, "it has ended", 10)


def play(arena: Arena, fault: Fault) -> Run:
    run = Run(arena, Validator(arena))
    run.at_once([Entry(fault.name, "", "", lambda name: fault)])
    return run


@pytest.mark.parametrize("heals", [False, True])
def test_a_server_that_ends_by_itself_is_found_once_and_started_again(
    served: Served, heals: bool
) -> None:
    run = play(served, Segfault("a fault", heals=heals))
    run._spend(0.2)
    (text,) = run.broken()
    port = served.servers.ports[0]
    last = served.servers.members[0].log.read_text().splitlines()[-1]
    assert text.startswith(f"server 1 (port {port}) ended by itself, with -11:\n")
    assert last in text
    assert served.servers.serving()


def test_a_server_that_a_fault_of_the_round_ends_is_no_finding(served: Served) -> None:
    run = play(served, Segfault("disk full", expected=True))
    assert run.broken() == []
    assert served.servers.serving()
    # It explains nothing of the next round.
    run.at_once([Entry("nothing", "", "", Segfault)])
    assert len(run.broken()) == 1


def test_a_server_that_ends_again_as_soon_as_it_serves_is_found_again(served: Served) -> None:
    """Between the two ends nobody may have looked."""
    break_down(served)
    assert len(served.servers.fallen()) == 1
    served.servers.make_serve()
    break_down(served)
    assert len(served.servers.fallen()) == 1
    assert served.servers.fallen() == []


def test_a_server_that_ends_by_itself_after_the_last_fault_is_found(served: Served) -> None:
    run = Run(served, Satisfied(served))
    break_down(served)
    run._mend()
    assert len(run.broken()) == 1


def test_the_logs_of_servers_outlive_them(tmp_path: Path) -> None:
    with Arena(Settings("embedded", 1, staged=True), tmp_path) as arena:
        log = arena.servers.members[0].log
        wait_until(lambda: log.exists() and log.read_text(), "it has said something", 10)
        said = log.read_text().splitlines()[0]
    assert not log.exists()
    assert said in (tmp_path / "server-1.log").read_text()
