"""The data of a server go back in time: nobody goes on with what is true no more, nothing hangs."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

# By its whole name: workers import what the author names, and know `tests.chaos` alone.
import zkplan
from tests.chaos.actors.author import Author
from tests.chaos.actors.workloads import Workload
from tests.chaos.validate import attempts, plan_checks
from tests.chaos.validate.checks import DONE, EVERY
from tests.chaos.validate.evidence import PlanEvidence
from tests.chaos.validate.history import RunHistory
from tests.chaos.validate.snapshot import remains_at_end
from tests.crash.server import not_available
from tests.integ.support import WorkerProcess, wait_until
from zkplan.stress.validate.attempts import only_losses_and_failures_repeat
from zkplan.testing.embedded_process import EmbeddedServerProcess
from zkplan.testing.java import find_java, find_zookeeper
from zkplan.testing.server_process import ServerProcess
from zkplan.testing.servers import ZooKeeperServer

ROOT = "/restored"
SESSION_S = 2.0
WORKERS = 2
#: Of a plan with some seconds of work: it stands half done when it is kept.
SLOW_SEED = 44
#: A task's place in the two histories is not the same, so these have no meaning here.
OF_ONE_HISTORY = (
    attempts.attempts_are_counted_right,
    only_losses_and_failures_repeat,
    plan_checks.waiters_hear_the_truth,
)


@pytest.fixture
def server(zookeeper_kind: str, tmp_path: Path) -> Iterator[ServerProcess]:
    if zookeeper_kind == "zookeeper" and (find_java() is None or find_zookeeper() is None):
        not_available("no ZooKeeper is installed here")
    make = EmbeddedServerProcess if zookeeper_kind == "embedded" else ZooKeeperServer
    with make(tick_time_ms=250, data=tmp_path / "server") as server:
        yield server


class Scene:
    """Workers, an author and a waiter on one server, whose data can be put back."""

    def __init__(self, server: ServerProcess, folder: Path, stack: ExitStack) -> None:
        self.server, self.stack = server, stack
        self.folder = folder / "histories"
        (self.folder / "pokes").mkdir(parents=True)
        self.kept = folder / "kept"
        self.client = self.connect()
        self.history = RunHistory(self.folder, "random")
        self.kept_at = self.anew_at = 0.0
        self.waits: list[BaseException | zkplan.PlanStatus] = []

    def connect(self) -> zkplan.Client:
        client = zkplan.connect(self.server.hosts, ROOT, session_timeout=SESSION_S)
        return self.stack.enter_context(client)

    def worker(self) -> WorkerProcess:
        options = ("--threads", "2", "--session-timeout", str(SESSION_S), "--grace", "1")
        worker = WorkerProcess(self.server.hosts, ROOT, self.folder.parent / "logs", *options)
        return self.stack.enter_context(worker).wait_ready()

    def author(self, client: zkplan.Client, seed: int) -> zkplan.Plan:
        workload = Workload.make(seed, "random")
        Author(client, self.folder, 10).author(workload)
        return client.plan(workload.name)

    def wait_in_background(self, plan: zkplan.Plan) -> None:
        def wait() -> None:
            try:
                self.waits.append(plan.wait())
            except zkplan.ZkplanError as error:
                self.waits.append(error)

        threading.Thread(target=wait, daemon=True).start()

    def ended(self) -> int:
        self.history.read()
        return len(self.history.ended_at)

    def wait_for_tasks(self, more: int) -> None:
        aim = self.ended() + more
        wait_until(lambda: self.ended() >= aim, f"{more} more tasks end")

    def wait_until_all_work(self, workers: list[WorkerProcess]) -> None:
        """Until each has begun a task of now.

        One that saw nothing after the snapshot is let in when it is back, and what it writes brings
        the server to where the others were: nobody can tell then that anything is lost.
        """
        pids, now = {worker.process.pid for worker in workers}, time.monotonic()

        def all_work() -> bool:
            self.history.read()
            plans = self.history.plans.values()
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
def test_all_start_anew_and_the_plans_go_on_from_the_snapshot(
    server: ServerProcess, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        scene = Scene(server, tmp_path, stack)
        plan = scene.author(scene.client, SLOW_SEED)
        never_ready = scene.client.create_plan("never ready")
        scene.wait_in_background(never_ready)
        old = [scene.worker() for _ in range(WORKERS)]
        scene.wait_for_tasks(10)
        scene.keep()
        scene.wait_for_tasks(10)
        lost = scene.author(scene.client, 22)
        scene.wait_until_all_work(old)
        scene.put_back()

        for worker in old:
            assert worker.process.wait_ended(60), worker.log.read_text()[-3000:]
            assert worker.said("restored from an older state"), worker.log.read_text()[-3000:]
        wait_until(lambda: scene.waits, "the waiter is told")
        assert isinstance(scene.waits[0], zkplan.ServerRolledBack), scene.waits
        with pytest.raises(zkplan.ServerRolledBack, match="start it anew"):
            scene.author(scene.client, 23)
        with pytest.raises(zkplan.ServerRolledBack):
            lost.status()

        fresh = scene.connect()
        assert {each.name for each in fresh.plans()} == {plan.name, never_ready.name}
        scene.anew_at = time.monotonic()
        for _ in range(WORKERS):
            scene.worker()
        again = fresh.plan(plan.name)
        assert again.wait(90).state == "done"
        assert broken(scene, again, fresh) == []
        following = scene.author(fresh, 24)
        assert following.wait(60).state == "done"


def broken(scene: Scene, plan: zkplan.Plan, client: zkplan.Client) -> list[str]:
    """What the checker finds once those executions are left out that nobody remembers.

    What began before the snapshot may have given a value that is in it.
    """
    scene.history.read()
    history = scene.history.plans[plan.name]
    lost = 0
    for key, runs in history.executions.items():
        kept = [each for each in runs if not scene.kept_at < each.began < scene.anew_at]
        lost += len(runs) - len(kept)
        history.executions[key] = kept
    assert lost, "nothing ran between the snapshot and its return: this test would show nothing"
    remains = remains_at_end(client, plan, plan.status().added)
    evidence = PlanEvidence(history, remains, scene.history, SESSION_S)
    return [
        f"{number} {check.__name__}: {found}"
        for number, check in (*EVERY, *DONE)
        if check not in OF_ONE_HISTORY
        for found in check(evidence)
    ]
