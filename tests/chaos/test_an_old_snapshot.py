"""A server is restored from an old snapshot: nothing hangs, and no process trusts stale data."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

import zkplan
from tests.tools.available import one_server
from tests.tools.support import WorkerProcess, wait_until
from zkplan.testing.server_process import ServerProcess

from .recorded import Recorded

ROOT = "/restored"
SESSION_S = 2.0
WORKERS = 2
#: The seed of a plan with some seconds of work, which is half done when the snapshot is kept.
SLOW_SEED = 44
#: A task's place in the two histories is not the same, so these have no meaning here.
OF_ONE_HISTORY = (
    "attempts_are_counted_right",
    "only_losses_and_failures_repeat",
    "waiters_hear_the_truth",
)


@pytest.fixture
def server(zookeeper_kind: str, tmp_path: Path) -> Iterator[ServerProcess]:
    with one_server(zookeeper_kind, tick_time_ms=250, data=tmp_path / "server") as server:
        yield server


class Setup:
    """Workers and an author on one server, whose data can be put back."""

    def __init__(self, server: ServerProcess, folder: Path, stack: ExitStack) -> None:
        self.server, self.stack = server, stack
        self.folder = folder
        self.runs = Recorded(folder / "histories", "random", SESSION_S)
        self.kept = folder / "kept"
        self.client = self.connect()
        self.kept_at = self.anew_at = 0.0

    def connect(self) -> zkplan.Client:
        client = zkplan.connect(self.server.hosts, ROOT, session_timeout=SESSION_S)
        return self.stack.enter_context(client)

    def worker(self) -> WorkerProcess:
        options = ("--threads", "2", "--session-timeout", str(SESSION_S), "--grace", "1")
        worker = WorkerProcess(self.server.hosts, ROOT, self.folder / "logs", *options)
        return self.stack.enter_context(worker).wait_ready()

    def wait_for_tasks(self, more: int) -> None:
        aim = self.runs.lines() + 2 * more
        wait_until(lambda: self.runs.lines() >= aim, f"{more} more tasks begin and end")

    def wait_until_all_work(self, workers: list[WorkerProcess]) -> None:
        """Until each has begun a task of now.

        One that saw nothing after the snapshot is let in when it is back, and what it writes brings
        the server to where the others were: nobody can tell then that anything is lost.
        """
        pids, now = {worker.process.pid for worker in workers}, time.monotonic()

        def all_work() -> bool:
            self.runs.history.read()
            plans = self.runs.history.plans.values()
            runs = [run for plan in plans for each in plan.executions.values() for run in each]
            return pids <= {run.pid for run in runs if run.began > now}

        wait_until(all_work, "each worker begins a task")

    def keep(self) -> None:
        """As a back-up does it that is sure to be whole: the server is stopped meanwhile."""
        self.server.stop()
        self.kept_at = time.monotonic()
        shutil.copytree(self.server.data / "data", self.kept)
        self.server.start()

    def put_back(self) -> None:
        self.server.stop()
        shutil.rmtree(self.server.data / "data")
        shutil.copytree(self.kept, self.server.data / "data")
        self.server.start()


@pytest.mark.timeout(180)
def test_after_a_rollback_all_reconnect_and_plans_go_on_from_the_snapshot(
    server: ServerProcess, tmp_path: Path
) -> None:
    with ThreadPoolExecutor(1) as pool, ExitStack() as stack:
        setup = Setup(server, tmp_path, stack)
        plan = setup.runs.author(setup.client, SLOW_SEED)
        never_ready = setup.client.create_plan("never ready")
        waiting = pool.submit(never_ready.wait)
        old = [setup.worker() for _ in range(WORKERS)]
        setup.wait_for_tasks(10)
        setup.keep()
        setup.wait_for_tasks(10)
        lost = setup.runs.author(setup.client, 22)
        setup.wait_until_all_work(old)
        setup.put_back()

        for worker in old:
            assert worker.process.wait_ended(60), worker.log.read_text()[-3000:]
            assert worker.said("restored from an older state"), worker.log.read_text()[-3000:]
        with pytest.raises(zkplan.ServerRolledBack):
            waiting.result(30)
        with pytest.raises(zkplan.ServerRolledBack, match="restart this process"):
            setup.runs.author(setup.client, 23)
        with pytest.raises(zkplan.ServerRolledBack):
            lost.status()

        fresh = setup.connect()
        assert {each.name for each in fresh.plans()} == {plan.name, never_ready.name}
        setup.anew_at = time.monotonic()
        for _ in range(WORKERS):
            setup.worker()
        again = fresh.plan(plan.name)
        assert again.wait(90).state == "done"
        assert broken(setup, again, fresh) == []
        following = setup.runs.author(fresh, 24)
        assert following.wait(60).state == "done"


def broken(setup: Setup, plan: zkplan.Plan, client: zkplan.Client) -> list[str]:
    """The violations without the executions that nobody remembers.

    An execution from before the snapshot may have given a value that is in it.
    """
    runs = setup.runs
    runs.history.read()
    history, lost = runs.history.plans[plan.name], 0
    for key, executions in history.executions.items():
        kept = [each for each in executions if not setup.kept_at < each.began < setup.anew_at]
        lost += len(executions) - len(kept)
        history.executions[key] = kept
    assert lost, "nothing ran between the snapshot and its return: this test would show nothing"
    return runs.violations(client, plan, losses=WORKERS, without=OF_ONE_HISTORY)
