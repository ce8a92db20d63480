"""Show the report of a stress run: as tables for people, as JSON for programs."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from statistics import median

from rich.console import Console
from rich.table import Table

from .harness import Report

_VIOLATIONS_SHOWN = 5


def to_json(report: Report) -> str:
    """The report as data for programs; times in seconds."""
    facts = asdict(replace(report, verdicts=[]))
    facts["settings"]["history"] = str(report.settings.history or "") or None
    facts["verdicts"] = [each._asdict() | {"passed": each.passed} for each in report.verdicts]
    return json.dumps({**facts, "rate": report.rate, "passed": report.passed}, indent=2)


def print_report(report: Report, console: Console) -> None:
    """The report as tables for people, then each violation (the first ones of a kind)."""
    settings = report.settings
    facts = Table(show_header=False, box=None)
    manner = " of one command" if settings.supervised else ""
    facts.add_row(
        "workers", f"{settings.workers} processes{manner}, threads in each: {settings.threads}"
    )
    facts.add_row("tasks", f"{settings.tasks}, {report.edges} edges, seed {settings.seed}")
    facts.add_row("executions", str(report.executions))
    facts.add_row("workers killed", _kills(report))
    facts.add_row("sessions lost", f"{report.lost_sessions} (not counting killed workers)")
    facts.add_row("takeovers", _takeovers(report.takeovers))
    facts.add_row("elapsed", f"{report.elapsed_s:.2f} s, submission {report.submitted_s:.2f} s")
    facts.add_row("rate", f"{report.rate:.0f} tasks/s")
    console.print(facts)
    checks = Table("invariant", "check", "verdict")
    for verdict in report.verdicts:
        passed = "[green]passed[/]" if verdict.passed else "[bold red]FAILED[/]"
        checks.add_row(verdict.invariant, verdict.promise, passed)
    console.print(checks)
    for verdict in report.verdicts:
        for violation in verdict.violations[:_VIOLATIONS_SHOWN]:
            console.print(f"FAILED  {verdict.promise}: {violation}", markup=False, style="red")
        more = len(verdict.violations) - _VIOLATIONS_SHOWN
        if more > 0:
            console.print(f"        and {more} more like it", style="red")
    if report.problem:
        console.print(f"FAILED  {report.problem}", markup=False, style="red")


def _kills(report: Report) -> str:
    if report.kills or not report.settings.kill_every_s:
        return str(report.kills)
    return "none: it was over before the first kill; take more tasks, or a smaller --kill-every"


def _takeovers(seconds: list[float]) -> str:
    if not seconds:
        return "none"
    return f"{len(seconds)}, after {median(seconds):.1f} s (median), {seconds[-1]:.1f} s at most"
