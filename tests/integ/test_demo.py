"""The demonstration as a person runs it: exit codes, what it says, and that nothing is left."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from .support import plain_client, started, zkplan_command

DEMO = [sys.executable, "-m", "zkplan", "demo"]
DEADLINE_S = 100.0


def run_demo(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return zkplan_command("demo", *arguments, env=environment)


def demo_roots(hosts: str) -> set[str]:
    """The roots of demonstrations that ZooKeeper holds."""
    with plain_client(hosts) as client:
        return {name for name in client.get_children("/") if name.startswith("zkplan-demo-")}


def is_running(pid: int) -> bool:
    """Whether the process exists; one that has ended and is not yet reaped does not count."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


@pytest.mark.slow
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


@pytest.mark.slow
def test_without_a_kill_every_task_is_executed_once(zookeeper_hosts: str) -> None:
    done = run_demo("--hosts", zookeeper_hosts, "--no-kill", "--workers", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^Executed  \d+ tasks once$", done.stdout, re.MULTILINE), done.stdout
    assert "0 workers killed" in done.stdout


@pytest.mark.slow
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


@pytest.mark.slow
def test_it_needs_python_only(tmp_path: Path) -> None:
    """No Java, no Docker, no ZooKeeper: a folder without programs stands for such a machine."""
    (tmp_path / "sh").symlink_to("/bin/sh")
    environment = {
        key: value
        for key, value in os.environ.items()
        if key not in ("ZKPLAN_TEST_HOSTS", "ZKPLAN_HOSTS", "JAVA_HOME", "ZOOKEEPER_HOME")
    }
    environment |= {"PATH": str(tmp_path), "DOCKER_HOST": "tcp://127.0.0.1:1"}
    done = subprocess.run(
        [*DEMO, "--no-kill", "--workers", "2"],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^Server +of zkplan's own, at 127", done.stdout, re.MULTILINE)
    assert done.stderr == ""
