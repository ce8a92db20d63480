"""Workers die and hang, sessions expire, servers die: nothing is lost or comes twice."""

from __future__ import annotations

import os
import random
import signal
import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkplan
from tests.tools.support import (
    Here,
    WorkerProcess,
    expire,
    note,
    notes,
    wait_for_notes,
    wait_until,
    working,
)
from zkplan import Client, Plan, Task
from zkplan.testing.server_process import ServerProcess
from zkplan.testing.servers import ZooKeeperEnsemble

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


def test_workers_are_killed_at_random_moments(
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


def test_a_worker_paused_past_its_session_cannot_commit_and_works_on(
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


def test_a_late_result_counts_where_nobody_took_the_task_over(
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


def test_a_worker_whose_session_expires_registers_anew_and_loses_nothing(
    here: Here, zkplan_client: Client, tmp_path: Path
) -> None:
    file = tmp_path / "runs"
    with zkplan_client.create_plan(attempts=20, retry_delay=0) as plan:
        end = lattice(plan, file, 8, 10, 0.01)
    with working(*here) as worker, working(*here):
        for end_of_session in range(3):
            wait_for_notes(file, 20 * end_of_session + 6)
            expire(worker.client)
        stamps = end.result(60)
        plan.wait(30)
        lives = wait_until(
            lambda: [w.id for w in zkplan_client.workers() if w.id.startswith(worker.id)],
            "it is registered again",
        )
    require_once(stamps, file, 8, 10)
    assert lives[0] != worker.id


def test_a_server_killed_under_load_comes_back_and_all_goes_on(
    zookeeper_server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    """Author, waiter and workers keep their calls; what was acknowledged is still there."""
    file = tmp_path / "runs"
    # Kept: the author may add a dependent when the task has finished already.
    plan = client.create_plan(attempts=20, retry_delay=0, keep=True)
    plan.mark_ready()
    held = plan.add_task(lambda: wait_until((tmp_path / "gate").exists, "the gate opens", 100))
    ends: list[Any] = []
    errors: list[BaseException] = []

    def author() -> None:
        try:
            ends.extend(lattice(plan, file, 6, 6, 0.005) for _ in range(4))
        except BaseException as error:
            errors.append(error)

    with (
        working(zookeeper_server.hosts, ROOT, session_timeout=4.0),
        working(zookeeper_server.hosts, ROOT, session_timeout=4.0),
    ):
        writing = threading.Thread(target=author)
        writing.start()
        for kill in range(2):
            wait_for_notes(file, 30 * kill + 10, 60)
            zookeeper_server.kill()
            zookeeper_server.start()
        writing.join(60)
        assert errors == []
        assert len(ends) == 4
        (tmp_path / "gate").touch()
        status = plan.wait(60)
        assert held.number
    assert (status.added, status.finished, status.dead) == (1 + 4 * 37, 149, 0)


def test_the_leader_of_an_ensemble_is_killed_under_load(
    zookeeper_ensemble: ZooKeeperEnsemble, tmp_path: Path
) -> None:
    file = tmp_path / "runs"
    root = f"/leader-{uuid.uuid4().hex[:8]}"
    hosts = zookeeper_ensemble.hosts
    with zkplan.connect(hosts, root=root, patience=60) as client:
        with client.create_plan(attempts=20, retry_delay=0) as plan:
            end = lattice(plan, file, 8, 12, 0.01)
        with working(hosts, root, session_timeout=4.0), working(hosts, root, session_timeout=4.0):
            wait_until(lambda: len(notes(file)) >= 20, "progress")
            zookeeper_ensemble.leader().kill()
            stamps = end.result(60)
            status = plan.wait(60)
        plan.remove()
    require_once(stamps, file, 8, 12)
    assert (status.finished, status.dead) == (97, 0)


def test_a_server_that_hangs_holds_everything_up_and_nothing_more(
    zookeeper_server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    """A paused server answers nothing; tasks are told, and go on when it is back."""
    file, gate = tmp_path / "runs", tmp_path / "gate"

    def watch() -> str:
        here = zkplan.current()
        note(file, "began")
        wait_until(lambda: here.cancelled, "the task hears that its claim is in doubt")
        note(file, "told")
        wait_until(gate.exists, "the gate opens")
        return "done"

    with client.create_plan(attempts=5, retry_delay=0) as plan:
        task = plan.add_task(watch)
    with working(zookeeper_server.hosts, ROOT, session_timeout=2.0):
        wait_until(lambda: notes(file), "the task begins")
        zookeeper_server.pause()
        wait_until(lambda: "told" in notes(file), "the task is told")
        gate.touch()
        zookeeper_server.resume()
        assert task.result(60) == "done"
        plan.wait(30)


def test_two_answers_that_tell_of_one_lost_registration_make_one_new_life(
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
