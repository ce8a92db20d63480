"""A task in its own process may die in any way, at the cost of one attempt of only this task."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import zkplan
from tests.tools.stores import Place
from tests.tools.support import (
    Here,
    Told,
    WorkerProcess,
    is_running,
    notes,
    wait_for_notes,
    wait_until,
    working,
)
from zkplan import Client
from zkplan.errors import TaskFailed
from zkplan.runtime import isolation_processes as processes
from zkplan.runtime.isolation_processes import PROCESSES_MAX

from .tasks_of_processes import (
    be_near,
    daemon,
    daemon_and_hang,
    in_the_loop,
    speak,
    turned,
    use_everything,
    wait_for_the_end,
)
from .ways_to_die import (
    TOLD,
    ask_for_too_much,
    die_first,
    eat_memory,
    fork_bomb,
    fork_bomb_of_sessions,
    leave,
    loop_in_c,
    segfault,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes of tasks need Linux")


@contextmanager
def isolating(here: Here, threads: int = 2, **options: Any) -> Iterator[zkplan.Worker]:
    """A worker of this process whose tasks have processes of their own."""
    with working(*here, threads, of_worker={"isolation": "process", **options}) as worker:
        yield worker


# ---- deaths


@pytest.mark.parametrize(
    ("ways", "processes_max"),
    [
        ([segfault, leave, eat_memory, ask_for_too_much, loop_in_c], PROCESSES_MAX),
        ([fork_bomb], 60),
        pytest.param([fork_bomb], PROCESSES_MAX, marks=pytest.mark.slow),
        pytest.param([fork_bomb_of_sessions], PROCESSES_MAX, marks=pytest.mark.slow),
    ],
    ids=["all but fork bombs", "small fork bomb", "fork bomb", "fork bomb of sessions"],
)
def test_each_death_costs_only_its_own_task_one_attempt(
    ways: list[Callable[[], None]],
    processes_max: int,
    zkplan_client: Client,
    here: Here,
    tmp_path: Path,
    told: Told,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.INFO, "zkplan")
    monkeypatch.setattr(processes, "PROCESSES_MAX", processes_max)
    near, gate = str(tmp_path / "near"), str(tmp_path / "gate")
    with isolating(here) as worker:
        name, session = worker.id, worker.client.transport.client.client_id
        with zkplan_client.create_plan(attempts=2, retry_delay=0) as plan:
            neighbour = plan.add_task(be_near, [near, gate])
            victims = {
                way: plan.add_task(
                    die_first,
                    [str(tmp_path / way.__name__), way.__name__],
                    timeout=2.0 if way is loop_in_c else None,
                    memory_limit="2GB" if "fork_bomb" in way.__name__ else "200MB",
                    keep=True,
                )
                for way in ways
            }
        for way, victim in victims.items():
            assert victim.result(40) == "survived"
            attempts = notes(tmp_path / way.__name__)
            assert len(attempts) == 2
            assert way is ask_for_too_much or not is_running(int(attempts[0]))
            told(TOLD[way])
        Path(gate).touch()
        assert neighbour.result(20) == 1  # it is in its first attempt
        assert (worker.id, worker.client.transport.client.client_id) == (name, session)
        assert worker.statistics().failed == len(ways)


def test_the_failure_of_a_task_that_dies_each_time_says_how_it_died(
    zkplan_client: Client, here: Here
) -> None:
    with isolating(here):
        with zkplan_client.create_plan(attempts=1) as plan:
            task = plan.add_task(segfault, name="fragile")
        with pytest.raises(TaskFailed, match=r"fragile.*killed by SIGSEGV"):
            task.result(30)


# ---- what it leaves behind


@pytest.mark.parametrize("function", [daemon, daemon_and_hang])
def test_processes_that_a_task_leaves_behind_end_with_the_task(
    function: Any, zkplan_client: Client, here: Here, tmp_path: Path
) -> None:
    file = str(tmp_path / "pids")
    with isolating(here, 1):
        with zkplan_client.create_plan(attempts=1) as plan:
            plan.add_task(function, [file], timeout=3.0)
        wait_for_notes(file, 2)
        started = [int(line) for line in notes(file)]
        wait_until(lambda: not any(map(is_running, started)), "all of them have ended")
        # The slot is free at once, and has another process.
        with zkplan_client.create_plan() as plan:
            other = plan.add_task(os.getpid)
        assert other.result(20) not in started


def test_processes_of_tasks_end_when_their_worker_is_killed(
    zkplan_client: Client, here: Here, tmp_path: Path
) -> None:
    file = str(tmp_path / "pids")
    options = ["--threads", "1", "--isolation", "process", "--memory-limit", "300MB"]
    with WorkerProcess(*here, tmp_path / "log", *options) as worker:
        with zkplan_client.create_plan() as plan:
            plan.add_task(daemon_and_hang, [file])
        wait_for_notes(file, 2)
        assert worker.said("with at most 300 MB of memory")
        worker.process.end(0)
        started = [int(line) for line in notes(file)]
        wait_until(lambda: not any(map(is_running, started)), "they have ended with it")
    plan.remove()


# ---- what works in it


def test_output_and_logs_of_a_child_reach_the_log_with_plan_and_task(
    zkplan_client: Client, here: Here, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "task")
    with isolating(here, 1):
        with zkplan_client.create_plan() as plan:
            task = plan.add_task(speak, name="speaker", keep=True)
        task.result(20)
    said = [record.getMessage() for record in caplog.records if record.name == "task"]
    start = f"{plan.path} speaker: "
    assert all(line.startswith(start) and len(line) < 2100 for line in said)
    text = "\n".join(line.removeprefix(start) for line in said)
    assert text.startswith("first\nINFO forged: second")
    assert "WARNING mine: third" in text
    assert "fourth \\x1b[2J" in text


def test_current_works_in_a_child_except_for_calls_that_need_a_connection(
    zkplan_client: Client, here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZKPLAN_PROFILE_OF_A_TEST", "hidden")
    file = tmp_path / "grown"
    with isolating(here) as worker:
        with zkplan_client.create_plan(retry_delay=0, attempts=2) as plan:
            task = plan.add_task(use_everything, [str(file)], name="all of it", keep=True)
        attempt, name, its_worker, logs, cancelled, hidden, error = task.result(30)
        assert (attempt, name, its_worker) == (1, "all of it", worker.id)
        assert (logs, cancelled, hidden) == ([{"step": 1}], False, [])
        assert "isolation=" in error
        plan.wait(20)
    assert "3" in notes(file)
    assert any("all of it" in line for line in notes(file))


def test_a_child_is_notified_that_its_plan_was_cancelled(
    zkplan_client: Client, here: Here, tmp_path: Path
) -> None:
    file = tmp_path / "told"
    with isolating(here, 1) as worker:
        with zkplan_client.create_plan() as plan:
            plan.add_task(wait_for_the_end, [str(file)])
        wait_for_notes(file, 1)
        plan.cancel()
        wait_for_notes(file, 2)
        wait_until(lambda: zkplan_client.workers()[0].claims == 0, "the claim is gone")
        assert worker.statistics().failed == 0


def test_values_of_50_MB_pass_through_a_child_and_a_store(here: Here, tmp_path: Path) -> None:
    place = Place(here, tmp_path / "store", inline_limit=1000)
    value = os.urandom(1000) * 50_000
    of_worker = {"isolation": "process"}
    with place.working(threads=1, of_worker=of_worker), place.client() as client:
        with client.create_plan() as plan:
            once = plan.add_task(turned, [value])
            twice = plan.add_task(turned, [once], keep=True)
        assert twice.result(60) == value


def test_the_isolation_option_of_a_task_beats_that_of_its_worker(
    zkplan_client: Client, here: Here, told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "zkplan.worker")
    with isolating(here, 1), zkplan_client.create_plan() as plan:
        thread = plan.add_task(os.getpid, isolation="thread")
        coroutine, child = plan.add_task(in_the_loop), plan.add_task(os.getpid)
        plan.mark_ready()
        assert thread.result(20) == coroutine.result(20) == os.getpid() != child.result(20)
        told("coroutines run in the loop of the worker")
    with working(*here, 1), zkplan_client.create_plan(isolation="process") as plan:
        thread, child = plan.add_task(os.getpid, isolation="thread"), plan.add_task(os.getpid)
        limited = plan.add_task(os.getpid, memory_limit="1GB")
        plan.mark_ready()
        assert thread.result(20) == os.getpid() not in (child.result(20), limited.result(20))


def test_a_child_is_replaced_after_its_number_of_tasks(zkplan_client: Client, here: Here) -> None:
    with isolating(here, 1, tasks_per_child=2), zkplan_client.create_plan() as plan:
        tasks = [plan.add_task(os.getpid) for _ in range(6)]
        plan.mark_ready()
        pids = [task.result(20) for task in tasks]
    assert sorted(pids.count(pid) for pid in {*pids}) == [2, 2, 2]
