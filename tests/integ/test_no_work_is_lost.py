"""Workers die and hang, sessions expire, servers die: no result is lost or delivered twice."""

from __future__ import annotations

import os
import random
import signal
import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from kazoo.client import KazooClient

import zkplan
from tests.tools.support import (
    Here,
    WorkerProcess,
    note,
    notes,
    wait_for_notes,
    wait_until,
    working,
)
from zkplan import Client, Plan, Task
from zkplan.testing.server_process import ServerProcess

ROOT = "/zkplan"


@pytest.fixture
def client(zookeeper_server: ServerProcess) -> Iterator[Client]:
    """A client of the server that this test may kill."""
    # A server that is starting may swallow a handshake; kazoo then waits for a session timeout.
    with zkplan.connect(
        zookeeper_server.hosts, root=ROOT, patience=60, session_timeout=2.0
    ) as connected:
        yield connected


def stamped(*inputs: dict[str, str], name: str, file: str, seconds: float = 0.0) -> dict[str, str]:
    """Gives every name below it with the stamp of the run whose result arrived here.

    A stamp is made anew by each run, so two results of one task cannot look alike.
    """
    threading.Event().wait(seconds)
    merged: dict[str, str] = {}
    for stamps in inputs:
        for key, stamp in stamps.items():
            assert merged.setdefault(key, stamp) == stamp, f"two results of {key} were delivered"
    merged[name] = uuid.uuid4().hex
    note(file, f"{name} {zkplan.current().attempt} {merged[name]}")
    return merged


def lattice(plan: Plan, file: Path, width: int, height: int, seconds: float) -> Task:
    """Rows of tasks, each depending on two above it, joined by one at the end."""
    options = {"file": str(file), "seconds": seconds}
    row = [
        plan.add_task(stamped, [], {"name": f"0.{column}", **options}) for column in range(width)
    ]
    for level in range(1, height):
        row = [
            plan.add_task(
                stamped,
                [row[column], row[(column + 1) % width]],
                {"name": f"{level}.{column}", **options},
            )
            for column in range(width)
        ]
    return plan.add_task(stamped, row, {"name": "end", **options})


def require_once(stamps: dict[str, str], file: Path, width: int, height: int) -> None:
    """Every task has one result, and it is one that a run of this task made."""
    expected = {f"{level}.{column}" for level in range(height) for column in range(width)}
    assert set(stamps) == {*expected, "end"}
    ran = {tuple(line.split()[::2]) for line in notes(file)}
    assert set(stamps.items()) <= ran
    runs = [tuple(line.split()[:2]) for line in notes(file)]
    assert len(runs) == len(set(runs)), "two runs of a task had the same fencing number"


def test_no_work_is_lost_when_workers_are_killed_at_random_moments(
    here: Here, zkplan_client: Client, tmp_path: Path
) -> None:
    file = tmp_path / "runs"
    chance = random.Random(5)
    with zkplan_client.create_plan(attempts=30, retry_delay=0) as plan:
        end = lattice(plan, file, 8, 8, 0.03)
    with ExitStack() as stack:

        def start() -> WorkerProcess:
            options = ("--threads", "3", "--session-timeout", "1")
            return stack.enter_context(WorkerProcess(*here, tmp_path, *options))

        fleet = [start() for _ in range(3)]
        for kill in range(5):
            wait_for_notes(file, 10 * kill + 4)
            victim = fleet.pop(chance.randrange(len(fleet)))
            victim.process.end(0)
            fleet.append(start())
        stamps = end.result(60)
        status = plan.wait(30)
    require_once(stamps, file, 8, 8)
    assert (status.state, status.dead, status.finished) == ("done", 0, 65)


def hold_first(file: str, gate: str) -> str:
    """The first attempt waits for the gate, later ones do not.

    Its number is 0, or one more for each time that it was claimed and handed back unused.
    """
    attempt, first = zkplan.current().attempt, not notes(file)
    note(file, f"began {attempt} {os.getpid()}")
    if first:
        wait_until(lambda: Path(gate).exists(), "the gate opens")
    note(file, f"ended {attempt} {os.getpid()}")
    return f"result of attempt {attempt}"


def test_a_worker_paused_past_its_session_cannot_commit_and_keeps_working(
    here: Here, zkplan_client: Client, tmp_path: Path
) -> None:
    file, gate = tmp_path / "runs", tmp_path / "gate"
    options = ("--threads", "1", "--session-timeout", "1")
    with zkplan_client.create_plan() as plan:
        task = plan.add_task(hold_first, [str(file), str(gate)], keep=True, name="held")
        after = plan.add_task(lambda text: text.upper(), [task])
    with WorkerProcess(*here, tmp_path, *options) as paused:
        [began] = wait_until(lambda: notes(file), "the first attempt begins")
        n = int(began.split()[1])
        assert began == f"began {n} {paused.pid}"
        paused.process.pause()
        with WorkerProcess(*here, tmp_path, *options) as other:
            shouted = after.result(60)
            _, begins, ends = notes(file)
            m = int(begins.split()[1])
            assert m > n
            assert (begins, ends) == (f"began {m} {other.pid}", f"ended {m} {other.pid}")
            assert shouted == f"RESULT OF ATTEMPT {m}"
            plan.wait(30)
            gate.touch()
            paused.process.send(signal.SIGCONT)
            wait_until(lambda: f"ended {n} {paused.pid}" in notes(file), "the first attempt ends")
            wait_until(lambda: paused.said("-2 ready"), "the paused worker registers anew")
            other.process.end(10)
            with zkplan_client.create_plan() as second:
                again = second.add_task(os.getpid)
            assert again.result(30) == paused.pid
        paused.process.end(10)
    lost = [line for line in paused.log.read_text().splitlines() if " lost the claim " in line]
    assert len(lost) == 1, lost
    assert (
        f"of held (task-{task.number}) of {plan.path}, attempt {n + 1}, so its result is" in lost[0]
    )
    assert paused.said("has ended: 2 executed, 1 committed, 0 failed, 1 fenced, ")
    assert task.result(10) == f"result of attempt {m}"
    assert paused.said("its session expired")


def test_a_late_result_counts_if_no_worker_took_the_task_over(
    here: Here, zkplan_client: Client, znodes: KazooClient, tmp_path: Path
) -> None:
    """The only worker was paused past its session: its claim still stands when it comes back."""
    file, gate = tmp_path / "runs", tmp_path / "gate"
    with zkplan_client.create_plan() as plan:
        task = plan.add_task(hold_first, [str(file), str(gate)])
    with WorkerProcess(*here, tmp_path, "--threads", "1", "--session-timeout", "1") as worker:
        wait_until(lambda: notes(file), "the task begins")
        worker.process.pause()
        wait_until(lambda: not zkplan_client.workers(), "its session expires")
        worker.process.send(signal.SIGCONT)
        wait_until(lambda: worker.said("-2 ready"), "it registers anew")
        # Only now: its commit must not just be quicker than its look at the claims nodes of the
        # dead.
        of_the_dead = f"{zkplan_client.root}/claims/of-the-dead"
        znodes.create(of_the_dead)
        wait_until(lambda: not znodes.exists(of_the_dead), "it looks at claims nodes")
        gate.touch()
        assert task.result(30).startswith("result of attempt")
        plan.wait(30)
    assert len(notes(file)) == 2, "it began again, and the late result was refused"


def test_two_reports_of_one_lost_registration_make_one_new_registration(
    here: Here, zkplan_client: Client, znodes: KazooClient
) -> None:
    """A life that is given up though its session lives would have a claims node that nobody can
    clear."""
    with working(*here) as worker:
        loop = worker._loop
        membership = loop.membership
        first = membership.me
        assert first is not None
        znodes.delete(first.worker_path)  # as the end of its session does
        loop.steps.post(lambda: membership.lost(first))
        second = wait_until(
            lambda: membership.me is not first and membership.me, "it registers anew"
        )
        heard = threading.Event()
        loop.steps.post(lambda: membership.lost(first))
        loop.steps.post(heard.set)
        assert heard.wait(10)
        assert membership.me is second
        assert [each.id for each in zkplan_client.workers()] == [f"{first.worker}-2"]
