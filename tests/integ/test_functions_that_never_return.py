"""Functions that time out and never return cost a bounded number of threads."""

from __future__ import annotations

import dataclasses
import importlib
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

import zkplan
from tests.tools.support import (
    Here,
    Run,
    Told,
    WorkerProcess,
    is_running,
    note,
    notes,
    wait_for_notes,
    wait_until,
    working,
)
from zkplan import Client

THREADS = 2


def hang(file: str, gate: str) -> None:
    """Return only once the gate is open, whatever the worker thinks of that."""
    note(file, "began")
    while not Path(gate).exists():
        threading.Event().wait(0.05)


def slots(before: set[threading.Thread]) -> int:
    made = set(threading.enumerate()) - before
    return sum(thread.name.startswith("zkplan-slot") for thread in made)


def test_hung_threads_are_bounded_and_logged_and_other_workers_get_the_tasks(
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


def test_abandoned_functions_are_shown_until_they_return(
    zkplan_client: Client, here: Here, run: Run, tmp_path: Path
) -> None:
    """A worker whose threads they hold is not idle."""
    file, gate = tmp_path / "began", tmp_path / "gate"

    def shown() -> tuple[int, int]:
        (row,) = run("worker", "ls", "-o", "json").data
        return row["busy"], row["abandoned"]

    with working(*here, THREADS, session_timeout=2.0) as worker:
        with zkplan_client.create_plan("cancelled") as plan:
            task = plan.add_task(hang, [str(file), str(gate)])
        wait_for_notes(file, 1)
        task.cancel()
        wait_until(lambda: shown() == (0, 1), "the function of the cancelled task is shown")
        assert worker._loop.vitals().abandoned == 1
        assert "ABANDONED" in run("top", "--once").out
        with zkplan_client.create_plan("timed out", timeout=0.2, attempts=1) as plan:
            plan.add_tasks([zkplan.TaskSpec(hang, [str(file), str(gate)])] * 2 * THREADS)
        wait_until(lambda: shown()[1] >= 2 * THREADS, "those that timed out are shown")
        with zkplan_client.create_plan("waits") as plan:
            task = plan.add_task(len, ["abc"])
        wait_until(lambda: "given up and have not returned" in str(task.why()), "why says so")
        gate.touch()
        assert task.result(30) == 3
        wait_until(lambda: shown() == (0, 0), "they have returned")


#: Imports nothing of tests: a process of a task, which begins with it, must not take long for that.
HANGING = """
import os, threading

def hang(file, gate):
    with open(file, "a") as told:
        told.write(f"{os.getpid()}\\n")
    while not os.path.exists(gate):
        threading.Event().wait(0.05)
"""


class Slow:
    """An argument whose unpickling returns only once the gate is open."""

    def __init__(self, hangs: Any, *given: str) -> None:
        self.made = hangs, given

    def __reduce__(self) -> Any:
        return self.made


@pytest.fixture
def opened_at_last(tmp_path: Path) -> Iterator[None]:
    """Lets what hangs go on, also where the test fails: an import that hangs holds its lock."""
    yield
    (tmp_path / "gate").touch()
    for name in ("slow_to_import", "hanging"):
        sys.modules.pop(name, None)


def hanging_in(phase: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> zkplan.TaskSpec:
    """A task that hangs in that phase until the gate is open, and notes its process."""
    given = [str(folder / name) for name in ("began", "gate")]
    (folder / "hanging.py").write_text(HANGING)
    (folder / "slow_to_import.py").write_text(
        f"import hanging\ndef work(): return 7\nhanging.hang(*{given})\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    (folder / "gate").touch()
    hangs = importlib.import_module("hanging").hang
    work = importlib.import_module("slow_to_import").work
    for name in ("gate", "began"):
        (folder / name).unlink()
    return (
        zkplan.TaskSpec(len, [Slow(hangs, *given)]) if "decod" in phase else zkplan.TaskSpec(work)
    )


@pytest.mark.usefixtures("opened_at_last")
@pytest.mark.parametrize(
    "isolation",
    [
        "thread",
        pytest.param(
            "process",
            marks=pytest.mark.skipif(sys.platform != "linux", reason="they need Linux"),
        ),
    ],
)
@pytest.mark.parametrize("phase", ["decoding its arguments", "importing its function"])
def test_a_hung_decoding_or_import_costs_an_attempt_and_frees_its_slot(
    phase: str,
    isolation: Literal["thread", "process"],
    zkplan_client: Client,
    here: Here,
    tmp_path: Path,
    told: Told,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = hanging_in(phase, tmp_path, monkeypatch)
    plan = zkplan_client.create_plan("hangs", attempts=2, retry_delay=0, timeout=0.5)
    (task,) = plan.add_tasks([dataclasses.replace(spec, isolation=isolation)])
    after = plan.add_task(abs, [-1])
    for name in ("slow_to_import", "hanging"):
        sys.modules.pop(name)  # a worker imports it anew
    plan.mark_ready()
    with working(*here, 1) as worker:
        told("is out of attempts: TimeoutError: " + phase)
        with pytest.raises(zkplan.TaskFailed, match=f"{phase} took longer than its time-out"):
            task.result(10)
        (letter,) = [letter for _, letter in plan.dead()]
        assert letter.a == 2
        hung = [int(line) for line in notes(tmp_path / "began")]
        if isolation == "process":
            assert os.getpid() not in hung
            assert len(hung) == 2
            wait_until(lambda: not any(map(is_running, hung)), "the processes have ended")
        else:
            # A second thread waits for the import that hangs, and begins none.
            assert {*hung} == {os.getpid()}
        (tmp_path / "gate").touch()  # what hung goes on, and nobody calls the function
        assert after.result(10) == 1
        assert worker.statistics().committed == 1
    plan.remove()


def test_another_worker_runs_the_tasks_of_a_worker_with_hung_threads(
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


def test_worker_statistics_are_a_snapshot(zkplan_client: Client, worker: zkplan.Worker) -> None:
    before = worker.statistics()
    with zkplan_client.create_plan() as plan:
        plan.add_task(abs, [-1])
    plan.wait(30)
    wait_until(lambda: worker.statistics().committed == 1, "it is counted")
    assert (before.executed, before.committed) == (0, 0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        before.executed = 1  # type: ignore[misc]


def test_a_worker_with_too_many_hung_threads_ends(
    zkplan_client: Client, here: Here, tmp_path: Path, told: Told
) -> None:
    file, gate = tmp_path / "began", tmp_path / "gate"
    with zkplan_client.create_plan("hangs", attempts=1) as plan:
        plan.add_task(hang, [str(file), str(gate)], timeout=0.2)
    with zkplan.connect(here[0], here[1]) as client:
        worker = zkplan.Worker(client, threads=2, max_abandoned=1)
        worker.run()  # returns by itself
        assert worker.is_worn_out
    told("the limit (max_abandoned)")
    assert zkplan_client.workers() == []
    gate.touch()
    with pytest.raises(zkplan.ZkplanError, match="max_abandoned"):
        zkplan.Worker(zkplan_client, max_abandoned=0)


@pytest.mark.slow
def test_a_process_with_too_many_hung_threads_is_replaced(
    zkplan_client: Client, here: Here, tmp_path: Path
) -> None:
    file, gate = tmp_path / "began", tmp_path / "gate"
    options = ("--processes", "2", "--threads", "1")
    with WorkerProcess(*here, tmp_path, *options) as command:
        # On a busy machine the import alone may take longer, and such a thread comes free.
        with zkplan_client.create_plan("hangs", attempts=3, retry_delay=0) as plan:
            plan.add_task(hang, [str(file), str(gate)], timeout=2)
        wait_until(lambda: command.said("ended with 1; it is replaced"), "it is replaced")
        assert command.said("the limit (max_abandoned)")
        wait_until(lambda: len(zkplan_client.workers()) == 2, "there are two again")
