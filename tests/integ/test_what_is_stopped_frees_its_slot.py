"""Whatever stops a running task notifies it, ends its process, and frees its slot after a grace.

The table "What ends when" of `docs/operate/operating.md` is what these tests prove.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import zkplan
from tests.tools.support import Here, is_running, note, notes, wait_for_notes, wait_until, working
from zkplan import Client, TaskSpec
from zkplan.runtime import ahead as run_ahead
from zkplan.runtime import job
from zkplan.runtime import plan_entries as listing

from .tasks_of_processes import go_on, go_on_alone, go_on_behind, go_on_in_the_loop

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes of tasks need Linux")
#: It ends at SIGTERM, as most commands.
COMMAND = zkplan.shell("echo shell $$ >> {file}; exec sleep 600")


@pytest.fixture(autouse=True)
def _short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "STOP_GRACE_S", 0.5)


def specs(file: Path, gate: Path) -> list[TaskSpec]:
    """One task of each kind that goes on although it is told to stop."""
    given = [str(file), str(gate)]
    functions = (go_on, go_on_alone, go_on_in_the_loop)
    return [*(TaskSpec(each, given) for each in functions), TaskSpec(COMMAND, given[:1])]


def meet(file: str, count: int) -> None:
    """As a task: end once so many run at the same time."""
    note(file, "here")
    wait_until(lambda: len(notes(file)) >= count, "the others run")


#: Starts such tasks, and returns what stops them.
Start: TypeAlias = Callable[[Client, list[TaskSpec]], Callable[[], object]]
Calls: TypeAlias = list[Future[Any]]


def of_plan(
    stop: Callable[[zkplan.Plan, list[zkplan.Task]], object], deadline: float | None = None
) -> Start:
    """They are tasks of a plan."""

    def start(client: Client, tasks: list[TaskSpec]) -> Callable[[], object]:
        with client.create_plan("stops", attempts=1, deadline=deadline) as plan:
            made = plan.add_tasks(tasks)
        return lambda: stop(plan, made)

    return start


def of_executor(stop: Callable[[zkplan.Executor, Calls], object]) -> Start:
    """They are calls of an executor."""

    def start(client: Client, tasks: list[TaskSpec]) -> Callable[[], object]:
        executor = zkplan.Executor(client)
        calls = [executor.submit(task.fn, *task.args) for task in tasks]

        def stopped() -> None:
            stop(executor, calls)
            assert all(call.cancelled() for call in calls)
            executor.shutdown()  # waits for nothing
            assert client.plans() == []

        return stopped

    return start


def end_by_ctrl_c(executor: zkplan.Executor) -> None:
    with pytest.raises(KeyboardInterrupt), executor:
        raise KeyboardInterrupt


WAYS = {
    "skip": of_plan(lambda _, tasks: [task.skip(1) for task in tasks]),
    "cancel": of_plan(lambda _, tasks: [task.cancel() for task in tasks]),
    "cancel of the plan": of_plan(lambda plan, _: plan.cancel()),
    "removal of the plan": of_plan(lambda plan, _: plan.remove()),
    "deadline of the plan": of_plan(lambda plan, _: None, deadline=4.0),
    "cancel of the future": of_executor(lambda _, calls: [call.cancel() for call in calls]),
    "close of the executor": of_executor(
        lambda executor, _: executor.shutdown(wait=False, cancel_futures=True)
    ),
    "Ctrl-C in its block": of_executor(lambda executor, _: end_by_ctrl_c(executor)),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_stopped_function_is_notified_ends_and_frees_its_slot(
    way: str, zkplan_client: Client, here: Here, tmp_path: Path
) -> None:
    file, gate = tmp_path / "notes", tmp_path / "gate"
    with ExitStack() as stack:
        stack.callback(gate.touch)
        worker = stack.enter_context(working(*here, 4))
        stop = WAYS[way](zkplan_client, specs(file, gate))
        wait_for_notes(file, 4)
        pids = dict(line.split() for line in notes(file))
        stop()
        told = {"thread told", "process told", "coroutine told", "coroutine cancelled"}
        wait_until(lambda: told <= {*notes(file)}, "they are told, and the coroutine is cancelled")
        wait_until(
            lambda: not any(is_running(int(pids[kind])) for kind in ("process", "shell")),
            "the processes have ended",
        )
        with zkplan_client.create_plan("next") as following:
            following.add_tasks([TaskSpec(meet, [str(tmp_path / "met"), 4])] * 4)
        following.wait(30)  # on four slots at once
        wait_until(lambda: worker._loop.vitals().abandoned == 1, "the thread goes on")
        gate.touch()
        wait_until(lambda: worker._loop.vitals().abandoned == 0, "its function has returned")
        assert worker.statistics().written_off <= 3, "the command has ended by itself"


def test_a_drained_worker_ends_processes_after_its_grace_and_hands_back(
    zkplan_client: Client, here: Here, tmp_path: Path
) -> None:
    file, gate = tmp_path / "notes", tmp_path / "gate"
    with zkplan_client.create_plan("drained") as plan:
        plan.add_tasks(specs(file, gate))
    with working(*here, 4, grace=0.1):
        wait_for_notes(file, 4)
        pids = dict(line.split() for line in notes(file))
    wait_until(
        lambda: not any(is_running(int(pids[kind])) for kind in ("process", "shell")),
        "the processes have ended",
    )
    wait_until(lambda: plan.status().runnable == 4, "all are handed back")
    gate.touch()


def test_a_process_run_ahead_is_killed_when_the_task_before_it_is_stopped(
    zkplan_client: Client, here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its attempt ends with the process, and its thread is the worker's again."""
    monkeypatch.setattr(run_ahead, "HELD_S", 60.0)
    file, gate = tmp_path / "notes", tmp_path / "gate"
    with working(*here, 1) as worker:
        for path in ("", str(gate)):  # what is quick the first time is run ahead the second time
            with zkplan_client.create_plan("ahead") as plan:
                before = plan.add_task(go_on_behind, [0, str(file), ""])
                plan.add_task(go_on_behind, [before, str(file), path])
            if not path:
                plan.wait(30)
        wait_for_notes(file, 1)
        assert plan.status().tasks == 2, "the task before it is not committed"
        pid = int(notes(file)[0].split()[1])
        plan.cancel()
        wait_until(lambda: not is_running(pid), "its process has ended")
        wait_until(lambda: worker._loop.vitals().abandoned == 0, "its attempt has ended")
        with zkplan_client.create_plan("next") as following:
            following.add_task(threading.get_ident)
        following.wait(30)


def test_slots_held_by_hung_tasks_of_a_cancelled_plan_run_the_next_plan(
    zkplan_client: Client, here: Here, tmp_path: Path
) -> None:
    """Also where most of its tasks have not begun, so that the worker lists them without a
    watch."""
    file, gate = tmp_path / "notes", tmp_path / "gate"
    with ExitStack() as stack:
        stack.callback(gate.touch)
        with zkplan_client.create_plan("hangs") as plan:
            hanging = [TaskSpec(go_on, [str(file), str(gate)])]
            plan.add_tasks(hanging * (3 * listing.NEARLY_EMPTY))
        worker = stack.enter_context(working(*here, 2))
        wait_for_notes(file, 2)
        with zkplan_client.create_plan("next") as following:
            following.add_task(threading.get_ident)
        (cause,) = wait_until(lambda: following.why().causes, "why")
        assert cause.code == "slots_busy"
        assert cause.text.count(f" of plan {int(plan.number)} on {worker.id} since ") >= 2
        assert "`zkplan task cancel" in cause.advice
        plan.cancel()
        following.wait(30)
        assert len(notes(file)) == 4, "no third one has begun"
