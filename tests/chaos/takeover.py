"""How soon others take over: python -m tests.chaos.takeover --kind ensemble --kills 50 --stops 50.

One worker after another is killed, or stopped cleanly, while it runs tasks. All of them have to run
elsewhere before the next worker is ended. Slots are free, so that no task waits for one.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

from tests.tools.support import wait_until

from .cluster.cluster import GRACE_S, Cluster, Process, Settings, opened
from .cluster.servers import KINDS, Kind
from .validate.measures import takeovers
from .validate.validator import Validator

#: How much longer than the session time-out a takeover is waited for.
_PATIENCE_S = 30.0
#: A task with less time left than this may end before its worker does.
_MARGIN_S = 0.5
#: The time after a kill besides the session time-out and a tick, and the time after a clean stop.
KILL_BOUND_S, STOP_BOUND_S = 1.0, 0.5
_HEADER = "| Worker | Times | Tasks | Median | 95 % | Worst | Bound | |\n|" + " --- |" * 8


class Series(NamedTuple):
    """One kind of end: seconds until each task ran elsewhere, and their bound."""

    name: str
    ends: int
    waits: list[float]
    bound_s: float

    @property
    def met(self) -> bool:
        return bool(self.waits) and max(self.waits) <= self.bound_s

    @property
    def row(self) -> str:
        waits = sorted(self.waits)
        late = waits[int(0.95 * (len(waits) - 1))]
        return (
            f"| {self.name} | {self.ends} | {len(waits)} | {median(waits):.2f} s | {late:.2f} s | "
            f"{waits[-1]:.2f} s | {self.bound_s:g} s | {'met' if self.met else '**missed**'} |"
        )


class Takeovers:
    """Ends workers, one after another, and measures."""

    def __init__(self, cluster: Cluster, validator: Validator) -> None:
        self.cluster, self.validator = cluster, validator
        self.chance = random.Random(cluster.settings.seed)

    def killed(self, times: int) -> Series:
        """A server ends sessions only at its ticks."""
        settings = self.cluster.settings
        bound_s = settings.session_s + settings.tick_ms / 1000 + KILL_BOUND_S
        return self._ended("killed", times, 0.0, self.cluster.kill, bound_s)

    def stopped(self, times: int) -> Series:
        """A task that outlasts the grace is handed back at its end, so the time begins there."""
        return self._ended("stopped cleanly", times, GRACE_S, self.cluster.stop, STOP_BOUND_S)

    def _ended(
        self,
        how: str,
        times: int,
        grace_s: float,
        end: Callable[[Process, str], None],
        bound: float,
    ) -> Series:
        within_s = self.cluster.settings.session_s + _PATIENCE_S
        busy = partial(self._busy, grace_s + _MARGIN_S)
        for _ in range(times):
            worker = wait_until(busy, "a worker runs tasks that take long", _PATIENCE_S)
            freed = partial(self._holds_nothing, worker.pid)
            end(worker, how)
            self.cluster.start(worker)
            wait_until(freed, "others have taken over all of its tasks", within_s)
        with self.cluster.gavel:  # no plan is checked meanwhile, and counted there
            plans = list(self.validator.history.plans.values())
            tasks = [runs for plan in plans for runs in list(plan.executions.values())]
            found = [*self.validator.takeovers, *takeovers(self.validator.history, tasks)]
        return Series(how, times, [each.seconds for each in found if each.why == how], bound)

    def _busy(self, left_s: float) -> Process | None:
        """A worker that runs a task with so much time left."""
        self.cluster.tend()
        until = time.monotonic() + left_s
        workers = self.chance.sample(self.cluster.workers, len(self.cluster.workers))
        return next((worker for worker in workers if self._held(worker.pid, until)), None)

    def _holds_nothing(self, pid: int) -> bool:
        return not self._held(pid, 0.0)

    def _held(self, pid: int, until: float) -> bool:
        """Whether a task that takes until then, at least, is that process's, and has not ended."""
        self.validator.history.read()
        return any(
            runs[-1].pid == pid
            and runs[-1].ended is None
            and runs[-1].began + plan.workload.items[key].seconds > until
            for plan in list(self.validator.history.plans.values())
            if plan.committed is None
            for key, runs in list(plan.executions.items())
            if runs
        )


def settings_for(kind: Kind, seed: int, session_s: float, tick_ms: int) -> Settings:
    """Four workers with more threads than there are tasks, all of which take seconds."""
    return Settings(kind, seed, 4, 8, session_s, 2, shape="steady", tick_ms=tick_ms)


def measure(settings: Settings, kills: int, stops: int, folder: Path) -> tuple[list[Series], str]:
    """Kill so many workers, then stop so many. The series, and the violations (empty: none)."""
    with opened(settings, folder) as cluster, Validator(cluster) as validator:
        measured = Takeovers(cluster, validator)
        series = [measured.killed(kills)] if kills else []
        series += [measured.stopped(stops)] if stops else []
        validator.check_history()
        return series, "; ".join([*validator.violations, *cluster.violations])


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.takeover", description=__doc__)
    add = parser.add_argument
    add("--kind", choices=KINDS, default="embedded")
    add("--kills", type=int, default=50)
    add("--stops", type=int, default=50)
    add("--session-timeout", type=float, default=10.0)
    add("--tick", type=int, default=250, help="of the server, in milliseconds")
    add("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    settings = settings_for(options.kind, options.seed, options.session_timeout, options.tick)
    with tempfile.TemporaryDirectory(prefix="zkplan-takeover-") as folder:
        series, broken = measure(settings, options.kills, options.stops, Path(folder))
    rows = [_HEADER, *(each.row for each in series)]
    sys.stdout.write("\n".join([*rows, "", broken or "violations: 0"]) + "\n")
    return 0 if not broken and all(each.met for each in series) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
