"""Tasks that a worker holds and has not started are not blamed when it dies or their plan stops."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import zkplan
from tests.tools.support import (
    Here,
    WorkerProcess,
    note,
    notes,
    stall_nothing,
    standing_claims,
    wait_for_notes,
    wait_until,
    working,
)
from zkplan import Client, Plan, PlanFailed, TaskSpec
from zkplan.runtime.claims import HANDED_BACK

SHORT = ("--session-timeout", "2")


def nothing() -> None:
    """As short as a task can be: a worker that runs these claims many ahead."""


def nap(file: str, name: str) -> None:
    note(file, name)
    threading.Event().wait(0.2)


def stay(file: str, name: str, gate: str) -> None:
    note(file, name)
    wait_until(Path(gate).exists, "the gate opens")


def die(file: str) -> None:
    note(file, "started")
    os.kill(os.getpid(), signal.SIGKILL)


def warm_up(client: Client) -> None:
    """Teach the workers that tasks are short, so that they claim ahead."""
    with client.create_plan() as plan:
        plan.add_tasks([TaskSpec(nothing) for _ in range(400)])
    plan.wait(timeout=60)


def add_stays(client: Client, file: Path, gate: Path, **options: int) -> zkplan.Plan:
    """Forty tasks that, once they have started, hold their slots until the gate opens. A short one
    comes first: before any of its tasks has ended, no more of a plan is claimed than there are
    slots."""
    with client.create_plan(**options) as plan:  # type: ignore[arg-type]
        plan.add_task(nothing, priority=1)
        plan.add_tasks([TaskSpec(stay, (str(file), str(i), str(gate))) for i in range(40)])
    return plan


def test_tasks_that_had_not_started_survive_the_loss_of_their_worker(
    here: Here, zkplan_client: Client, tmp_path: Path
) -> None:
    file, gate = tmp_path / "starts", tmp_path / "gate"
    with WorkerProcess(*here, tmp_path, "--threads", "2", *SHORT).wait_ready() as process:
        with zkplan_client.create_plan() as first:
            first.add_task(stall_nothing)
        first.wait(timeout=60)
        warm_up(zkplan_client)
        plan = add_stays(zkplan_client, file, gate, attempts=1)
        wait_for_notes(file, 2)
        wait_until(lambda: standing_claims(zkplan_client) > 2, "others are claimed behind them")
        process.process.end(0)
    assert standing_claims(zkplan_client) > len(notes(file)) == 2
    gate.touch()
    with working(*here, threads=8):
        plan.wait(timeout=60)
    ran = notes(file)
    assert set(ran) == {str(i) for i in range(40)}
    assert len(ran) <= 40 + 2


def test_tasks_claimed_ahead_go_to_others_when_all_slots_stay_busy(
    here: Here, zkplan_client: Client, tmp_path: Path
) -> None:
    """Claimed ahead, because tasks were short: each goes back after a moment, for no attempt."""
    file, gate = tmp_path / "starts", tmp_path / "gate"

    def hold(file: str, gate: str) -> None:
        note(file, "held")
        wait_until(lambda: Path(gate).exists(), "the gate opens")

    with WorkerProcess(*here, tmp_path, "--threads", "2").wait_ready() as busy:
        warm_up(zkplan_client)
        with zkplan_client.create_plan(attempts=1) as plan:
            plan.add_task(nothing, priority=1)
            plan.add_tasks([TaskSpec(hold, (str(file), str(gate))) for _ in range(2)])
            plan.add_tasks([TaskSpec(note, (str(file), str(i))) for i in range(40)])
        wait_until(lambda: busy.said(HANDED_BACK), "claims go back")
        with working(*here):
            wait_until(lambda: len(notes(file)) == 42, "all have run, beside those that hold")
            gate.touch()
            assert plan.wait(30).finished == 43
    assert sorted(notes(file)) == sorted(["held"] * 2 + [str(i) for i in range(40)])


def test_a_task_that_kills_its_workers_ends_dead_and_its_neighbours_run(
    here: Here, zkplan_client: Client, tmp_path: Path
) -> None:
    deaths, file = tmp_path / "deaths", tmp_path / "starts"
    with zkplan_client.create_plan(attempts=2) as plan:
        plan.add_task(die, (str(deaths),), name="poison", priority=10)
        plan.add_tasks([TaskSpec(nap, (str(file), str(i))) for i in range(20)])
    # One loss without blame, because nobody knows yet what had started, then one for each attempt.
    lost = []
    for _ in range(3):
        with WorkerProcess(*here, tmp_path, *SHORT) as process:
            wait_until(lambda p=process: not p.process.is_running(), "the worker dies")  # type: ignore[misc]
        lost.append(process.log.read_text().partition(" ready")[0].rpartition(" ")[2])
    with (
        WorkerProcess(*here, tmp_path, *SHORT),
        pytest.raises(PlanFailed, match="WorkerLost") as failed,
    ):
        plan.wait(timeout=60)
    assert list(failed.value.failures) == ["poison"]
    # The worker that buried it cleared the last claims node, so it knows. A number stands behind
    # the name of one that had lost its session before.
    last = rf"the last one was {re.escape(lost[-1])}(-\d+)? \("
    assert re.search(last, failed.value.failures["poison"])
    assert len(notes(deaths)) == 3
    ((_, letter),) = plan.dead()
    assert letter.a == 2
    assert set(notes(file)) == {str(i) for i in range(20)}


@pytest.mark.usefixtures("nothing_stalls")
@pytest.mark.parametrize("what", [Plan.pause, Plan.cancel])
def test_a_paused_or_cancelled_plan_starts_no_more_tasks(
    what: Callable[[Plan], None], here: Here, zkplan_client: Client, tmp_path: Path
) -> None:
    file, gate = tmp_path / "starts", tmp_path / "gate"

    def claims() -> int:
        return zkplan_client.workers()[0].claims

    with working(*here, threads=2) as worker:
        warm_up(zkplan_client)
        plan = add_stays(zkplan_client, file, gate, attempts=1)
        wait_until(lambda: len(notes(file)) == 2, "two tasks have started")
        wait_until(lambda: claims() > 2, "others are claimed behind them")
        what(plan)
        # Claimed tasks may start until the worker has heard of it: both slots are held. Nothing
        # goes back for want of a slot here, so what goes back does so for the pause or the cancel.
        wait_until(lambda: claims() == 2, "what has not started is handed back")
        assert worker.statistics().handed_back > 0
        gate.touch()
        wait_until(lambda: claims() == 0, "nothing is held any more")
        assert len(notes(file)) == 2
        if what is Plan.pause:
            plan.resume()
            plan.wait(timeout=60)
            assert sorted(notes(file), key=int) == [str(i) for i in range(40)]


def test_a_worker_forgets_losses_of_tasks_of_removed_plans(
    here: Here, zkplan_client: Client
) -> None:
    """Else it held them as long as it lives, up to the most that it remembers."""
    with working(*here) as worker:
        vanished = worker._loop.vanished
        gone = f"{zkplan_client.root}/plan-0000009999/task-0000000001"
        worker._loop.steps.post(lambda: vanished.note(gone, 0, "vanished"))
        with zkplan_client.create_plan() as plan:  # at the news of which it lists all plans
            plan.add_task(abs, [-1])
        plan.wait(timeout=60)
        wait_until(lambda: not vanished._last, "it has forgotten")
