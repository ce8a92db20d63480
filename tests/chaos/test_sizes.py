"""Great sizes: 100 000 tasks, 10 000 dependents and dependencies, 1 000 plans; a worker is killed.

What each took is printed, and kept as a property of the test: `pytest -rP` shows it.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import zkplan

# By its full name: workers import the function of a task by the name that it has here.
from tests.chaos.sizes import Sized, broken, diamond, fan, groups, lines_in, read, specs
from tests.crash.server import not_available
from tests.integ.support import WorkerProcess, wait_until
from zkplan.stress.harness import remains_of
from zkplan.testing.embedded_process import EmbeddedServerProcess
from zkplan.testing.java import find_java, find_zookeeper
from zkplan.testing.server_process import ServerProcess
from zkplan.testing.servers import ZooKeeperServer

from .validate.snapshot import traces_of

ROOT = "/sizes"
TASKS, GROUP = 100_000, 100
WIDTH = 10_000
PLANS = 1_000
#: How long a plan of that size may take, on a slow machine; a fifth of it is usual.
WAIT_S = 900.0
#: Of one look at a plan, whatever its size, and of one that reads all of it.
STATUS_S, CHECK_S = 5.0, 120.0
_OPTIONS = ("--threads", "4", "--session-timeout", "6", "--grace", "5", "--connect-timeout", "60")
_WORKERS = 2
#: The killed worker, and no other: repeated are only tasks that it held.
_LOSSES = 1


class Scene:
    """A server, workers, a client, and what was measured."""

    def __init__(self, kind: str, folder: Path, stack: ExitStack) -> None:
        self.folder, self._stack = folder, stack
        self.server: ServerProcess = (
            EmbeddedServerProcess() if kind == "embedded" else ZooKeeperServer(heap="1g")
        )
        stack.enter_context(self.server)
        self.client = stack.enter_context(
            zkplan.connect(self.server.hosts, ROOT, connect_timeout=60.0, patience=120.0)
        )
        self.client.prepare()
        self.runs = folder / "runs"
        self.runs.mkdir()
        self.workers = [self._worker() for _ in range(_WORKERS)]
        for worker in self.workers:
            worker.wait_ready()
        self.measured: dict[str, str] = {}

    def _worker(self) -> WorkerProcess:
        made = WorkerProcess(self.server.hosts, ROOT, self.folder / "logs", *_OPTIONS)
        return self._stack.enter_context(made)

    def timed(self, what: str, call: Callable[[], object], most_s: float = WAIT_S) -> None:
        began = time.monotonic()
        call()
        took = time.monotonic() - began
        self.measured[what] = f"{took:.1f} s"
        assert took < most_s, f"{what} took {took:.1f} s"

    def kill_one_at(self, lines: int) -> None:
        """Kill a worker once so many lines are recorded, and start another."""
        wait_until(lambda: lines_in(self.runs) >= lines, f"{lines} lines are recorded", WAIT_S)
        self.peaks()
        victim = self.workers.pop(0)
        victim.process.end(0)
        self.workers.append(self._worker())

    def peaks(self) -> None:
        """The most memory that the server and each worker took so far."""
        pids = {"server": self.server.pid or 0}
        pids |= {f"worker {at}": worker.pid for at, worker in enumerate(self.workers)}
        for name, pid in [*pids.items(), ("author", os.getpid())]:
            status = Path(f"/proc/{pid}/status").read_text()
            peak = re.search(r"VmHWM:\s+(\d+) kB", status)
            if peak is not None:
                self.measured[f"memory of {name}"] = f"{int(peak[1]) / 1024:.0f} MB"

    def add(self, name: str, sized: Sized, plan: int = 0) -> zkplan.Plan:
        made = self.client.create_plan(name, attempts=20, retry_delay=0.1)
        made.add_tasks(specs(sized, self.runs, plan))
        return made

    def judge(self, plans: dict[int, zkplan.Plan], sized: Sized) -> None:
        """Every promise, for each of the plans; then nothing of them is left once removed."""
        everything = read(self.runs)
        last = len(sized.needs) - 1
        found: list[str] = []
        for number, plan in plans.items():
            left = remains_of(self.client, plan.path)
            # One task of each plan has no dependents: its result is kept, no other.
            assert len(left.outcomes) == 1
            made = zkplan.Task(plan, left.outcomes[0]).result(timeout=10)
            assert made[0] == last
            found += broken(sized, everything[number], {last: made[1]}, _LOSSES)
            names = {"done", "ready", "add-ids", "runnable", "dead", "results"}
            assert set(left.plan) == names
            assert not [*left.runnable, *left.dead, *left.delayed, *left.claims]
        assert found == [], f"{len(found)}: {found[:20]}"
        self.timed("remove", lambda: [plan.remove() for plan in plans.values()])
        assert [trace for p in plans.values() for trace in traces_of(self.client, p.path)] == []


@pytest.fixture(params=["embedded", "zookeeper"])
def scene(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> Iterator[Scene]:
    wanted = request.config.getoption("--zookeeper-kind")
    if wanted not in ("both", request.param):
        pytest.skip(f"only {wanted} is wanted")
    if request.param == "zookeeper" and (find_java() is None or find_zookeeper() is None):
        not_available("no ZooKeeper is installed here")
    with ExitStack() as stack:
        made = Scene(request.param, tmp_path, stack)
        yield made
        for name, value in made.measured.items():
            record_property(name, value)
        sys.stdout.write(f"{request.node.name}: {made.measured}\n")


def run_one(scene: Scene, sized: Sized) -> None:
    """Add the plan while workers wait, run it, kill a worker in the middle, judge."""
    plans: dict[int, zkplan.Plan] = {}
    scene.timed("add", lambda: plans.update({0: scene.add("large", sized)}))
    plan, count = plans[0], len(sized.needs)
    scene.timed("status", plan.status, STATUS_S)
    assert plan.status().tasks == count
    scene.timed("tasks", lambda: plan.tasks(1000), CHECK_S)
    began = time.monotonic()
    plan.mark_ready()
    # The middle of the recorded lines: two for each task.
    scene.kill_one_at(count)
    scene.timed("check", lambda: plan.check(repair=False), CHECK_S)
    scene.timed("wait", lambda: plan.wait(WAIT_S))
    seconds = time.monotonic() - began
    scene.measured["rate"] = f"{count / seconds:.0f} tasks/s, {seconds:.1f} s"
    scene.peaks()
    assert plan.status().added == count
    scene.judge(plans, sized)


def mark_ready(plans: dict[int, zkplan.Plan]) -> None:
    for plan in plans.values():
        plan.mark_ready()


def run_many(scene: Scene, count: int) -> None:
    """All plans stand before the first is ready."""
    sized, plans = diamond(), {}
    tasks = count * len(sized.needs)

    def add_all() -> None:
        for number in range(count):
            plans[number] = scene.add(f"small-{number}", sized, number)

    scene.timed("add", add_all)
    scene.timed("list of plans", scene.client.plans, CHECK_S)
    began = time.monotonic()
    killer = threading.Thread(target=scene.kill_one_at, args=(tasks,), daemon=True)
    killer.start()
    scene.timed("mark ready", lambda: mark_ready(plans))
    killer.join(WAIT_S)
    assert not killer.is_alive()
    scene.timed("wait", lambda: [plan.wait(WAIT_S) for plan in plans.values()])
    seconds = time.monotonic() - began
    scene.measured["rate"] = f"{tasks / seconds:.0f} tasks/s, {seconds:.1f} s"
    scene.peaks()
    scene.judge(plans, sized)


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_hundred_thousand_tasks_in_one_plan(scene: Scene) -> None:
    # So many in all: the leaves, a join of each group, and the last join.
    leaves = (TASKS - 1) * GROUP // (GROUP + 1)
    sized = groups(leaves, GROUP)
    assert abs(len(sized.needs) - TASKS) < GROUP
    run_one(scene, sized)


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_ten_thousand_dependents_and_ten_thousand_dependencies(scene: Scene) -> None:
    run_one(scene, fan(WIDTH))


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_thousand_plans_at_once(scene: Scene) -> None:
    run_many(scene, PLANS)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["groups", "fan", "plans"])
def test_the_same_in_small(scene: Scene, what: str) -> None:
    """What the others do, at sizes that take seconds: where this breaks, size is not the reason."""
    if what == "plans":
        run_many(scene, 30)
    else:
        run_one(scene, groups(1500, GROUP) if what == "groups" else fan(1300))
