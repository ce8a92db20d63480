"""Functions that run past their time-out and do not return: they cost threads, within a bound."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path

import pytest

import zkplan
from zkplan import Client

from .support import Here, Told, note, notes, wait_for_notes, wait_until, working

THREADS = 2


def hang(file: str, gate: str) -> None:
    """Return only once the gate is open, whatever the worker thinks of that."""
    note(file, "began")
    while not Path(gate).exists():
        threading.Event().wait(0.05)


def slots(before: set[threading.Thread]) -> int:
    made = set(threading.enumerate()) - before
    return sum(thread.name.startswith("zkplan-slot") for thread in made)


def test_hung_threads_are_bounded_told_of_and_leave_their_tasks_to_others(
    zkplan_client: Client, here: Here, tmp_path: Path, told: Told
) -> None:
    file, gate, before = tmp_path / "began", tmp_path / "gate", set(threading.enumerate())
    with working(*here, THREADS) as worker:
        plan = zkplan_client.create_plan("hangs", attempts=1, timeout=0.2)
        for _ in range(12):
            plan.add_task(hang, [str(file), str(gate)])
        plan.mark_ready()
        told("claims and runs nothing")
        told("runs fewer tasks at a time")
        wait_until(lambda: zkplan_client.workers()[0].claims == 0, "it holds nothing")
        assert len(notes(file)) == 2 * THREADS
        assert worker.statistics().written_off == 2 * THREADS
        assert slots(before) == 2 * THREADS
        gate.touch()  # all of them return, and what is left runs
        wait_for_notes(file, 12)
        wait_until(lambda: plan.status().runnable == 0, "the others run here")
        wait_until(lambda: slots(before) <= THREADS, "the threads of the hung functions have ended")
        assert plan.status().dead == 2 * THREADS
    plan.remove()


def test_a_neighbour_runs_what_a_worker_with_hung_threads_leaves(
    zkplan_client: Client, here: Here, tmp_path: Path, told: Told
) -> None:
    file, gate = tmp_path / "began", tmp_path / "gate"
    with working(*here, 1):
        plan = zkplan_client.create_plan("hangs", attempts=1, timeout=0.2)
        plan.add_tasks([zkplan.TaskSpec(hang, [str(file), str(gate)]) for _ in range(2)])
        plan.mark_ready()
        told("claims and runs nothing")
        with working(*here, 1):
            with zkplan_client.create_plan() as other:
                made = other.add_tasks([zkplan.TaskSpec(abs, [-number]) for number in range(20)])
            assert [task.result(30) for task in made] == list(range(20))
        gate.touch()
    plan.remove()


def test_statistics_are_a_snapshot(zkplan_client: Client, worker: zkplan.Worker) -> None:
    before = worker.statistics()
    with zkplan_client.create_plan() as plan:
        plan.add_task(abs, [-1])
    plan.wait(30)
    wait_until(lambda: worker.statistics().committed == 1, "it is counted")
    assert (before.executed, before.committed) == (0, 0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        before.executed = 1  # type: ignore[misc]
