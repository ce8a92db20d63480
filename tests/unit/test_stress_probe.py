"""What a task of a stress run notices: that somebody else runs it, and that it is in no worker."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from zkplan.errors import ZkplanError
from zkplan.stress.locks import TaskLocks, locks_here
from zkplan.stress.probe import run_task
from zkplan.stress.workload import digest_of

#: Holds the lock of a task, tells whether nobody else held it, and keeps it until its input ends.
HOLDER = """
import sys
from zkplan.stress.locks import TaskLocks
with TaskLocks(sys.argv[1]).hold(int(sys.argv[2])) as alone:
    sys.stdout.write(f"{alone}\\n")
    sys.stdout.flush()
    sys.stdin.read()
"""


@contextmanager
def another_process(folder: Path, task: int) -> Iterator[tuple[subprocess.Popen[str], bool]]:
    """A process that has tried to hold the task's lock, and whether nobody else held it."""
    command = [sys.executable, "-c", HOLDER, str(folder), str(task)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield process, {"True\n": True, "False\n": False}[process.stdout.readline()]


@pytest.fixture
def locks(tmp_path: Path) -> TaskLocks:
    return TaskLocks(str(tmp_path))


def test_a_task_that_a_thread_runs_is_noticed_until_it_ends(locks: TaskLocks) -> None:
    with locks.hold(3) as first, locks.hold(3) as second:
        assert (first, second) == (True, False)
    with locks.hold(3) as third:
        assert third


def test_one_that_noticed_takes_nothing_from_the_one_that_runs(locks: TaskLocks) -> None:
    with locks.hold(3):
        with locks.hold(3):
            pass
        with locks.hold(3) as again:
            assert not again


def test_other_tasks_run_at_the_same_time(locks: TaskLocks) -> None:
    with locks.hold(3) as first, locks.hold(4) as second:
        assert first
        assert second


def test_a_task_that_another_process_runs_is_noticed_until_it_is_killed(
    tmp_path: Path, locks: TaskLocks
) -> None:
    with another_process(tmp_path, 3) as (process, alone):
        assert alone
        with locks.hold(3) as here, locks.hold(4) as beside:
            assert (here, beside) == (False, True)
        process.kill()
        process.wait()
        with locks.hold(3) as here:
            assert here


def test_another_process_notices_a_task_that_runs_here(tmp_path: Path, locks: TaskLocks) -> None:
    with locks.hold(4):
        with locks.hold(3), another_process(tmp_path, 3) as (_, alone):
            assert not alone
        with another_process(tmp_path, 3) as (_, alone):
            assert alone
        with another_process(tmp_path, 4) as (_, alone):
            assert not alone


def test_a_process_has_one_file_of_locks_for_each_folder(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()

    assert locks_here(str(tmp_path)) is locks_here(str(tmp_path))
    with locks_here(str(tmp_path)).hold(3), locks_here(str(tmp_path / "other")).hold(3) as alone:
        assert alone


def test_the_task_refuses_to_run_outside_of_a_worker(tmp_path: Path) -> None:
    with pytest.raises(ZkplanError, match="inside a task"):
        run_task(0, {}, expected=digest_of({}), folder=str(tmp_path), sleep_s=0)
