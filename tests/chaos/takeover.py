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
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import NamedTuple

from .cluster.cluster import GRACE_S, Cluster, Process, Settings, opened
from .cluster.servers import KINDS, Kind
from .validate.plans import Execution, PlanHistory
from .validate.validator import Validator

_POLL_S = 0.02
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
        self._pause = threading.Event()

    def killed(self, times: int) -> Series:
        """A server ends sessions only at its ticks."""
        settings = self.cluster.settings
        bound_s = settings.session_s + settings.tick_ms / 1000 + KILL_BOUND_S
        waits = self._ended(times, 0.0, lambda worker: self.cluster.kill(worker, "killed"))
        return Series("killed", times, waits, bound_s)

    def stopped(self, times: int) -> Series:
        """A task that outlasts the grace is handed back at its end, so the time begins there."""
        waits = self._ended(times, GRACE_S, lambda worker: self.cluster.stop(worker, "stopped"))
        return Series("stopped cleanly", times, waits, STOP_BOUND_S)

    def _ended(self, times: int, grace_s: float, end: Callable[[Process], None]) -> list[float]:
        waits: list[float] = []
        for _ in range(times):
            worker, ran = self._victim(grace_s + _MARGIN_S)
            began = time.monotonic()
            end(worker)
            at = min(time.monotonic(), began + grace_s)
            self.cluster.start(worker)
            waits += self._wait_for(ran, at)
        return waits

    def _victim(self, left_s: float) -> tuple[Process, list[tuple[PlanHistory, Execution]]]:
        """A worker, and those of its tasks that have over `left_s` left."""
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            self._look()
            for worker in self.chance.sample(self.cluster.workers, len(self.cluster.workers)):
                ran = self._running(worker.pid, time.monotonic() + left_s)
                if ran:
                    return worker, ran
        raise TimeoutError(f"no worker ran a task that takes long within {_PATIENCE_S:g} s")

    def _running(self, pid: int, until: float) -> list[tuple[PlanHistory, Execution]]:
        return [
            (plan, runs[-1])
            for plan in list(self.validator.history.plans.values())
            if plan.committed is None
            for key, runs in list(plan.executions.items())
            if runs and runs[-1].pid == pid and runs[-1].ended is None
            if runs[-1].began + plan.workload.items[key].seconds > until
        ]

    def _wait_for(self, ran: list[tuple[PlanHistory, Execution]], at: float) -> list[float]:
        """Seconds from `at` until each of those runs again, but for those that ended after all."""
        deadline = at + self.cluster.settings.session_s + _PATIENCE_S
        found = []
        while ran:
            self._look()
            left = []
            for plan, execution in ran:
                runs = list(plan.executions.get(execution.key, ()))
                later = [each for each in runs if each.n > execution.n]
                if execution.ended is None and later:
                    found.append(later[0].began - at)
                elif execution.ended is None:
                    left.append((plan, execution))
            ran = left
            if time.monotonic() > deadline:
                raise TimeoutError(f"nobody took over {[str(execution) for _, execution in ran]}")
        return found

    def _look(self) -> None:
        self.validator.history.read()
        self.cluster.tend()
        self._pause.wait(_POLL_S)


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
        return series, "; ".join([*validator.violations, *cluster.too_slow])


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
