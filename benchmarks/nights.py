"""Make a root as an operator finds it in the morning: most plans have ended, some went wrong."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import zkplan
from zkplan import Client, Plan, TaskSpec
from zkplan.processes import WatchedProcess
from zkplan.protocol.history.compaction import compact

from .functions import refuse, take
from .pool import Pool, wait_until

PROCESSES, THREADS = 2, 16
#: Seconds that a task takes, and that an unusually long one takes, of which one in LONG_EVERY plans
#: has one.
USUAL_S, LONG_S, LONG_EVERY = 0.02, 2.0, 5
#: Tasks that keep running while questions are asked.
RUNNING, RUNNING_S = 6, 3600.0
DEAD = 3
#: Plans that run at a time while the root is filled.
AT_A_TIME = 20
WAIT_S = 600.0


@dataclass(frozen=True)
class Night:
    """The subjects of the questions. At `moment` the plan `plan` was half done.

    `worker` runs tasks now; `lost` was killed while it ran tasks. `long` is the number of plans
    that have a task that took longer than usual.
    """

    plan: str
    moment: float
    worker: str
    lost: str
    long: int


@contextmanager
def night(client: Client, plans: int, tasks: int, tell: Callable[[str], None]) -> Iterator[Night]:
    """Fill a new root with `plans` plans of `tasks` tasks. Its workers run until the end of the
    block.

    Every history is merged, as workers do by themselves ten seconds after its last event.
    """
    lost = _lose_a_worker(client)
    with Pool(client, PROCESSES, THREADS):
        _fail_and_cancel(client)
        made: list[Plan] = []
        while len(made) < plans:
            some = [
                _pipeline(client, number, tasks)
                for number in range(len(made), min(plans, len(made) + AT_A_TIME))
            ]
            for plan in some:
                plan.wait(WAIT_S)
            made += some
            tell(f"{len(made):,} plans of {tasks:,} tasks have ended")
        _until(lambda: _running(client, lost) == RUNNING, "others run what the lost worker ran")
        for plan in client.plans():
            client.transport.run(compact(plan.path))
        chosen = made[len(made) // 2]
        events = chosen.history()
        worker = next(each.id for each in client.workers() if each.claims)
        moment = events[len(events) // 2].when
        yield Night(f"{chosen.name}", moment, worker, lost, -(-plans // LONG_EVERY))


def _pipeline(client: Client, number: int, tasks: int) -> Plan:
    """A plan of `tasks` tasks that fetch, parse, join and report."""
    plan = client.create_plan(f"nightly-{number:03d}")
    width = tasks * 2 // 5
    fetched = [TaskSpec(take, [USUAL_S], name="fetch") for _ in range(width)]
    parsed = [TaskSpec(take, [USUAL_S, each], name="parse") for each in fetched]
    if number % LONG_EVERY == 0:
        parsed[width // 2] = TaskSpec(take, [LONG_S, fetched[width // 2]], name="parse")
    joins = tasks - 2 * width - 1
    share = -(-width // joins)
    joined = [
        TaskSpec(take, [USUAL_S, *parsed[at * share : (at + 1) * share]], name="join")
        for at in range(joins)
    ]
    report = TaskSpec(take, [USUAL_S, *joined], name="report")
    plan.add_tasks([*fetched, *parsed, *joined, report])
    plan.mark_ready()
    return plan


def _lose_a_worker(client: Client) -> str:
    """Kill a worker that runs tasks, and return its ID."""
    client.prepare()
    hourly = client.create_plan("hourly", attempts=5)
    hourly.add_tasks([TaskSpec(take, [RUNNING_S], name="watch") for _ in range(RUNNING)])
    hourly.mark_ready()
    command = [sys.executable, "-m", "benchmarks.worker", "--hosts", client.transport.hosts]
    command += ["--root", client.root, "--threads", str(RUNNING)]
    with tempfile.TemporaryDirectory(prefix="zkplan-benchmark-") as folder:
        process = WatchedProcess(command, Path(folder) / "worker.log")
        try:
            _until(lambda: _running(client) == RUNNING, "a worker runs them")
            return client.workers()[0].id
        finally:
            process.end(0)


def _fail_and_cancel(client: Client) -> None:
    with client.create_plan("imports", attempts=2, retry_delay=0.0) as imports:
        broken = [imports.add_task(refuse, [f"db{at}"], name="import") for at in range(DEAD)]
        imports.add_task(take, [USUAL_S], after=broken, name="index")
    wrong = client.create_plan("backfill")
    wrong.add_tasks([TaskSpec(take, [RUNNING_S], name="fill", queue="nobody") for _ in range(50)])
    wrong.mark_ready()
    wrong.cancel()
    _until(lambda: imports.status().dead == DEAD, "the imports are dead")


def _running(client: Client, but: str = "") -> int:
    """How many tasks run on workers other than `but`."""
    return sum(task.worker != but for task in client.tasks(state="running"))


def _until(holds: Callable[[], bool], what: str) -> None:
    if not wait_until(holds, WAIT_S):
        raise zkplan.WaitTimeout(f"not within {WAIT_S:g} s: {what}")
