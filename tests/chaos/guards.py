"""What the tests of access and of TLS share: guarded workers, a plan, and the judgement of it."""

from __future__ import annotations

import sys
from pathlib import Path

import zkplan

# By its full name: workers import the function of a task by the name that it has here.
from tests.chaos.sizes import broken, fan, read, specs
from tests.crash.server import not_available
from tests.integ.support import IN_CHECKOUT, wait_until
from zkplan.testing.java import find_java, find_zookeeper
from zkplan.testing.process import WatchedProcess

from .guarded import environment

#: Who may delete a znode is said at its parent: so the parent of the root has the list too.
PARENT, ROOT = "/guarded", "/guarded/zkplan"
GOOD, BAD = "good:secret", "bad:guess"
WIDTH = 600
WAIT_S = 60.0
TICK_MS = 500


class Guarded:
    """A worker process, and what it says."""

    def __init__(self, hosts: str, folder: Path, name: str, user: str, **options: object) -> None:
        self.log = folder / f"{name}.log"
        command = [*IN_CHECKOUT, sys.executable, "-m", "tests.chaos.guarded", hosts, ROOT]
        self.process = WatchedProcess(command, self.log, environment(user, **options))

    def says(self, text: str) -> bool:
        return self.log.exists() and text in self.log.read_text()

    def __enter__(self) -> Guarded:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.end(0)


def needs_java() -> None:
    if find_java() is None or find_zookeeper() is None:
        not_available("no ZooKeeper is installed here")


def running_plan(client: zkplan.Client, name: str, runs: Path) -> zkplan.Plan:
    """A plan that may run, of WIDTH tasks between two others."""
    runs.mkdir()
    plan = client.create_plan(name, attempts=20)
    plan.add_tasks(specs(fan(WIDTH), runs))
    plan.mark_ready()
    return plan


def all_ready(workers: list[Guarded]) -> None:
    wait_until(lambda: all(each.says(" ready") for each in workers), "workers are ready", WAIT_S)


def judge(plan: zkplan.Plan, runs: Path, losses: int) -> None:
    """Every promise, for a plan that is done."""
    sized = fan(WIDTH)
    outcomes = plan.client.transport.client.get_children(f"{plan.path}/results")
    assert len(outcomes) == 1
    made = zkplan.Task(plan, outcomes[0]).result(timeout=10)
    found = list(broken(sized, read(runs)[0], {len(sized.needs) - 1: made[1]}, losses))
    assert found == []
