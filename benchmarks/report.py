"""The report of a measurement: tables for people, JSON for programs."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

from rich.console import Console
from rich.table import Table

from .growth import Growth
from .limits import Limit
from .rows import Row

_MET = {True: "yes", False: "NO", None: ""}
#: The width of tables in a file or a pipe, enough for all columns.
_PLAIN_WIDTH = 240


@dataclass
class Report:
    """All figures, with their place and time. `load_before` is the machine's load average."""

    started: str
    quick: bool
    runs: int
    machine: dict[str, object]
    load_before: float
    #: Version by server.
    servers: dict[str, str] = field(default_factory=dict)
    load_after: float = 0.0
    seconds: float = 0.0
    limits: list[Limit] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    #: By server.
    growth: dict[str, list[Growth]] = field(default_factory=dict)

    @property
    def missed(self) -> list[str]:
        """The workloads that did not reach their target."""
        return [row.full_name for row in self.rows if row.met is False]


def to_json(report: Report) -> str:
    return json.dumps({**asdict(report), "missed": report.missed}, indent=1) + "\n"


def show(report: Report, console: Console) -> None:
    """Print the tables, then the circumstances of the figures."""
    if not console.is_terminal:
        console.width = _PLAIN_WIDTH
    for table in (_rows(report), _growth(report), _limits(report)):
        if table.row_count:
            console.print(table)
    for line in _circumstances(report):
        console.print(line, highlight=False, soft_wrap=True)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", show_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index else "left", no_wrap=index == 0)
    return table


def _rows(report: Report) -> Table:
    table = _table(
        f"zkplan on {_versions(report)}: medians of {report.runs}"
        + (" (reduced sizes: the figures mean nothing)" if report.quick else ""),
        *(
            "workload",
            "server",
            "unit",
            "total",
            "execution",
            "submission",
            "values",
            "target total (execution)",
        ),
        *("met?", "conflicts", "refusals", "disturbance", "note"),
    )
    for row in report.rows:
        figures = (row.total, row.execution, row.submission, row.values)
        counts = (row.conflicts, row.refusals)
        table.add_row(
            row.name,
            row.server,
            row.unit,
            *(_number(value) for value in figures),
            row.target,
            _MET[row.met],
            *("" if count is None else f"{count:,}" for count in counts),
            "" if row.disturbance is None else f"{row.disturbance:.2f}",
            row.note,
        )
    return table


def _growth(report: Report) -> Table:
    table = _table(
        "growth: execution by the number of tasks pending after the measured ones",
        *(
            "pending",
            "server",
            "tasks/s",
            "submission tasks/s",
            "worker MiB (peak)",
            "waiter MiB (peak)",
        ),
        *("status() requests", "reads in them", "µs"),
    )
    for server, run in [(name, run) for name, runs in report.growth.items() for run in runs]:
        table.add_row(
            f"{run.pending:,.0f}",
            server,
            f"{run.rate:,.0f}",
            f"{run.submission_rate:,.0f}",
            f"{run.worker_mib:.1f} ({run.worker_peak_mib:.1f})",
            f"{run.waiter_mib:.1f} ({run.waiter_peak_mib:.1f})",
            f"{run.status_requests:.0f}",
            f"{run.status_reads:.0f}",
            f"{run.status_us:,.0f}",
        )
    return table


def _limits(report: Report) -> Table:
    table = _table(
        "limits of these servers, same run",
        *("what", "server", "client processes", "operations/s"),
    )
    for limit in report.limits:
        table.add_row(
            limit.what, limit.server, str(limit.clients), f"{limit.operations_per_s:,.0f}"
        )
    return table


def _circumstances(report: Report) -> list[str]:
    facts = ", ".join(f"{name} {value}" for name, value in report.machine.items())
    lines = [
        f"{report.started}: {facts}",
        f"took {report.seconds:.0f} s; load average before {report.load_before}, after "
        f"{report.load_after} (the measurement itself included)",
    ]
    if report.missed:
        lines.append("missed: " + "; ".join(report.missed))
    return lines


def _versions(report: Report) -> str:
    return ", ".join(f"{name} {version}" for name, version in report.servers.items())


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
