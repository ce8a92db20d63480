"""Scenarios: directed races. One process is stopped at a named point while another one acts.

Random faults find a narrow race now and then; a scenario makes it every time.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zkplan
from tests.sim.world import ROOT
from tests.tools.support import IN_CHECKOUT, wait_until
from zkplan.errors import ZkplanError
from zkplan.processes import WatchedProcess
from zkplan.protocol.failpoints import VARIABLE
from zkplan.protocol.requests import ReadChildren

from ..cluster.cluster import Cluster, Process, Settings
from ..cluster.link import Link
from ..cluster.process_state import is_stopped
from ..faults.target import Target
from ..traffic import author
from ..traffic.operator import Operator
from ..validate.plans import Execution
from ..validate.tree import Tree
from ..validate.validator import Validator

WAIT_S = 30.0
#: Once no process is stopped, all plans end within this time, or never.
BOUND_S = 10.0


@dataclass(frozen=True)
class Scenario:
    """One race, on plans of that name in SCENARIO_PLANS.

    `altered`: a change of every worker, with and without a mutant. `soon_s`: the bound of L2, where
    slots are always free. `store`: every value lies in a store.
    """

    play: Callable[[ScenarioRun], None]
    plan: str
    session_s: float = 5.0
    altered: str = ""
    soon_s: float = float("inf")
    store: bool = False


class Found(Exception):
    """A violation shows already, so the rest of the scenario need not be played."""


class ScenarioRun:
    """A scenario under way. Its processes, by name: `author`, `worker0`, `worker1`, `worker2`."""

    def __init__(
        self, cluster: Cluster, validator: Validator, client: zkplan.Client, stack: ExitStack
    ) -> None:
        self.cluster, self.validator, self.client, self._stack = cluster, validator, client, stack
        self._tree = Tree(client)
        self._found: list[str] = []

    # ---- what the processes do

    def start(self, *names: str, points: str = "") -> None:
        """Start them, armed with `points`; an armed process counts as hit by a fault."""
        for name in names:
            process = self._process(name)
            self.cluster.start(process, {VARIABLE: points})
            if points:
                target = Target(pids=[process.pid])
                self.cluster.journal.write("fault", name=f"{name} armed", **target.facts())

    def resume(self, name: str) -> None:
        """Let it go on from the point at which it is stopped."""
        self.cluster.resume(self._process(name))

    def wait_stopped(self, name: str) -> None:
        """Wait until it is stopped at its point."""
        process = self._process(name)
        self.until(lambda: is_stopped(process.pid), f"{name} is stopped at its point")

    def stop_at(self, name: str, point: str) -> None:
        """Start it, and wait until it is stopped at that point."""
        self.start(name, points=f"{point}=stop")
        self.wait_stopped(name)

    def kill_at(self, name: str, point: str) -> None:
        """Start it, and wait until it was killed at that point."""
        self.start(name, points=f"{point}=kill")
        process = self._process(name)
        running = process.running
        self.until(lambda: running and not running.is_running(), f"{name} dies at its point")
        self.cluster.kill(process, "killed at its point")

    def wait_unregistered(self, name: str) -> None:
        mark = f"-{self._process(name).pid}-"
        workers = ReadChildren(self.client.paths.workers)
        self.until(
            lambda: not any(mark in each for each in self.client.transport.ask(workers)),
            f"{name} is registered no more",
        )

    def expire(self, name: str) -> None:
        """End its session before its time, and wait until its registration has ended."""
        self.cluster.expire(self._process(name))
        self.wait_unregistered(name)

    def log_of(self, name: str) -> str:
        return self.cluster.log_of(self._process(name))

    def link(self, name: str) -> Link:
        return self._process(name).link

    def operator(self, *command: str, points: str = "") -> WatchedProcess:
        """Run a `zkplan` command, with the broken protocol if there is one."""
        mutant = self.cluster.settings.mutant
        program = ["tests.chaos.traffic.mutated", mutant] if mutant else ["zkplan"]
        hosts = ["--hosts", self.cluster.servers.hosts, "--root", ROOT]
        process = WatchedProcess(
            [*IN_CHECKOUT, sys.executable, "-m", *program, *command, *hosts],
            self.cluster.folder / "operator.log",
            os.environ | self.cluster.with_store | {VARIABLE: points},
        )
        self._stack.callback(process.end, 0)
        return process

    def retry(self, plan: zkplan.Plan) -> bool:
        """Retry every dead task, recorded; whether there was one."""
        letters = list(plan.dead())
        for number, letter in letters:
            Operator(self.client, self.cluster.journal).retry(plan, number, letter)
        return bool(letters)

    def allow_add(self, number: int) -> None:
        """Let the author of a gated plan go on with that add."""
        (self.cluster.folder / f"{author.GATE}{number}").touch()

    def _process(self, name: str) -> Process:
        return next(process for process in self.cluster.processes if process.name == name)

    # ---- what they did

    @property
    def plan(self) -> zkplan.Plan:
        """The plan of the scenario, once it exists."""
        self.until(self.client.plans, "the plan exists")
        return self.client.plans()[0]

    def runs(self, key: str, most_plans: int | None = None) -> list[Execution]:
        """The executions of that task so far, in the first `most_plans` plans or in all."""
        self.validator.history.read()
        plans = list(self.validator.history.plans.values())[:most_plans]
        return [each for plan in plans for each in list(plan.executions.get(key, ()))]

    def has_run(self, key: str, name: str) -> bool:
        """Whether the present life of that worker has started the task."""
        pid = self._process(name).pid
        return any(run.pid == pid for run in self.runs(key))

    def added(self, number: int) -> bool:
        """Whether that add was acknowledged."""
        self.validator.history.read()
        batches = [plan.batches.get(number) for plan in self.validator.history.plans.values()]
        return any(batch is not None and batch.state == "done" for batch in batches)

    def count(self, event: str) -> int:
        """How many events of that name the histories have, as `end` for each task that returned."""
        self.validator.history.read()
        return self.validator.history.counts[event]

    # ---- waiting and judging

    def until(self, condition: Callable[[], Any], what: str) -> None:
        """Wait for it; raises Found as soon as something is violated."""

        def looked() -> Any:
            self._look()
            return condition()

        wait_until(looked, what, WAIT_S)

    def during(self, seconds: float, happens: Callable[[], bool] = bool) -> bool:
        """Give something that must not happen that much time to happen; whether it did."""
        deadline = time.monotonic() + seconds
        self.until(lambda: happens() or time.monotonic() > deadline, "its time is over")
        return happens()

    def violated(self, text: str) -> None:
        self._found.append(text)
        self._look()

    def finish(self) -> None:
        """No process is stopped any more, so every plan has to end."""
        self.until(lambda: self.count("plan begun"), "the author has begun")
        self.cluster.tell_to_end("author")
        deadline = time.monotonic() + BOUND_S

        def over() -> bool:
            self._look()
            return self.validator.finished > 0 and self.validator.is_idle()

        wait_until(lambda: over() or time.monotonic() > deadline, "the end", 2 * BOUND_S)
        if not over():
            found = self.validator.give_up(self.validator.standing)
            self._found += found or ["the plan was not judged"]
        self._look()

    def _look(self) -> None:
        self._found += self._tree.look()
        with suppress(zkplan.PlanNotFound):  # the validator removes what it has judged
            for plan in self.client.plans():
                self._found += self.validator.blobs.missing(plan)
        if self._found or self.validator.violations:
            raise Found

    def verdict(self) -> list[str]:
        """All violations, and all processes that ended by themselves."""
        ended = [
            f"{process.name} ended by itself: {self.cluster.log_of(process)[-500:]}"
            for process in self.cluster.processes
            if process.running is not None and not process.running.is_running()
            # An author ends once it is told to.
            if process.role != "author" or not self.validator.history.counts["author stopped"]
        ]
        return [*dict.fromkeys([*self._found, *self.validator.violations]), *ended]


def played(scenario: Scenario, mutant: str, folder: Path) -> list[str]:
    """Play a scenario, with a broken protocol or the real one (empty); the violations."""
    settings = Settings(
        "embedded",
        1,
        workers=3,
        session_s=scenario.session_s,
        backlog=1,
        shape=scenario.plan,
        mutant="+".join(name for name in (mutant, scenario.altered) if name),
        start_nobody=True,
        soon_s=scenario.soon_s,
        store=scenario.store,
    )
    with (
        Cluster(settings, folder) as cluster,
        Validator(cluster) as validator,
        cluster.connect(connect_timeout=60.0) as client,
        ExitStack() as stack,
    ):
        run = ScenarioRun(cluster, validator, client, stack)
        try:
            scenario.play(run)
            run.finish()
        except Found:
            pass
        except (AssertionError, ZkplanError) as error:
            return [*run.verdict(), f"the scenario broke off: {error!r}"]
        return run.verdict()
