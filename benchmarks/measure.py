"""One run of one graph, timed to the end of waiting, or until the author has the values."""

from __future__ import annotations

import gc
import os
import time
from dataclasses import dataclass, field

from . import machine
from .pool import Pool
from .shapes import Shape

RUN_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Run:
    """The times of one run, in seconds. `statistics` are sums over the workers.

    `submission_s` is from `create_plan` to `mark_ready`, `execution_s` from there to the end of
    `wait`. `cpu_s` has the processor seconds of the workers, the server, the author and all others
    during the run. `values_s` is from another run; see `time_values`.
    """

    tasks: int
    submission_s: float
    execution_s: float
    statistics: dict[str, int] = field(default_factory=dict)
    cpu_s: dict[str, float] = field(default_factory=dict)
    values_s: float | None = None

    @property
    def total_s(self) -> float:
        return self.submission_s + self.execution_s


class Clock:
    """Processor seconds of the workers, the server, this process and everybody else."""

    def __init__(self, workers: list[int], server: int | None) -> None:
        self._pids = {"workers": workers, "server": [server] if server else []}
        self._pids["author"] = [os.getpid()]
        self._began = self._read()

    def _read(self) -> dict[str, float]:
        taken = {name: sum(map(machine.cpu_s, pids)) for name, pids in self._pids.items()}
        return {**taken, "others": machine.busy_s() - sum(taken.values())}

    def taken(self) -> dict[str, float]:
        now = self._read()
        return {name: round(max(0.0, now[name] - self._began[name]), 2) for name in now}


def run_shape(pool: Pool, shape: Shape, server: int | None, history: bool = True) -> Run:
    """Run `shape` once on `pool`, with or without a history, check its results, remove the plan.

    Raises WrongResult, PoolBroke, and as `Plan.wait`.
    """
    client = pool.client
    before = pool.statistics()
    gc.collect()
    clock = Clock(pool.pids, server)
    began = time.perf_counter()
    plan = client.create_plan(shape.name, history=history)
    tasks = plan.add_tasks(shape.build())
    submitted = time.perf_counter()
    plan.mark_ready()
    plan.wait(timeout=RUN_TIMEOUT_S)
    ended = time.perf_counter()
    cpu = clock.taken()
    pool.require_running()
    counted = pool.statistics_once(before["committed"] + shape.tasks)
    shape.check(tasks)
    plan.remove()
    return Run(
        tasks=shape.tasks,
        submission_s=submitted - began,
        execution_s=ended - submitted,
        statistics={name: counted[name] - before[name] for name in counted},
        cpu_s=cpu,
    )


def time_values(pool: Pool, shape: Shape) -> float:
    """Seconds from `create_plan` until the author has the values of all leaves.

    The author reads them while the plan runs, which would disturb the execution that `run_shape`
    measures, so this is a run of its own. Raises as `run_shape` and `Plan.results`.
    """
    before = pool.statistics()
    gc.collect()
    began = time.perf_counter()
    plan = pool.client.create_plan(shape.name)
    tasks = plan.add_tasks(shape.build())
    plan.mark_ready()
    values = plan.results([tasks[index] for index in shape.expected], timeout=RUN_TIMEOUT_S)
    seconds = time.perf_counter() - began
    pool.require_running()
    pool.statistics_once(before["committed"] + shape.tasks)
    shape.check_values(values)
    plan.remove()
    return seconds
