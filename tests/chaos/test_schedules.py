"""A schedule of every second makes one plan a second, even with kills and wrong clocks.

ZKPLAN_SCHEDULE_SECONDS says for how long, 40 by default.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

import pytest

import zkplan
from tests.tools import clock
from tests.tools.support import IN_CHECKOUT, wait_until
from zkplan.processes import WatchedProcess
from zkplan.protocol.requests import ReadData
from zkplan.testing import EmbeddedServerProcess, ZooKeeperServer
from zkplan.testing.server_process import ServerProcess

SECONDS = float(os.environ.get("ZKPLAN_SCHEDULE_SECONDS", "40"))
WORKERS, SEED = 10, 15
#: Seconds between two kills of a worker, and by how much a clock is wrong.
KILL_S, WRONG_S = 3.0, (0.0, 3600.0, -3600.0)
#: The server is killed and restarted so often.
RESTARTS = 2
SERVERS = {"embedded": EmbeddedServerProcess, "zookeeper": ZooKeeperServer}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    wanted = metafunc.config.getoption("--zookeeper-kind")
    metafunc.parametrize("kind", [kind for kind in SERVERS if wanted in ("both", kind)])


class Workers:
    """Worker processes, each with a clock of its own; the dead are replaced."""

    def __init__(self, hosts: str, folder: Path, chance: random.Random) -> None:
        self.hosts, self.folder, self.chance = hosts, folder, chance
        self.running: list[WatchedProcess] = []
        self.started = 0

    def start(self) -> None:
        self.started += 1
        name = self.folder / f"worker-{self.started}"
        faked: list[str] = []
        if clock.preloaded() is not None:
            wrong_s = WRONG_S[self.started % len(WRONG_S)]
            faked = [f"{key}={value}" for key, value in clock.environment(name).items()]
            clock.step(name, wrong_s)
        command = ["-m", "zkplan", "worker", "--hosts", self.hosts, "--threads", "2"]
        command += ["--session-timeout", "4"]
        command = [*IN_CHECKOUT, *faked, sys.executable, *command]
        self.running.append(WatchedProcess(command, name.with_suffix(".log")))

    def kill_one(self) -> None:
        self.running.pop(self.chance.randrange(len(self.running))).end(0)
        self.start()


@contextmanager
def workers(server: ServerProcess, folder: Path, chance: random.Random) -> Iterator[Workers]:
    made = Workers(server.hosts, folder, chance)
    try:
        for _ in range(WORKERS):
            made.start()
        yield made
    finally:
        for process in made.running:
            process.end(0)


@pytest.mark.timeout(SECONDS + 200)
def test_each_second_has_one_plan_whatever_dies_and_even_if_clocks_are_wrong(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def build() -> None:  # inside, so that it travels by value
        zkplan.current().plan.add_task(int)

    chance = random.Random(SEED)
    with ExitStack() as stack:
        server = stack.enter_context(SERVERS[kind]())
        client = stack.enter_context(zkplan.connect(server.hosts, patience=60))
        fleet = stack.enter_context(workers(server, tmp_path, chance))
        wait_until(lambda: len(client.workers()) == WORKERS, "all workers are there", 90)
        schedule = client.schedule("tick", "* * * * * *", build, catch_up="all", overlap="allow")
        begun, kills = time.monotonic(), 0
        first = due_at(schedule)
        restarts = [begun + SECONDS * (each + 1) / (RESTARTS + 1) for each in range(RESTARTS)]
        while time.monotonic() < begun + SECONDS:
            killed = due_at(schedule)
            wait_until(lambda: due_at(schedule) >= killed + KILL_S, "it is fired", 60)  # noqa: B023
            fleet.kill_one()
            kills += 1
            if restarts and time.monotonic() >= restarts[0]:
                restarts.pop(0)
                server.restart()
        wait_until(lambda: due_at(schedule) >= time.time(), "all have caught up", 60)
        schedule.pause()
        due = due_at(schedule)
        plans = client.plans()
        early, late = _times(client, plans)
        with capsys.disabled():
            sys.stdout.write(
                f"\n{kind}: {len(plans)} plans for {due - first:.0f} seconds, {kills} workers "
                f"killed, {RESTARTS} restarts; late by {median(late):.3f} s, at most "
                f"{max(late):.1f} s; clocks wrong: {clock.preloaded() is not None}\n"
            )
        counts = Counter(plan.record.due for plan in plans)
        assert counts == Counter({first + each: 1 for each in range(int(due - first))})
        assert early == []
        for plan in plans:
            plan.wait(60)


def due_at(schedule: zkplan.Schedule) -> float:
    (due,) = schedule.next()
    return due.timestamp()


def _times(client: zkplan.Client, plans: list[zkplan.Plan]) -> tuple[list[str], list[float]]:
    """The plans that were made before they were due, by the server's clock; by how much they were
    late."""
    late = []
    for plan in plans:
        node = client.transport.ask(ReadData(plan.path))
        late.append(node.created_ms / 1000 - (plan.record.due or 0.0))
    return [plan.path for plan, by in zip(plans, late, strict=True) if by < 0], late
