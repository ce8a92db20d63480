"""Large sizes: 100 000 tasks, 10 000 dependents and dependencies, 1 000 plans; with a kill.

What each took is printed, and kept as a property of the test: `pytest -rP` shows it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar

import pytest

import zkplan
from benchmarks.machine import memory_mib
from tests.tools.available import one_server
from tests.tools.support import WorkerProcess, wait_until

from .recorded import Recorded
from .validate.snapshot import traces_of

ROOT = "/sizes"
SESSION_S = 6.0
T = TypeVar("T")
#: How long such a large plan may take on a slow machine; a fifth of that is usual.
WAIT_S = 900.0
#: The most seconds for the status of a plan of any size, and for a check that reads all of it.
STATUS_S, CHECK_S = 5.0, 120.0
_OPTIONS = f"--threads 4 --session-timeout {SESSION_S} --grace 5 --connect-timeout 60".split()
_WORKERS = 2


class Setup:
    """A server, workers, a client, recorded plans of one shape, and what was measured."""

    def __init__(self, kind: str, folder: Path, shape: str, stack: ExitStack) -> None:
        self.folder, self._stack = folder, stack
        options = {"heap": "1g"} if kind == "zookeeper" else {}
        self.server = stack.enter_context(one_server(kind, **options))
        self.client = stack.enter_context(
            zkplan.connect(self.server.hosts, ROOT, connect_timeout=60.0, patience=120.0)
        )
        self.client.prepare()
        self.runs = Recorded(folder / "runs", shape, SESSION_S)
        self.workers = [self._worker() for _ in range(_WORKERS)]
        for worker in self.workers:
            worker.wait_ready()
        self.measured: dict[str, str] = {}

    def _worker(self) -> WorkerProcess:
        made = WorkerProcess(self.server.hosts, ROOT, self.folder / "logs", *_OPTIONS)
        return self._stack.enter_context(made)

    def timed(self, what: str, call: Callable[[], T], most_s: float = WAIT_S) -> T:
        began = time.monotonic()
        found = call()
        took = time.monotonic() - began
        self.measured[what] = f"{took:.1f} s"
        assert took < most_s, f"{what} took {took:.1f} s"
        return found

    def kill_one_at(self, lines: int) -> None:
        """Kill a worker once so many lines are recorded, and start another."""
        wait_until(lambda: self.runs.lines() >= lines, f"{lines} lines are recorded", WAIT_S)
        self.peaks()
        self.runs.kill(self.workers.pop(0).process)
        self.workers.append(self._worker())

    def peaks(self) -> None:
        """The most memory that the server and each worker took so far."""
        pids = {"server": self.server.pid or 0}
        pids |= {f"worker {at}": worker.pid for at, worker in enumerate(self.workers)}
        for name, pid in [*pids.items(), ("author", os.getpid())]:
            self.measured[f"memory of {name}"] = f"{memory_mib(pid)[1]:.0f} MiB"

    def judge(self, plans: list[zkplan.Plan]) -> None:
        """Every promise, for each of the plans; then nothing of them is left once removed."""
        # Of the killed worker alone.
        found = [t for plan in plans for t in self.runs.violations(self.client, plan, losses=1)]
        assert found == [], f"{len(found)}: {found[:20]}"
        self.timed("remove", lambda: [plan.remove() for plan in plans])
        assert [trace for plan in plans for trace in traces_of(self.client, plan.path)] == []


Start = Callable[[str], Setup]


@pytest.fixture
def start(
    zookeeper_kind: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> Iterator[Start]:
    """Start a setup for plans of that shape."""
    made: list[Setup] = []
    with ExitStack() as stack:

        def start(shape: str) -> Setup:
            made.append(Setup(zookeeper_kind, tmp_path, shape, stack))
            return made[0]

        yield start
    for name, value in made[0].measured.items():
        record_property(name, value)
    sys.stdout.write(f"{request.node.name}: {made[0].measured}\n")


def run_one(setup: Setup) -> None:
    """Add the plan while workers wait, run it, kill a worker in the middle, judge."""
    plan = setup.timed("add", lambda: setup.runs.author(setup.client, 1, ready=False))
    count = setup.timed("status", plan.status, STATUS_S).tasks
    setup.timed("tasks", lambda: list(islice(plan.tasks(), 1000)), CHECK_S)
    began = time.monotonic()
    plan.mark_ready()
    # The middle of the recorded lines: two for each task.
    setup.kill_one_at(count)
    setup.timed("check", lambda: plan.check(repair=False), CHECK_S)
    setup.timed("wait", lambda: plan.wait(WAIT_S))
    seconds = time.monotonic() - began
    setup.measured["rate"] = f"{count / seconds:.0f} tasks/s, {seconds:.1f} s"
    setup.peaks()
    assert plan.status().added == count
    setup.judge([plan])


def run_many(setup: Setup, count: int) -> None:
    """All plans stand before the first is ready."""
    author = partial(setup.runs.author, setup.client, ready=False)
    plans = setup.timed("add", lambda: list(map(author, range(count))))
    setup.timed("list of plans", setup.client.plans, CHECK_S)
    began = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        killer = pool.submit(setup.kill_one_at, 4 * count)
        for plan in plans:
            plan.mark_ready()
        killer.result()
    setup.timed("wait", lambda: [plan.wait(WAIT_S) for plan in plans])
    seconds = time.monotonic() - began
    setup.measured["rate"] = f"{4 * count / seconds:.0f} tasks/s, {seconds:.1f} s"
    setup.peaks()
    setup.judge(plans)


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("leaves", [99_000, 1_500])
def test_a_hundred_thousand_tasks_in_one_plan(start: Start, leaves: int) -> None:
    """With the joins, and in small: where that breaks, size is not the reason."""
    run_one(start(f"groups {leaves}"))


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("width", [10_000, 1_300])
def test_ten_thousand_dependents_and_ten_thousand_dependencies(start: Start, width: int) -> None:
    run_one(start(f"fan {width}"))


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("count", [1_000, 30])
def test_a_thousand_plans_at_once(start: Start, count: int) -> None:
    run_many(start("diamond"), count)
