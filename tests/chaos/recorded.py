"""Recorded plans on a server that a test starts itself: the same tasks and checks as in a run."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import zkplan

# By their full names: workers import the function of a task by the name that it has here.
from tests.chaos.faults.target import EVERYBODY
from tests.chaos.traffic.author import Author
from tests.chaos.traffic.tasks import POKES
from tests.chaos.traffic.workloads import Workload
from tests.chaos.validate.checks import violations
from tests.chaos.validate.evidence import PlanEvidence
from tests.chaos.validate.history import RunHistory
from tests.chaos.validate.snapshot import remains_at_end
from zkplan.processes import WatchedProcess
from zkplan.testing.stress_tasks import Recorder


class Recorded:
    """Plans of one shape, by their seeds, and the history that their tasks write to `folder`."""

    def __init__(self, folder: Path, shape: str, session_s: float) -> None:
        self.folder, self.shape, self.session_s = folder, shape, session_s
        (folder / POKES).mkdir(parents=True)
        self.history = RunHistory(folder, shape)
        self._journal = Recorder(str(folder), "test")

    def author(self, client: zkplan.Client, seed: int, ready: bool = True) -> zkplan.Plan:
        workload = Workload.make(seed, self.shape)
        Author(client, self.folder, 10).author(workload, ready)
        return client.plan(workload.name)

    def lines(self) -> int:
        """How many lines were written so far: two for each task."""
        files = self.folder.glob("worker-*.jsonl")
        return sum(path.read_bytes().count(b"\n") for path in files)

    def kill(self, process: WatchedProcess) -> None:
        """Kill a worker; only its tasks may be repeated."""
        sent = time.monotonic()
        process.end(0)
        who = {"name": "a worker", "role": "worker", "pid": process.pid, "code": process.exit_code}
        self._journal.write("ended", sent=sent, why="killed", killed=True, **who)

    @contextmanager
    def fault(self, name: str, refuses: bool = False) -> Iterator[None]:
        """A fault that may touch every worker; one that `refuses` may refuse their commits."""
        self._journal.write("fault", name=name, **replace(EVERYBODY, refuses=refuses).facts())
        yield
        self._journal.write("healed", name=name)

    def violations(
        self,
        client: zkplan.Client,
        plan: zkplan.Plan,
        losses: int,
        without: Collection[str] = (),
    ) -> list[str]:
        """Every broken promise of a plan that is done, without the checks of those names.

        Workers have lost what they held so many times. No task may run again more often, whomever
        a fault excuses.
        """
        self.history.read()
        left = remains_at_end(client, plan, plan.status().added)
        evidence = PlanEvidence(self.history.plans[plan.name], left, self.history, self.session_s)
        too_often = [
            f"S8 task {key} ran {len(runs)} times after {losses} losses"
            for key, runs in evidence.executions.items()
            if len(runs) > 1 + losses
        ]
        return [*violations(evidence, without), *too_often]
