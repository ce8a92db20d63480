"""The rate on a graph while workers are killed, and while none is."""

from __future__ import annotations

from statistics import median
from typing import NamedTuple

from zkplan.basics.settings import Settings as Connecting
from zkplan.testing.stress_run import Report, StressSettings, run

from .rows import Row, Target
from .suite import Bench

WORKERS, THREADS, DEPS = 4, 4, 2
KILL_EVERY_S = 2.0
#: As in `zkplan stress` with kills.
SESSION_TIMEOUT_S = 4.0
TIMEOUT_S = 600.0
HALF = Target(0.5)


class Load(NamedTuple):
    """A graph of `tasks` tasks of `sleep_s` seconds each, or of `quick` tasks.

    With `supervised` the four workers are processes of one `zkplan worker`, which signs off killed
    ones. Otherwise each is alone, as on a machine of its own, and others wait for its session to
    end.
    """

    name: str
    sleep_s: float
    tasks: int
    quick: int
    supervised: bool


#: Each run has to be much longer than a take-over, 4 to 6 s here, because at its end the run waits
#: for the tasks lost last. 20 000 empty tasks, 8 s without kills, were too few.
LOADS = (
    Load("tasks of 0.1 s", 0.1, 5000, 100, False),
    Load("tasks of 0.1 s, one command", 0.1, 5000, 100, True),
    Load("empty tasks", 0.0, 80_000, 200, False),
    Load("empty tasks, one command", 0.0, 80_000, 200, True),
)


def kills(bench: Bench) -> list[Row]:
    """Kill one of four workers every two seconds, and start another at once."""
    return [_beside_each_other(bench, load) for load in LOADS]


def _beside_each_other(bench: Bench, load: Load) -> Row:
    pairs = []
    for turn in range(bench.runs):
        order = (None, KILL_EVERY_S) if turn % 2 == 0 else (KILL_EVERY_S, None)
        pair = {every: _run(bench, load, every, turn) for every in order}
        pairs.append((pair[KILL_EVERY_S], pair[None]))
    killed, calm = (median(report.rate for report in side) for side in zip(*pairs, strict=True))
    waits = sorted(wait for report, _ in pairs for wait in report.takeovers)
    number = sum(report.kills for report, _ in pairs)
    row = Row(
        f"a kill every {KILL_EVERY_S:g} s / none: {load.name}",
        "ratio",
        total=killed / calm,
        note=f"{killed:,.0f} and {calm:,.0f} tasks/s; {number} kills, "
        f"{len(waits)} takeovers after {median(waits or [0]):.1f} s "
        f"(median; session time-out {SESSION_TIMEOUT_S:g} s)",
        runs=[_facts(report) for pair in pairs for report in pair],
        server=bench.server,
    )
    if not bench.quick:
        row.target, row.met = str(HALF), HALF.met(row.total, None)
    return row


def _run(bench: Bench, load: Load, kill_every_s: float | None, seed: int) -> Report:
    report = run(
        Connecting(hosts=bench.hosts),
        StressSettings(
            workers=WORKERS,
            tasks=bench.size(load.tasks, load.quick),
            deps=DEPS,
            sleep_s=load.sleep_s,
            seed=seed,
            kill_every_s=kill_every_s,
            supervised=load.supervised,
            threads=THREADS,
            session_timeout_s=SESSION_TIMEOUT_S,
            timeout_s=TIMEOUT_S,
            root="/zkplan-benchmark",
        ),
    )
    if not report.passed:
        broken = [verdict for verdict in report.verdicts if not verdict.passed]
        raise RuntimeError(f"a promise was broken: {report.problem} {broken}")
    disturbed = f"a kill every {kill_every_s:g} s" if kill_every_s else "no kills"
    bench.tell(f"{bench.server}: {load.name}, {disturbed}: {report.rate:,.0f} tasks/s")
    return report


def _facts(report: Report) -> dict[str, object]:
    return {
        "kill_every_s": report.settings.kill_every_s,
        "tasks": report.settings.tasks,
        "executions": report.executions,
        "kills": report.kills,
        "elapsed_s": report.elapsed_s,
        "takeovers_s": report.takeovers,
    }
