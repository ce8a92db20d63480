"""Only plans whose retention is over are removed, each archived before, whatever process dies."""

from __future__ import annotations

import math
import random
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

import zkplan
from tests.tools.support import WorkerProcess, wait_until
from zkplan.testing import EmbeddedServerProcess, ZooKeeperServer

WORKERS, PLANS, TASKS, SEED = 3, 20, 400, 7
#: Seconds between two kills of workers, and the number of kills after which the server restarts.
KILL_S, RESTART_AFTER = 2.0, 4
SERVERS = {"embedded": EmbeddedServerProcess, "zookeeper": ZooKeeperServer}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    wanted = metafunc.config.getoption("--zookeeper-kind")
    metafunc.parametrize("kind", [kind for kind in SERVERS if wanted in ("both", kind)])


def cancelled(client: zkplan.Client, name: str, retention: float) -> zkplan.Plan:
    plan = client.create_plan(name, retention=retention, key=name)
    plan.add_tasks([zkplan.TaskSpec(int, queue="nobody") for _ in range(TASKS)])
    plan.mark_ready()
    plan.cancel()
    return plan


@pytest.mark.timeout(200)
def test_only_finished_plans_are_removed_all_archived_whatever_dies(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chance, store = random.Random(SEED), f"file://{tmp_path / 'store'}"
    with ExitStack() as stack:
        server = stack.enter_context(SERVERS[kind]())
        client = stack.enter_context(zkplan.connect(server.hosts, store=store, patience=60))
        client.set_retention(archive=True)
        stays = {cancelled(client, f"stays {each}", math.inf).path for each in range(5)}
        running = client.create_plan("runs", retention=0)
        running.add_task(int, queue="nobody")
        running.mark_ready()
        stays.add(running.path)
        goes = {cancelled(client, f"goes {each}", 0).path for each in range(PLANS)}

        def start() -> WorkerProcess:
            options = ("--store", store, "--session-timeout", "4", "--threads", "2")
            return stack.enter_context(
                WorkerProcess(server.hosts, client.root, tmp_path / "workers", *options)
            )

        fleet, kills, begun = [start() for _ in range(WORKERS)], 0, time.monotonic()
        while left := {plan.path for plan in client.plans()} - stays:
            assert left <= goes
            if time.monotonic() > begun + KILL_S * (kills + 1):
                fleet.pop(chance.randrange(WORKERS)).process.end(0)
                fleet.append(start().wait_ready())
                kills += 1
                if kills == RESTART_AFTER:
                    server.restart()
        with capsys.disabled():
            took_s = time.monotonic() - begun
            sys.stdout.write(f"\n{kind}: {PLANS} plans removed in {took_s:.0f} s, {kills} kills\n")
        for worker in fleet:
            worker.process.end(0)
        assert {plan.path for plan in client.plans()} == stays
        assert {each.path for each in client.archived_plans()} == goes
        for archived in client.archived_plans():
            assert len(list(client.import_plan(archived.file, archived=True).tasks())) == TASKS
        assert client.plan(key="goes 0").path not in goes
        wait_until(lambda: running.status().runnable == 1, "the one that runs is as it was")
