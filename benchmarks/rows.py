"""A row of the report: the medians of the runs of one workload, beside its target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import median

from .measure import Run
from .servers import EMBEDDED, ZOOKEEPER

#: The units of figures. Only for `tasks/s` is a higher figure better.
UNITS = ("tasks/s", "s", "ms/hop")
#: The share of a real server's speed that the embedded server must reach.
EMBEDDED_MIN = 0.8


@dataclass(frozen=True)
class Target:
    """The bounds of the two figures, or None without a bound. Both must hold."""

    total: float | None = None
    execution: float | None = None
    higher: bool = True

    def met(self, total: float | None, execution: float | None) -> bool:
        pairs = [(self.total, total), (self.execution, execution)]
        return all(
            found is not None and (found >= wanted if self.higher else found <= wanted)
            for wanted, found in pairs
            if wanted is not None
        )

    def __str__(self) -> str:
        sign = "≥" if self.higher else "≤"
        if self.total is None:
            return f"execution {sign} {self.execution:,g}"
        execution = f" ({self.execution:,g})" if self.execution is not None else ""
        return f"{sign} {self.total:,g}{execution}"


@dataclass
class Row:
    """The figures of one workload. `met` is None without a target, or with reduced sizes."""

    name: str
    unit: str
    total: float | None = None
    execution: float | None = None
    submission: float | None = None
    #: From the first call until the author has the values of all leaves.
    values: float | None = None
    target: str = ""
    met: bool | None = None
    conflicts: int | None = None
    refusals: int | None = None
    #: How many processors other processes took, on average.
    disturbance: float | None = None
    note: str = ""
    runs: list[dict[str, object]] = field(default_factory=list)
    #: The server; empty if the row is about several.
    server: str = ""

    @property
    def full_name(self) -> str:
        """The name, with the server's name."""
        return f"{self.name} ({self.server})" if self.server else self.name


def figure(unit: str, tasks: int, seconds: float) -> float:
    """Seconds in the unit of a row."""
    if unit == "tasks/s":
        return tasks / seconds
    return seconds * 1000 / tasks if unit == "ms/hop" else seconds


def row_of(name: str, unit: str, runs: Sequence[Run], target: Target | None = None) -> Row:
    """The median of each figure: total, execution and submission may come from three runs."""
    tasks = runs[0].tasks
    values = [run.values_s for run in runs if run.values_s is not None]
    row = Row(
        name,
        unit,
        total=figure(unit, tasks, median(run.total_s for run in runs)),
        execution=figure(unit, tasks, median(run.execution_s for run in runs)),
        submission=figure(unit, tasks, median(run.submission_s for run in runs)),
        values=figure(unit, tasks, median(values)) if values else None,
        conflicts=int(median(run.statistics["conflicts"] for run in runs)),
        refusals=int(median(run.statistics["refusals"] for run in runs)),
        disturbance=median(run.cpu_s["others"] / run.total_s for run in runs),
        runs=[asdict(run) for run in runs],
    )
    if target is not None:
        row.target, row.met = str(target), target.met(row.total, row.execution)
    return row


def ratio_row(name: str, first: Sequence[Run], second: Sequence[Run], target: Target | None) -> Row:
    """The speed of the first as a multiple of that of the second, by their medians.

    Run i of the first and run i of the second were neighbours in time.
    """
    faster = sum(a.execution_s <= b.execution_s for a, b in zip(first, second, strict=True))
    one = row_of(name, "tasks/s", first)
    two = row_of(name, "tasks/s", second)
    row = Row(
        name,
        "ratio",
        total=(one.total or 0.0) / (two.total or 1.0),
        execution=(one.execution or 0.0) / (two.execution or 1.0),
        conflicts=one.conflicts,
        refusals=one.refusals,
        disturbance=max(one.disturbance or 0.0, two.disturbance or 0.0),
        note=f"execution {one.execution:,.0f} and {two.execution:,.0f} tasks/s; faster in {faster} "
        f"of {len(first)} turns",
        runs=[*one.runs, *two.runs],
    )
    if target is not None:
        row.target, row.met = str(target), target.met(row.total, row.execution)
    return row


def server_ratios(rows: Sequence[Row], is_judged: bool) -> list[Row]:
    """The relative speed of the embedded server in each workload that ran on both servers in turns.
    The values are judged if they were measured."""
    found = {(row.name, row.server): row for row in rows}
    ratios = []
    for (name, server), ours in found.items():
        theirs = found.get((name, ZOOKEEPER))
        if server != EMBEDDED or theirs is None:
            continue
        row = Row(f"{name}: {EMBEDDED} / {ZOOKEEPER}", "ratio")
        row.total = times_as_fast(ours.unit, ours.total, theirs.total)
        row.execution = times_as_fast(ours.unit, ours.execution, theirs.execution)
        row.submission = times_as_fast(ours.unit, ours.submission, theirs.submission)
        row.values = times_as_fast(ours.unit, ours.values, theirs.values)
        if is_judged:
            judged = [
                ratio for ratio in (row.values, row.total, row.execution) if ratio is not None
            ]
            row.target, row.met = f"≥ {EMBEDDED_MIN:g}", judged[0] >= EMBEDDED_MIN
        ratios.append(row)
    return ratios


def times_as_fast(unit: str, first: float | None, second: float | None) -> float | None:
    """How many times as fast the first figure is as the second; None if one was not measured."""
    if not first or not second:
        return None
    return first / second if unit == "tasks/s" else second / first
