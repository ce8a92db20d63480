"""Processes that are watched: what may happen to one between two looks at it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from zkplan.processes.watched import WatchedProcess


def test_a_process_that_ends_while_it_is_paused_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread looks whether it runs, and so takes its end from the one that waits."""
    process = WatchedProcess(["/bin/sleep", "60"], tmp_path / "log")
    running = process.is_running

    def ends_meanwhile() -> bool:
        ran = running()
        process.end(0)
        return ran

    monkeypatch.setattr(process, "is_running", ends_meanwhile)
    process.pause()
    assert not running()


STARTS_ONE_THAT_ENDS = """
import os, sys
from pathlib import Path
from zkplan.processes.watched import WatchedProcess
process = WatchedProcess(["/bin/true"], Path(sys.argv[1]))
{sees_its_end}
try:
    os.waitpid(-1, 0)
except ChildProcessError:
    os._exit(0)
"""


@pytest.mark.parametrize("sees", ["process.wait_ended(30)", "while process.is_running(): pass"])
def test_what_was_seen_to_have_ended_is_watched_no_longer(tmp_path: Path, sees: str) -> None:
    """When its starter ends, the watcher would kill whoever has that process id by then."""
    program = STARTS_ONE_THAT_ENDS.replace("{sees_its_end}", sees)
    command = [sys.executable, "-c", program, str(tmp_path / "log")]
    # With a child left, it waits for that.
    assert subprocess.run(command, timeout=30, check=False).returncode == 0


@pytest.mark.parametrize("has_waitid", [True, False])
def test_a_paused_process_stands_still_until_it_is_resumed(
    has_waitid: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """macOS has no waitid."""
    if not has_waitid:
        monkeypatch.delattr(os, "waitid")
    process = WatchedProcess(["/bin/sh", "-c", "sleep 0.1; exit 3"], tmp_path / "log")
    process.pause()
    assert process.is_running()
    assert not process.wait_ended(0.5)
    process.resume()
    assert process.wait_ended(30)
    assert process.exit_code == 3
