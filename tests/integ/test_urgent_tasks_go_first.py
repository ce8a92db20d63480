"""Tasks of a lost worker and tasks of high priority run before thousands of waiting tasks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.tools.support import (
    Here,
    WorkerProcess,
    note,
    notes,
    wait_for_notes,
    wait_until,
    working,
)
from zkplan import Client, Plan, TaskSpec, current

#: So many wait, each to run for so long. A worker listed what else is runnable when it had run half
#: of them, if it did so only when it has nothing left.
CROWD, SECONDS, THREADS = 2000, 0.05, 2
#: How many other tasks may run before an urgent one.
BEFORE = 700


def briefly(name: str, file: str) -> None:
    note(file, f"{name} {current().attempt}")
    threading.Event().wait(SECONDS)


def until_told(name: str, file: str) -> None:
    note(file, f"{name} {current().attempt}")
    wait_until(lambda: Path(f"{file}-told").exists(), "this task is told to end", 120.0)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    """Where tasks note that they begin; those that wait to be told are told at the end."""
    yield tmp_path / "notes"
    Path(f"{tmp_path / 'notes'}-told").touch()


@contextmanager
def held_and_crowd(client: Client, file: Path, held: int) -> Iterator[Plan]:
    """A ready plan of `held` tasks that wait to be told, and of a crowd; cancelled at the end."""
    plan = client.create_plan("crowd")
    plan.add_tasks(
        [
            *(TaskSpec(until_told, (f"held{number}", str(file))) for number in range(held)),
            *(TaskSpec(briefly, (f"t{number}", str(file))) for number in range(CROWD)),
        ]
    )
    plan.mark_ready()
    try:
        yield plan
    finally:
        plan.cancel()
        Path(f"{file}-told").touch()


def wait_for_those(file: Path, wanted: set[str], attempt: int = 0) -> None:
    """Wait until these have begun, with that attempt number or a larger one; fails when too many
    others have begun before.
    """
    there = len(notes(file))

    def all_have_begun() -> bool:
        runs = [line.split() for line in notes(file)]
        missing = wanted - {name for name, n in runs if int(n) >= attempt}
        assert not missing or len(runs) < there + BEFORE, f"hundreds went before {missing}"
        return not missing

    wait_until(all_have_begun, f"{wanted} have begun", 90.0)


def test_tasks_of_a_killed_worker_run_before_waiting_tasks(
    zkplan_client: Client, here: Here, file: Path
) -> None:
    options = ("--threads", str(THREADS), "--session-timeout", "2")
    given = (*here, file.parent / "logs", *options)
    with held_and_crowd(zkplan_client, file, held=THREADS), WorkerProcess(*given) as lost:
        wait_for_notes(file, THREADS)
        with WorkerProcess(*given):
            wait_for_notes(file, 50)
            lost.process.end(0)
            wait_for_those(file, {f"held{number}" for number in range(THREADS)}, attempt=1)


def test_a_new_task_of_high_priority_runs_before_waiting_tasks(
    zkplan_client: Client, here: Here, file: Path
) -> None:
    """Also the one that a worker prefers which has no free slot."""
    with working(*here, 1), held_and_crowd(zkplan_client, file, held=1) as plan:
        wait_for_notes(file, 1)
        with working(*here, THREADS):
            wait_for_notes(file, 50)
            # One after the other, so each of the two workers prefers one of them.
            for number in range(2):
                plan.add_task(briefly, (f"urgent{number}", str(file)), priority=1)
            wait_for_those(file, {"urgent0", "urgent1"})
            Path(f"{file}-told").touch()
