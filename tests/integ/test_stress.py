"""A stress run keeps every promise on a real ZooKeeper, with and without kills."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.tools.support import zkplan_command
from zkplan.basics.settings import Settings as Connecting
from zkplan.testing.server_process import free_port
from zkplan.testing.stress_run import Report, StressSettings, run
from zkplan.testing.stress_tasks import StressHistory


def require_passed(report: Report) -> None:
    broken = {
        verdict.promise: verdict.violations for verdict in report.verdicts if not verdict.passed
    }
    assert (report.problem, broken) == ("", {})


def stress(*arguments: str) -> subprocess.CompletedProcess[str]:
    return zkplan_command("stress", "--workers", "2", *arguments)


@pytest.mark.parametrize("supervised", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.slow
def test_a_random_graph_keeps_every_promise_while_workers_are_killed(
    supervised: bool, zookeeper_hosts: str, tmp_path: Path
) -> None:
    settings = StressSettings(
        workers=4,
        tasks=24,
        deps=2,
        # So long that somebody may hold up this process for seconds before the second kill.
        sleep_s=0.6,
        seed=2,
        kill_every_s=1.0,
        supervised=supervised,
        # So long that who had to wait for the end of a session would not end in time.
        session_timeout_s=100.0 if supervised else 2.0,
        timeout_s=90,
        history=tmp_path / "history.jsonl",
    )
    report = run(Connecting(hosts=zookeeper_hosts), settings)
    require_passed(report)
    assert report.kills >= 2
    history = StressHistory(tmp_path / "history.jsonl")
    history.read()
    assert len(history.executions) == report.executions
    assert len(history.kills) == report.kills


def test_the_stress_command_reports_its_findings_as_json(zookeeper_hosts: str) -> None:
    ended = stress("--tasks", "5", "--sleep", "0", "--hosts", zookeeper_hosts, "-o", "json")
    assert ended.returncode == 0, ended.stderr
    facts = json.loads(ended.stdout)
    assert (facts["passed"], facts["executions"]) == (True, 5)


def test_a_stress_run_that_times_out_ends_with_code_4_and_says_what_was_left(
    zookeeper_hosts: str,
) -> None:
    ended = stress(
        *("--tasks", "6", "--deps", "1", "--sleep", "3", "--timeout", "1"),
        *("--hosts", zookeeper_hosts),
    )
    assert ended.returncode == 4, ended.stderr
    assert "tasks were left" in " ".join(ended.stdout.split())


def test_an_unanswering_zookeeper_ends_the_stress_command_with_code_3() -> None:
    ended = stress("--hosts", f"127.0.0.1:{free_port()}", "--connect-timeout", "1")
    assert ended.returncode == 3
    assert "ZooKeeper" in ended.stderr
