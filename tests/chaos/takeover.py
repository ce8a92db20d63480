"""How soon others go on: python -m tests.chaos.takeover --kind ensemble --kills 50 --stops 50.

One worker after the other is killed, or stopped cleanly, while it runs tasks; then all of them have
to run elsewhere before the next is. Slots are free, so that no task waits for one.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from .actors.workloads import Item
from .origin import command_of, origin_of
from .pictures import histogram
from .validate.plans import Execution, PlanHistory
from .validate.validator import Validator
from .world.arena import GRACE_S, Actor, Arena, Settings, opened
from .world.servers import KINDS, Kind

_POLL_S = 0.02
#: A take-over that takes so much longer than its bound is given up.
_PATIENCE_S = 30.0
#: A task that has less left than this may end before its worker does.
_MARGIN_S = 0.5
#: What a take-over may take besides the session time-out and a tick, and after a clean stop.
KILL_BOUND_S, STOP_BOUND_S = 1.0, 0.5


def kill_bound_s(settings: Settings) -> float:
    """Within this a dead worker's tasks run elsewhere: a server ends sessions at its ticks only."""
    return settings.session_s + settings.tick_ms / 1000 + KILL_BOUND_S


class Running(NamedTuple):
    """An execution under way, and where its successor will be found."""

    plan: PlanHistory
    execution: Execution

    @property
    def item(self) -> Item:
        return self.plan.workload.items[self.execution.key]

    @property
    def left_s(self) -> float:
        """Of the time that the task takes."""
        return self.item.seconds - (time.monotonic() - self.execution.began)

    @property
    def successor(self) -> Execution | None:
        runs = self.plan.executions.get(self.execution.key, [])
        return next((each for each in list(runs) if each.n > self.execution.n), None)


class Series(NamedTuple):
    """What one kind of end showed: seconds until each task went on, and the bound for all."""

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

    def __init__(self, arena: Arena, validator: Validator) -> None:
        self.arena, self.validator = arena, validator
        self.chance = random.Random(arena.settings.seed)
        self._pause = threading.Event()

    def killed(self, times: int) -> Series:
        waits: list[float] = []
        for _ in range(times):
            actor, ran = self._victim(_MARGIN_S)
            at = time.monotonic()
            self.arena.kill(actor, "killed")
            self.arena.start(actor)
            waits += self._wait_for(ran, at)
        return Series("killed", times, waits, kill_bound_s(self.arena.settings))

    def stopped(self, times: int) -> Series:
        """A task that outlasts the grace is handed back at its end: from then on it counts."""
        waits: list[float] = []
        for _ in range(times):
            actor, ran = self._victim(GRACE_S + _MARGIN_S)
            sent = time.monotonic()
            self.arena.stop(actor, "stopped")
            at = min(time.monotonic(), sent + GRACE_S)
            self.arena.start(actor)
            waits += self._wait_for(ran, at)
        return Series("stopped cleanly", times, waits, STOP_BOUND_S)

    def _victim(self, left_s: float) -> tuple[Actor, list[Running]]:
        """A worker that runs tasks which will not have ended within `left_s`."""
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            self._look()
            actors = list(self.arena.workers)
            self.chance.shuffle(actors)
            for actor in actors:
                ran = [each for each in self._running(actor.pid) if each.left_s > left_s]
                if ran:
                    return actor, ran
        raise TimeoutError(f"no worker ran a task that takes long within {_PATIENCE_S:g} s")

    def _running(self, pid: int) -> list[Running]:
        return [
            Running(plan, runs[-1])
            for plan in list(self.validator.history.plans.values())
            if plan.committed is None
            for runs in list(plan.executions.values())
            if runs and runs[-1].pid == pid and runs[-1].ended is None
        ]

    def _wait_for(self, ran: Sequence[Running], at: float) -> list[float]:
        """Seconds from `at` until each of those runs again, but for those that ended after all."""
        deadline = at + self.arena.settings.session_s + _PATIENCE_S
        open_still, found = list(ran), []
        while open_still:
            self._look()
            for each in list(open_still):
                if each.execution.ended is not None:
                    open_still.remove(each)
                elif each.successor is not None:
                    open_still.remove(each)
                    found.append(each.successor.began - at)
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"nobody took over {[str(each.execution) for each in open_still]}"
                )
        return found

    def _look(self) -> None:
        self.validator.history.read()
        self.arena.tend()
        self._pause.wait(_POLL_S)


class Measured(NamedTuple):
    """All series, and what the checker found: empty where every promise was kept."""

    series: list[Series]
    broken: str
    origin: dict[str, object]


def settings_for(kind: Kind, seed: int, session_s: float, tick_ms: int) -> Settings:
    """Four workers with more threads than there are tasks, all of which take seconds."""
    return Settings(
        kind, seed, threads=8, session_s=session_s, backlog=2, shape="steady", tick_ms=tick_ms
    )


def measure(settings: Settings, kills: int, stops: int, folder: Path) -> Measured:
    """Kill so many workers, then stop so many, one after the other."""
    with opened(settings, folder) as arena, Validator(arena) as validator:
        origin = origin_of(settings.kind, arena.servers.hosts)
        measured = Takeovers(arena, validator)
        series = [measured.killed(kills)] if kills else []
        series += [measured.stopped(stops)] if stops else []
        validator.check_history()
        return Measured(series, "; ".join([*validator.violations, *arena.too_slow]), origin)


def _page(measured: Measured, settings: Settings, command: str, stem: str) -> str:
    series = measured.series
    origin = "\n".join(f"| {name} | {value} |" for name, value in measured.origin.items())
    rows = "\n".join(each.row for each in series)
    pictures = "\n\n".join(
        f"![Take-over times, {each.name}]({stem}-{each.name.replace(' ', '-')}.svg)"
        for each in series
    )
    size = f"{settings.workers} workers of {settings.threads} threads"
    times = f"session time-out {settings.session_s:g} s, tick of the server {settings.tick_ms} ms"
    return f"""# How soon others go on: {settings.kind}

`{command}`

| | |
| --- | --- |
{origin}

{size}, {times}.
From the end of a worker to the next start of each task that it was running. A worker that is
stopped cleanly hands back at the end of its grace what still runs: there its time begins.

| Worker | Times | Tasks | Median | 95 % | Worst | Bound | |
| --- | --- | --- | --- | --- | --- | --- | --- |
{rows}

{pictures}
"""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.takeover", description=__doc__)
    parser.add_argument("--kind", choices=KINDS, default="embedded")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--stops", type=int, default=50)
    parser.add_argument("--session-timeout", type=float, default=10.0)
    parser.add_argument("--tick", type=int, default=250, help="of the server, in milliseconds")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", type=Path, default=None, help="a Markdown file to write")
    options = parser.parse_args(arguments)
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    kind: Kind = options.kind
    settings = settings_for(kind, options.seed, options.session_timeout, options.tick)
    with tempfile.TemporaryDirectory(prefix="zkplan-takeover-") as folder:
        measured = measure(settings, options.kills, options.stops, Path(folder))
    series, broken, _ = measured
    sys.stdout.write("\n".join([*(each.row for each in series), broken or "violations: 0"]) + "\n")
    if options.report is not None:
        command = command_of(arguments, options.seed, "tests.chaos.takeover")
        stem = options.report.stem
        options.report.parent.mkdir(parents=True, exist_ok=True)
        options.report.write_text(_page(measured, settings, command, stem))
        for each in series:
            name = f"{stem}-{each.name.replace(' ', '-')}.svg"
            options.report.with_name(name).write_text(histogram(each.waits))
    return 0 if not broken and all(each.met for each in series) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
