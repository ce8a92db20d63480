"""The report of a stress run: what it counts, what it shows, and when it has passed."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from zkplan.stress.harness import Report, Settings, takeovers
from zkplan.stress.history import Execution, Kill, StressHistory
from zkplan.stress.report import print_report, to_json
from zkplan.stress.validate.stress import Verdict

KEPT = Verdict("S3", "arguments were exactly the expected ones", [])
BROKEN = Verdict("S4", "committed tasks never ran again", [f"task {task}" for task in range(8)])
REPORT = Report(
    settings=Settings(tasks=50, seed=7, history=Path("h.jsonl")),
    edges=90,
    executions=53,
    kills=2,
    lost_sessions=0,
    takeovers=[4.0, 4.2, 5.0],
    submitted_s=0.5,
    elapsed_s=5.0,
    verdicts=[KEPT],
)


def shown(report: Report) -> str:
    text = io.StringIO()
    print_report(report, Console(file=text, width=120))
    return text.getvalue()


def test_a_report_has_passed_when_every_promise_was_kept_and_the_plan_ended() -> None:
    assert REPORT.passed
    assert not replace(REPORT, verdicts=[KEPT, BROKEN]).passed
    assert not replace(REPORT, problem="PlanFailed: t3").passed


def test_people_see_the_numbers_and_each_verdict() -> None:
    text = shown(REPORT)

    for wanted in (
        "50, 90 edges, seed 7",
        "53",
        "3, after 4.2 s (median), 5.0 s at most",
        "10 tasks/s",
    ):
        assert wanted in text
    assert "passed" in text
    assert "FAILED" not in text


def test_a_run_in_which_nobody_was_killed_though_that_was_asked_for_says_so() -> None:
    settings = replace(REPORT.settings, kill_every_s=5.0)
    assert "before the first kill" in shown(replace(REPORT, kills=0, settings=settings))
    assert "before the first kill" not in shown(replace(REPORT, settings=settings))
    assert "before the first kill" not in shown(replace(REPORT, kills=0))


def test_people_see_the_first_violations_of_a_kind_and_how_many_more() -> None:
    text = shown(replace(REPORT, verdicts=[BROKEN], problem="[after] 9 s"))

    assert "FAILED  committed tasks never ran again: task 4" in text
    assert "task 5" not in text
    assert "and 3 more like it" in text
    assert "FAILED  [after] 9 s" in text


def test_programs_get_everything_as_json() -> None:
    facts = json.loads(to_json(replace(REPORT, verdicts=[BROKEN])))

    assert (facts["executions"], facts["rate"], facts["passed"]) == (53, 10.0, False)
    assert facts["settings"]["history"] == "h.jsonl"
    assert facts["verdicts"][0]["violations"] == BROKEN.violations


def test_a_takeover_takes_from_the_kill_to_the_next_start_of_the_task(tmp_path: Path) -> None:
    history = StressHistory(tmp_path)
    history.executions = [
        Execution("a", "t3", 0, "w1", 17, began=1.0, digest=""),
        Execution("b", "t3", 1, "w2", 18, began=6.5, digest="", ended=7.0, value="v"),
    ]
    history.kills = [Kill(17, sent=2.0, reaped=2.1)]

    assert takeovers(history) == [pytest.approx(4.5)]
