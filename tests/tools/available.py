"""What a test needs of this machine: without it the test is skipped, and in CI it fails."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Any, NoReturn

import pytest

from zkplan.testing import find_java, find_zookeeper
from zkplan.testing.server_process import EmbeddedServerProcess, ServerProcess
from zkplan.testing.servers import ZooKeeperServer


def skip_without(kind: str) -> None:
    """Skip the test (where CI is set, fail) if no server of that kind can be started here."""
    if kind != "embedded" and (find_java() is None or find_zookeeper() is None):
        not_available("no ZooKeeper is installed here")


def one_server(kind: str, **options: Any) -> ServerProcess:
    """One server of that kind, with those options, not started yet; else as `skip_without`."""
    skip_without(kind)
    return EmbeddedServerProcess(**options) if kind == "embedded" else ZooKeeperServer(**options)


def require_strace() -> None:
    """Skip the test, or fail it in CI, where there is no strace that may trace."""
    if shutil.which("strace") is None:
        not_available("strace is missing (Debian, Ubuntu: apt-get install strace)")
    tried = subprocess.run(["strace", "-qq", "-o", os.devnull, "true"], capture_output=True)
    if tried.returncode != 0:
        not_available(f"strace may not trace here: {tried.stderr.decode().strip()}")


def not_available(reason: str) -> NoReturn:
    """A skip here would say in CI that all is well, so there it is a failure."""
    if os.environ.get("CI"):
        pytest.fail(f"{reason} (a failure, not a skip, because CI is set)", pytrace=False)
    pytest.skip(reason)
