"""A limit bounds the tasks that run at the same time, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import zkplan
from tests.tools.support import Here, Run, WorkerProcess, note, wait_for_notes, wait_until, working
from zkplan.errors import InvalidTask
from zkplan.runtime.statistics import Statistics


def timed(seconds: float, *_: Any) -> tuple[float, float]:
    began = time.time()
    threading.Event().wait(seconds)
    return began, time.time()


def timed_at_gate(file: Path, gate: Path) -> tuple[float, float]:
    began = time.time()
    note(file, "began")
    wait_until(gate.exists, "the gate opens")
    threading.Event().wait(0.05)
    return began, time.time()


def most_at_once(times: list[tuple[float, float]]) -> int:
    return max(sum(began <= at < ended for began, ended in times) for at, _ in times)


@contextmanager
def workers(here: Here, count: int, **options: Any) -> Iterator[list[zkplan.Worker]]:
    with ExitStack() as stack:
        yield [stack.enter_context(working(*here, **options)) for _ in range(count)]


def totals(all_workers: list[zkplan.Worker]) -> list[Statistics]:
    return [worker.statistics() for worker in all_workers]


def test_tasks_of_two_plans_and_three_workers_share_a_limit(
    zkplan_client: zkplan.Client, here: Here
) -> None:
    zkplan_client.set_limit("db", 3)
    with ExitStack() as stack:
        plans = [stack.enter_context(zkplan_client.create_plan(limits=["db"])) for _ in range(2)]
        tasks = [plan.add_task(timed, [0.1]) for plan in plans for _ in range(15)]
        free = [plan.add_task(timed, [0.0], limits=[]) for plan in plans for _ in range(5)]
    with workers(here, 3) as running:
        times = [task.result(timeout=30) for task in [*tasks, *free]][:30]
        refused = sum(each.refusals + each.conflicts for each in totals(running))
    assert most_at_once(times) == 3
    began, ended = min(began for began, _ in times), max(ended for _, ended in times)
    assert sum(b - a for a, b in times) / (ended - began) > 1.2
    # It counts what was refused in claims of all of them, those without a limit too.
    assert refused < len(tasks) + len(free)
    (limit,) = zkplan_client.limits()
    assert (limit.name, limit.size, limit.held, limit.period) == ("db", 3, [], None)


def test_a_full_limit_does_not_block_other_tasks_and_queues(
    zkplan_client: zkplan.Client, here: Here, run: Run
) -> None:
    zkplan_client.set_limit("none", 0)
    with zkplan_client.create_plan("blocked", limits=["none"]) as blocked:
        held = [blocked.add_task(timed, [0.0], queue="first", priority=9) for _ in range(100)]
    with zkplan_client.create_plan("mixed") as plan:
        last = plan.add_task(timed, [0.0], limits=["none"], priority=9)
        others = [plan.add_task(timed, [0.0], queue=queue) for queue in ("first", "second")]
    with working(*here, of_worker={"queues": ["first", "second", "default"]}):
        assert [task.result(timeout=10) for task in others]
        for why in (held[0].why(), last.why(), blocked.why()):
            assert why.causes[0].code == "limit_full", why
        zkplan_client.set_limit("none", 50)
        assert [task.result(timeout=10) for task in [last, *held]]
    with pytest.raises(InvalidTask, match="there is no limit 'other'; set it first: `zkplan limit"):
        plan.add_task(timed, [0.0], limits=["other"])
    assert run("limit", "rm", "none").code == 0
    assert run("limit", "ls", "-o", "json").data == []


@pytest.mark.either
def test_a_lowered_limit_waits_for_running_tasks_and_stops_none(
    zkplan_client: zkplan.Client, here: Here, tmp_path: Path
) -> None:
    file, gate = tmp_path / "began", tmp_path / "gate"
    zkplan_client.set_limit("db", 4)
    with zkplan_client.create_plan(limits=["db"]) as plan:
        tasks = [plan.add_task(timed_at_gate, [file, gate], name=f"task {n}") for n in range(8)]
    with workers(here, 2):
        wait_for_notes(file, 4)
        zkplan_client.set_limit("db", 1)
        lowered = time.time()
        with pytest.raises(zkplan.ZkplanError, match="permits of the limit db are running"):
            zkplan_client.remove_limit("db")
        gate.touch()
        times = [task.result(timeout=30) for task in tasks]
    assert sum(began < lowered for began, _ in times) == 4
    after = sorted(began for began, _ in times if began > lowered)
    assert most_at_once([t for t in times if t[0] > lowered]) == 1
    assert after[0] >= max(ended for began, ended in times if began < lowered) - 0.05


def test_the_max_running_limit_of_a_plan_is_exported_and_imported_with_it(
    zkplan_client: zkplan.Client, here: Here, tmp_path: Path
) -> None:
    with zkplan_client.create_plan("own", max_running=2) as plan:
        tasks = [plan.add_task(timed, [0.05]) for _ in range(8)]
        total = plan.add_task(most_at_once, [tasks], keep=True)
    plan.pause()
    zkplan_client.export_plan(plan, tmp_path / "file", remove=True)
    assert zkplan_client.limits() == []
    moved = zkplan_client.import_plan(tmp_path / "file")
    assert [(limit.name, limit.size) for limit in zkplan_client.limits()] == [
        (f"plan-{moved.number}", 2)
    ]
    moved.resume()
    with workers(here, 2):
        assert moved.task(total.number).result(timeout=20) == 2
    moved.remove()
    assert zkplan_client.limits() == []


@pytest.mark.either
def test_a_rate_bounds_the_tasks_that_start_within_a_second(
    zkplan_client: zkplan.Client, here: Here
) -> None:
    zkplan_client.set_limit("api", 2, per="second")
    with zkplan_client.create_plan(limits=["api"]) as plan:
        tasks = [plan.add_task(timed, [0.0]) for _ in range(6)]
    with workers(here, 2) as running:
        began = sorted(task.result(timeout=20)[0] for task in tasks)
        refused = sum(each.refusals + each.conflicts for each in totals(running))
    # A task starts a moment after its claim.
    assert all(later - first > 0.8 for first, later in zip(began, began[2:], strict=False)), began
    assert began[-1] - began[0] < 4
    assert refused < len(tasks)
    with pytest.raises(zkplan.ZkplanError, match="api is a rate: remove it first"):
        zkplan_client.set_limit("api", 2)
    assert zkplan_client.remove_limit("api")


@pytest.mark.either
def test_a_plan_file_names_limits_and_defines_its_own(
    zkplan_client: zkplan.Client, here: Here, run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "plan.toml"
    text = '[plan]\nname = "file"\nlimits = ["db"]\nmax_running = {}\n[tasks.t]\nshell = "true"\n'
    file.write_text(text.format(0))
    assert "max_running must be 1 to" in run("run", str(file)).err
    file.write_text(text.format(2))
    assert "there is no limit 'db'" in run("run", str(file)).err
    zkplan_client.set_limit("db", 0)
    assert run("run", str(file), "--no-wait").code == 0
    plan = zkplan_client.plan("file")
    assert [cause.code for cause in plan.why().causes] == ["no_worker", "limit_full"]
    assert [limit.size for limit in zkplan_client.limits()] == [0, 2]
    with working(*here):
        zkplan_client.set_limit("db", 1)
        assert plan.wait(timeout=20).state == "done"


def test_the_permits_of_a_killed_worker_are_free_after_its_session(
    zkplan_client: zkplan.Client, here: Here, tmp_path: Path
) -> None:
    zkplan_client.set_limit("db", 2)
    with zkplan_client.create_plan(limits=["db"]) as plan:
        tasks = [plan.add_task(time.sleep, [60.0 if n < 2 else 0.0]) for n in range(4)]
    with WorkerProcess(*here, tmp_path, "--session-timeout", "2") as killed:
        wait_until(lambda: len(zkplan_client.limits()[0].held) == 2, "it holds both")
        held = zkplan_client.limits()[0].held
        assert {permit.task for permit in held} == {task.number for task in tasks[:2]}
        os.kill(killed.pid, signal.SIGKILL)
    plan.cancel()
    with zkplan_client.create_plan(limits=["db"]) as after:
        later = after.add_task(timed, [0.0])
    with working(*here):
        assert later.result(timeout=20)
        wait_until(lambda: zkplan_client.limits()[0].held == [], "nothing is left")
