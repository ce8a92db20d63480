"""The README's five minutes: a worker process, the example, and the output that is promised."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from .support import TOP, WorkerProcess

EXAMPLE = TOP / "examples" / "five_minutes.py"


@pytest.fixture
def chroot(zookeeper_hosts: str, zkplan_root: str, znodes: KazooClient) -> str:
    """A connection string under which /zkplan, the example's root, is of this test alone."""
    znodes.create(zkplan_root)
    return zookeeper_hosts + zkplan_root


def test_the_five_minutes_print_what_the_readme_says(chroot: str, tmp_path: Path) -> None:
    shown = re.search(r"It prints `(.+?)`\.", (TOP / "README.md").read_text(encoding="utf-8"))
    assert shown is not None
    with WorkerProcess(chroot, "/zkplan", tmp_path) as worker:
        worker.wait_ready()
        example = subprocess.run(
            [sys.executable, str(EXAMPLE)],
            env={**os.environ, "ZKPLAN_HOSTS": chroot, "PYTHONPATH": str(TOP)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert example.returncode == 0, example.stderr
    assert example.stdout == f"{shown[1]}\n"
