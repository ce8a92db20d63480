"""The demonstration as a person runs it: its exit codes and output, and that nothing is left."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.support import is_running, plain_client, started, zkplan_command

DEMO = [sys.executable, "-m", "zkplan", "demo"]
DEADLINE_S = 100.0


def run_demo(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return zkplan_command("demo", *arguments, env=environment)


def demo_roots(hosts: str) -> set[str]:
    """The roots of demonstrations that ZooKeeper holds."""
    with plain_client(hosts) as client:
        return {name for name in client.get_children("/") if name.startswith("zkplan-demo-")}


def test_a_killed_workers_tasks_are_taken_over_and_the_result_is_identical(
    zookeeper_hosts: str, tmp_path: Path
) -> None:
    before = demo_roots(zookeeper_hosts)
    done = run_demo("--hosts", zookeeper_hosts, TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    held = re.search(r"^Killed .* it held (.+)$", done.stdout, re.MULTILINE)
    assert held, done.stdout
    assert re.search(r"^Took over .+ after \d+\.\d s: ", done.stdout, re.MULTILINE), done.stdout
    assert "Largest modules" in done.stdout
    assert "1 worker killed, every result committed once, identical" in done.stdout
    assert "Traceback" not in done.stderr
    assert demo_roots(zookeeper_hosts) <= before
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_demonstration_leaves_nothing_behind(
    zookeeper_hosts: str, tmp_path: Path
) -> None:
    before = demo_roots(zookeeper_hosts)
    environment = os.environ | {"TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    with started(*DEMO, "--hosts", zookeeper_hosts, env=environment) as demo:
        assert demo.stdout is not None
        said = ""
        for line in demo.stdout:
            said += line
            if line.startswith("Started"):
                break
        demo.send_signal(signal.SIGINT)
        _, errors = demo.communicate(timeout=DEADLINE_S)
    workers = [int(pid) for pid in re.findall(r"\(pid (\d+)\)", said)]
    assert demo.returncode == 130, said + errors
    assert len(workers) == 3
    assert not [pid for pid in workers if is_running(pid)]
    assert demo_roots(zookeeper_hosts) <= before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("bare_machine")
@pytest.mark.slow
def test_the_demonstration_needs_only_python(tmp_path: Path) -> None:
    """No Java, no Docker, no ZooKeeper: a folder without programs stands for such a machine."""
    (tmp_path / "sh").symlink_to("/bin/sh")
    done = run_demo("--no-kill", "--workers", "2", PATH=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^Server +of zkplan's own, at 127", done.stdout, re.MULTILINE)
    assert re.search(r"^Executed  \d+ tasks once$", done.stdout, re.MULTILINE), done.stdout
    assert "0 workers killed" in done.stdout
    assert done.stderr == ""
