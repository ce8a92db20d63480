"""Chains of pure tasks run without waiting for ZooKeeper, and give the same results as others."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkplan
from tests.tools.stores import Place, key_of
from tests.tools.support import Here, WorkerProcess, described, note, notes, wait_until, working
from zkplan import Client, InvalidTask, Plan, Task, TaskError
from zkplan.author.export import export_plan, import_plan
from zkplan.runtime import ahead as run_ahead
from zkplan.values.store import IDS, Store

LENGTH = 30
#: The value at which a function of `gated` waits.
GATE = 11
#: The value from which `next_of` makes a large result.
SURPRISE = 22


class Gate:
    """Where a run stops until the test opens it."""

    reached = threading.Event()
    opened = threading.Event()


def step(value: int) -> int:
    return value + 1


def gated(value: int) -> int:
    if value == GATE:
        Gate.reached.set()
        assert Gate.opened.wait(30), "the gate was not opened"
    return value + 1


def loud(value: int) -> int:
    sys.stdout.write("x" * 50_000)
    return value + 1


def failing_once(value: int, file: str) -> int:
    if value == GATE and not notes(file):
        raise ValueError("not yet")
    return value + 1


def noted(value: int, file: str) -> int:
    note(file, str(value))
    return value + 1


def next_of(value: int | bytes) -> int | bytes:
    """The number after that one; one result is large, though it is not said before."""
    number = int.from_bytes(value, "big") if isinstance(value, bytes) else value
    gated(number)
    return number + 1 if number != SURPRISE else (number + 1).to_bytes(3000, "big")


def large(value: int) -> bytes:
    return (value + 1).to_bytes(3000, "big")


@pytest.fixture
def place(here: Here, tmp_path: Path) -> Place:
    return Place(here, tmp_path / "store", inline_limit=2000)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task may be held back for as long as it takes, however busy the machine is."""
    monkeypatch.setattr(run_ahead, "HELD_MAX_S", 60.0)
    monkeypatch.setattr(run_ahead, "HELD_S", 60.0)


@pytest.fixture
def gate(patient: None) -> Iterator[type[Gate]]:
    """A closed gate."""
    Gate.reached.clear()
    Gate.opened.clear()
    yield Gate
    Gate.opened.set()


def chain(plan: Plan, function: Any, *arguments: Any, length: int = LENGTH) -> list[Task]:
    tasks = [plan.add_task(function, (0, *arguments))]
    while len(tasks) < length:
        tasks.append(plan.add_task(function, (tasks[-1], *arguments)))
    return tasks


def ends_well(plan: Plan, last: Task, value: int = LENGTH) -> None:
    assert last.result(30) == value
    plan.wait(30)
    assert plan.check().problems == []
    assert plan.status().tasks == 0


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("pure", [False, True])
def test_a_pure_chain_gives_the_same_results(zkplan_client: Client, here: Here, pure: bool) -> None:
    with working(*here) as worker:
        with zkplan_client.create_plan(pure=pure) as plan:
            tasks = chain(plan, step, length=200)
        ends_well(plan, tasks[-1], 200)
        counted = worker.statistics()
    assert (counted.executed, counted.committed, counted.fenced) == (200, 200, 0)
    # Without the option each task takes a commit at least.
    assert (counted.steps < 100) == pure
    assert [outcome.number for outcome in plan.outcomes()] == [tasks[-1].number]


@pytest.mark.usefixtures("patient")
def test_a_run_ends_before_the_output_of_its_tasks_exceeds_the_room(
    zkplan_client: Client, here: Here
) -> None:
    with working(*here, of_worker={"task_output": 65_536}) as worker:
        with zkplan_client.create_plan(pure=True) as plan:
            tasks = chain(plan, loud)
        ends_well(plan, tasks[-1])
        counted = worker.statistics()
    assert counted.executed == LENGTH  # none ran in vain
    assert [sum(piece.end for piece in task.logs()) for task in tasks] == [50_000] * LENGTH


def test_tasks_without_the_pure_option_are_not_read_or_run_ahead(
    zkplan_client: Client, worker: zkplan.Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(run_ahead.RunAhead, "run", lambda _, ended: asked.append(ended))
    with zkplan_client.create_plan() as plan:
        tasks = chain(plan, step)
    ends_well(plan, tasks[-1])
    assert asked == []
    with zkplan_client.create_plan(pure=True) as plan:
        tasks = chain(plan, step)
    ends_well(plan, tasks[-1])
    assert len(asked) == LENGTH


def test_results_of_inner_tasks_of_a_run_are_kept_on_request(
    zkplan_client: Client, worker: zkplan.Worker
) -> None:
    with zkplan_client.create_plan(pure=True) as plan:
        tasks = [plan.add_task(step, (0,))]
        for index in range(1, LENGTH):
            tasks.append(plan.add_task(step, (tasks[-1],), keep=index % 5 == 0 or None))
    ends_well(plan, tasks[-1])
    kept = {index + 1: task for index, task in enumerate(tasks) if index and index % 5 == 0}
    assert {number: task.result(10) for number, task in kept.items()} == {n: n for n in kept}
    assert len(list(plan.outcomes())) == len(kept) + 1


def test_a_run_ends_before_a_failed_task_whose_failure_counts_once(
    zkplan_client: Client, worker: zkplan.Worker, tmp_path: Path
) -> None:
    file = str(tmp_path / "notes")
    with zkplan_client.create_plan(pure=True, attempts=1) as plan:
        tasks = chain(plan, failing_once, file)
    dead = wait_until(lambda: list(plan.dead()), "a task is dead")
    assert [number for number, _ in dead] == [tasks[GATE].number]
    assert plan.status().tasks == LENGTH - GATE
    note(file, "go on")
    plan.retry()
    ends_well(plan, tasks[-1])


def test_a_run_of_a_paused_plan_is_not_committed(
    zkplan_client: Client, worker: zkplan.Worker, gate: type[Gate]
) -> None:
    with zkplan_client.create_plan(pure=True) as plan:
        tasks = chain(plan, gated)
    assert gate.reached.wait(30)
    plan.pause()
    gate.opened.set()
    # The one task that was claimed before the pause ends, and delivers.
    wait_until(lambda: plan.status().runnable == 1, "the next task is runnable")
    assert plan.status().tasks == LENGTH - 1
    assert plan.check().problems == []
    plan.resume()
    ends_well(plan, tasks[-1])


def test_a_run_of_a_cancelled_plan_is_not_committed(
    zkplan_client: Client, worker: zkplan.Worker, gate: type[Gate]
) -> None:
    with zkplan_client.create_plan(pure=True) as plan:
        chain(plan, gated)
    assert gate.reached.wait(30)
    plan.cancel()
    gate.opened.set()
    wait_until(lambda: plan.status().tasks <= LENGTH - 1, "the claimed task ends")
    assert plan.status().tasks == LENGTH - 1
    with zkplan_client.create_plan(pure=True) as other:
        last = chain(other, step)[-1]
    ends_well(other, last)


def test_no_result_is_written_to_the_store_without_a_claim(
    place: Place, gate: type[Gate], znodes: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[tuple[str, bool]] = []
    write = Store.write

    def judged(store: Store, folder: str, name: str, chunks: Any) -> None:
        if folder == IDS:  # the store's own ID comes before its first value
            write(store, folder, name, chunks)
            return
        key, root = name.partition("-")[0], f"{place.here[1]}/claims"
        claims = [c for w in znodes.get_children(root) for c in znodes.get_children(f"{root}/{w}")]
        written.append((key, any(f"-{key}." in claim for claim in claims)))
        write(store, folder, name, chunks)

    monkeypatch.setattr(Store, "write", judged)
    with place.client() as client, place.working():
        with client.create_plan(pure=True) as plan:
            tasks = [plan.add_task(next_of, (0,))]
            for index in range(1, LENGTH):
                tasks.append(plan.add_task(large if index % 5 == 0 else next_of, (tasks[-1],)))
        assert gate.reached.wait(30)
        # It runs behind a task whose result is written, and not committed.
        assert tasks[GATE].state() == "waiting"
        plan.check()
        assert place.keys(plan)[-1] == key_of(tasks[GATE - 1])
        gate.opened.set()
        ends_well(plan, tasks[-1])
    assert written == [(key_of(task), True) for task in (*tasks[5:21:5], tasks[22], tasks[25])]


def test_a_failed_task_of_a_chain_fails_those_after_it(
    zkplan_client: Client, worker: zkplan.Worker, tmp_path: Path
) -> None:
    with zkplan_client.create_plan(pure=True, attempts=1, on_failure="cascade") as plan:
        tasks = chain(plan, failing_once, str(tmp_path / "notes"))
    with pytest.raises(zkplan.PlanFailed):
        plan.wait(30)
    kinds = {number: letter.error.partition(":")[0] for number, letter in plan.dead()}
    assert list(kinds) == [task.number for task in tasks[GATE:]]
    assert list(kinds.values()) == ["ValueError"] + ["UpstreamFailed"] * (LENGTH - GATE - 1)
    assert plan.check().problems == []


def test_a_task_with_a_timeout_runs_under_its_own_claim(
    zkplan_client: Client, worker: zkplan.Worker, gate: type[Gate]
) -> None:
    with zkplan_client.create_plan(pure=True) as plan:
        tasks = [plan.add_task(step, (0,))]
        for index in range(1, LENGTH):
            timeout = 0.3 if index == GATE else None
            tasks.append(plan.add_task(gated, (tasks[-1],), attempts=1, timeout=timeout))
    dead = wait_until(lambda: list(plan.dead()), "its time is over")
    assert [number for number, _ in dead] == [tasks[GATE].number]
    gate.opened.set()
    plan.retry()
    ends_well(plan, tasks[-1])


def test_tasks_that_run_ahead_are_shown_as_waiting(
    zkplan_client: Client, worker: zkplan.Worker, gate: type[Gate]
) -> None:
    with zkplan_client.create_plan(pure=True) as plan:
        tasks = chain(plan, gated)
    assert gate.reached.wait(30)
    states = [task.state() for task in tasks]
    first = states.index("running")
    assert states == ["finished"] * first + ["running"] + ["waiting"] * (LENGTH - first - 1)
    assert first < GATE
    assert not tasks[GATE].running()
    gate.opened.set()
    ends_well(plan, tasks[-1])


@pytest.mark.usefixtures("patient")
def test_the_pure_option_is_exported_with_its_plan(
    zkplan_client: Client, elsewhere: Client, there: Here, tmp_path: Path
) -> None:
    plan = zkplan_client.create_plan(pure=True)
    tasks = chain(plan, step)
    file = tmp_path / "plan.zkp"
    export_plan(plan, file)
    moved = elsewhere.plan(import_plan(elsewhere, file))
    assert described(moved.task(tasks[-1].number))["pure"]
    moved.mark_ready()
    with working(*there) as running:
        ends_well(moved, moved.task(tasks[-1].number))
        assert running.statistics().steps < LENGTH


def test_a_dependent_added_to_a_task_during_a_run_gets_its_result(
    zkplan_client: Client, worker: zkplan.Worker, gate: type[Gate]
) -> None:
    with zkplan_client.create_plan(pure=True) as plan:
        tasks = chain(plan, gated)
    assert gate.reached.wait(30)
    more = plan.add_task(step, (tasks[4],))
    gate.opened.set()
    assert more.result(30) == 6
    ends_well(plan, tasks[-1])


def test_a_fenced_run_commits_nothing_and_runs_again(
    zkplan_client: Client, here: Here, gate: type[Gate], znodes: KazooClient
) -> None:
    with working(*here) as worker:
        with zkplan_client.create_plan(pure=True) as plan:
            tasks = chain(plan, gated)
        assert gate.reached.wait(30)
        # As the clearing of the claims node of a vanished worker does.
        node = f"{here[1]}/claims/{worker.id}"
        (claim,) = (name for name in znodes.get_children(node) if "pending" not in name)
        release = znodes.transaction()
        release.delete(f"{node}/{claim}")
        release.delete(f"{plan.path}/task-{tasks[0].number}/owner")
        release.create(f"{plan.path}/runnable/5000-{tasks[0].number}.1.0")
        assert not [item for item in release.commit() if isinstance(item, Exception)]
        gate.opened.set()
        ends_well(plan, tasks[-1])
        assert worker.statistics().fenced == 1


def test_a_worker_killed_during_a_run_loses_nothing(
    zkplan_client: Client, here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zkplan_client.create_plan(pure=True) as plan:
        tasks = chain(plan, step, length=200)
    monkeypatch.setenv("ZKPLAN_FAILPOINTS", "ahead.before=kill:1:7")
    with WorkerProcess(*here, tmp_path, "--session-timeout", "2") as killed:
        wait_until(lambda: not killed.process.is_running(), "it is killed")
    monkeypatch.delenv("ZKPLAN_FAILPOINTS")
    # At least the claimed task, and the one that was about to run behind it. On a busy machine
    # runs are short, and others were committed before.
    assert plan.status().tasks >= 2
    with working(*here):
        ends_well(plan, tasks[-1], 200)


def test_a_hung_task_does_not_delay_the_commit_of_tasks_before_it(
    zkplan_client: Client, worker: zkplan.Worker, gate: type[Gate], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_ahead, "HELD_MAX_S", 0.1)
    with zkplan_client.create_plan(pure=True) as plan:
        tasks = chain(plan, gated)
    assert gate.reached.wait(30)
    wait_until(lambda: plan.status().tasks == LENGTH - GATE, "those before it are committed")
    gate.opened.set()
    ends_well(plan, tasks[-1])


def test_impure_tasks_run_once_among_pure_tasks(
    zkplan_client: Client, worker: zkplan.Worker, tmp_path: Path
) -> None:
    file = str(tmp_path / "notes")
    with zkplan_client.create_plan() as plan:
        last = plan.add_task(step, (0,), pure=True)
        for index in range(1, LENGTH):
            if index % 7 == 0:
                last = plan.add_task(noted, (last, file))
            else:
                last = plan.add_task(step, (last,), pure=True)
    ends_well(plan, last)
    assert notes(file) == ["7", "14", "21", "28"]


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (lambda: zkplan.current().log(1), "logs"),
        (lambda: zkplan.current().plan.add_task(step, (1,)), "uses its plan"),
        (lambda: zkplan.current().attempt, "asks for its attempt number"),
    ],
)
def test_a_pure_task_that_does_what_only_impure_tasks_may_fails(
    zkplan_client: Client, worker: zkplan.Worker, function: Any, what: str
) -> None:
    with zkplan_client.create_plan() as plan:
        task = plan.add_task(function, attempts=1, pure=True)
    with pytest.raises(TaskError, match=f"pure=True, and {what}"):
        task.result(30)


def test_a_wrong_value_of_the_pure_option_is_refused(zkplan_client: Client) -> None:
    with pytest.raises(InvalidTask, match="pure must be True or False"):
        zkplan_client.create_plan(pure="yes")  # type: ignore[arg-type]
