"""`python -m zkplan.testing`: a ZooKeeper without Docker, for the first five minutes."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import zkplan
from tests.tools.support import first_line, run_python, started
from zkplan.testing import find_zookeeper
from zkplan.testing.server_process import free_port

pytestmark = pytest.mark.skipif(find_zookeeper() is None, reason="no Java or no ZooKeeper here")


@contextmanager
def served(port: int, *options: str) -> Iterator[subprocess.Popen[str]]:
    command = (sys.executable, "-m", "zkplan.testing", "--port", str(port), *options)
    with started(*command) as process:
        yield process
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


def test_the_server_prints_its_address_and_ends_on_ctrl_c() -> None:
    port = free_port()
    with served(port) as process:
        assert f"127.0.0.1:{port}" in first_line(process)
        with zkplan.connect(f"127.0.0.1:{port}") as client:
            client.create_plan("kept only while it runs")


def test_plans_in_a_given_folder_are_there_the_next_time(tmp_path: Path) -> None:
    port = free_port()
    with served(port, "--data", str(tmp_path / "data")) as process:
        assert "kept" in first_line(process)
        with zkplan.connect(f"127.0.0.1:{port}") as client:
            client.create_plan("kept")
    with served(port, "--data", str(tmp_path / "data")) as process:
        first_line(process)
        with zkplan.connect(f"127.0.0.1:{port}") as client:
            assert [plan.name for plan in client.plans()] == ["kept"]


def test_a_port_in_use_is_reported_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ran = run_python("-m", "zkplan.testing", "--port", port)
    assert ran.returncode == 2
    assert f"port {port}" in ran.stderr
    assert "is taken" in ran.stderr
