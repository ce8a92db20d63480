"""A Dask graph computed by a plan: the same values, errors and keys as by Dask's own schedulers."""

from __future__ import annotations

import copy
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import zkplan
from tests.tools.support import note, notes, started, wait_for_notes
from zkplan import Client
from zkplan.errors import InvalidTask, PlanError

from .tasks_of_processes import go_on

pytest.importorskip("dask.dataframe", reason="Dask is not installed: pip install zkplan[dask]")

import dask
import dask.array
import dask.bag
from dask.utils_test import GetFunctionTestMixin, add, inc

from zkplan.integrations.dask import ZkplanScheduler

from . import dask_nightly as nightly


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with zkplan.local(workers=2, threads=4) as connected:
        yield connected


@pytest.fixture
def get(client: Client) -> Iterator[ZkplanScheduler]:
    """The scheduler. No plan may be left after the test."""
    yield ZkplanScheduler(client)
    assert client.plans() == []


class TestAsDaskExpects(GetFunctionTestMixin):  # type: ignore[misc]
    """Dask's own tests of a scheduler."""

    @pytest.fixture(autouse=True)
    def _scheduler(self, get: ZkplanScheduler) -> None:
        self.get = get

    @pytest.mark.slow
    def test_get_stack_limit(self) -> None:
        super().test_get_stack_limit()


def once(file: str, value: Any) -> Any:
    note(file, "ran")
    return value


def fail(value: int) -> int:
    raise LookupError(f"on purpose: {value}")


def test_arrays_frames_and_bags_give_what_the_synchronous_scheduler_gives(
    get: ZkplanScheduler,
) -> None:
    numbers = dask.bag.from_sequence(range(100), npartitions=5)
    folded = numbers.filter(lambda x: x % 3).map(lambda x: x * x).fold(lambda x, y: x + y)
    wanted = (nightly.frame(), nightly.array(), folded)
    frame, array, total = (each.compute(scheduler=get) for each in wanted)
    same_frame, same_array, same_total = (each.compute(scheduler="sync") for each in wanted)
    assert frame.equals(same_frame)
    assert (array == same_array).all()
    assert total == same_total == sum(x * x for x in range(100) if x % 3)


def test_a_shuffle_by_tasks_works_and_one_on_disk_is_refused(get: ZkplanScheduler) -> None:
    def shuffled() -> Any:
        return nightly.frame_of_groups().shuffle("key").map_partitions(len)

    with dask.config.set({"dataframe.shuffle.method": "tasks"}):
        assert sum(shuffled().compute(scheduler=get)) == 4000
    with (
        dask.config.set({"dataframe.shuffle.method": "disk"}),
        pytest.raises(InvalidTask, match=r'"dataframe.shuffle.method": "tasks"'),
    ):
        shuffled().compute(scheduler=get)
    groups = dask.bag.from_sequence(range(9), npartitions=3).groupby(
        lambda x: x % 2, shuffle="disk"
    )
    with pytest.raises(InvalidTask, match="files of one machine"):
        groups.compute(scheduler=get)


def test_the_scheduler_may_be_set_in_the_configuration_of_dask(get: ZkplanScheduler) -> None:
    with dask.config.set(scheduler=get):
        assert copy.deepcopy(dask.config.config)["scheduler"] is get
        assert dask.delayed(inc)(1).compute() == 2


def test_the_exception_of_the_function_is_raised_here(get: ZkplanScheduler) -> None:
    failed = dask.delayed(inc)(dask.delayed(fail)(dask.delayed(inc)(1)))
    with pytest.raises(LookupError, match="on purpose: 2") as caught:
        failed.compute(scheduler=get)
    assert "in fail" in str(caught.value.__cause__)


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("keep_plan", [False, True], ids=["removed", "kept"])
def test_ctrl_c_cancels_the_plan_of_a_graph_and_its_running_tasks(
    keep_plan: bool, client: Client, tmp_path: Path
) -> None:
    file, gate = str(tmp_path / "notes"), str(tmp_path / "gate")

    def interrupt() -> None:
        wait_for_notes(file, 1)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        dask.delayed(go_on)(file, gate).compute(
            scheduler=ZkplanScheduler(client, keep_plan=keep_plan)
        )
    wait_for_notes(file, 2)
    assert notes(file)[1] == "thread told"
    (tmp_path / "gate").touch()
    assert [plan.status().state for plan in client.plans()] == ["cancelled"] * keep_plan
    for plan in client.plans():
        plan.remove()


def test_each_task_of_a_graph_becomes_one_task_named_by_its_key(client: Client) -> None:
    get = ZkplanScheduler(client, "kept", keep_plan=True)
    graph = {"x": 1, ("y", 0): (inc, "x"), "z": (add, ("y", 0), "x"), "alias": "z"}
    assert get(graph, [["alias"], "x"]) == ((3,), 1)
    plan = client.plan("kept")
    assert plan.status().added == 3  # and one by which the next author knows the graph
    assert "z" in {outcome.name for outcome in plan.outcomes()}
    plan.remove()


def test_large_data_that_several_tasks_share_is_sent_once(client: Client) -> None:
    get = ZkplanScheduler(client, "large", keep_plan=True)
    graph = {"data": b"x" * 100_000, **{f"n{i}": (len, "data") for i in range(5)}}
    assert get(graph, [f"n{i}" for i in range(5)]) == (100_000,) * 5
    plan = client.plan("large")
    assert plan.status().added == 7
    plan.remove()


def test_a_second_author_takes_the_results_of_the_plan_of_the_same_name(
    client: Client, tmp_path: Path
) -> None:
    file = str(tmp_path / "runs")
    graph = {"a": (once, file, 1), "b": (inc, "a")}
    assert ZkplanScheduler(client, "twice", keep_plan=True)(graph, ["b"]) == (2,)
    assert ZkplanScheduler(client, "twice")(graph, ["b"]) == (2,)
    assert notes(file) == ["ran"]
    assert client.plans() == []


def test_threads_that_compute_under_one_name_all_get_the_result(client: Client) -> None:
    get = ZkplanScheduler(client, "shared")
    with ThreadPoolExecutor(4) as threads:
        found = threads.map(lambda _: get({"a": (inc, 1), "b": (inc, "a")}, "b"), range(8))
        assert list(found) == [3] * 8
    assert client.plans() == []


def test_another_graph_under_the_same_name_is_refused(client: Client) -> None:
    get = ZkplanScheduler(client, "twice", keep_plan=True)
    assert get({"a": (inc, 1)}, "a") == 2
    with pytest.raises(PlanError, match="has another graph than this one"):
        get({"b": (inc, 1)}, "b")
    client.plan("twice").remove()


def test_a_plan_whose_author_died_before_completing_it_is_built_again(client: Client) -> None:
    client.create_plan("broken off").add_task(inc, [1])
    assert ZkplanScheduler(client, "broken off")({"a": (inc, 1)}, "a") == 2
    assert client.plans() == []


@pytest.mark.slow
def test_the_result_is_the_same_if_workers_and_the_author_are_killed(tmp_path: Path) -> None:
    """One of two workers dies every two seconds, and the author once: he takes up his plan."""
    folder, file, out = tmp_path / "data", tmp_path / "runs", tmp_path / "out"
    author = (sys.executable, "-m", nightly.__name__, str(folder), str(file), str(out))
    chance = random.Random(7)
    with zkplan.local(workers=2, threads=4, data=folder, grace=1) as client:
        with started(*author) as first:
            wait_for_notes(file, 10)
            first.kill()
        path = client.plan(nightly.NAME).path
        kills = 0
        with started(*author) as second:
            while True:
                try:
                    _, errors = second.communicate(timeout=2.0)
                    break
                except subprocess.TimeoutExpired:
                    workers = client.workers()
                    if len(workers) > 1:  # else the replacement of the last one is on its way
                        os.kill(chance.choice(workers).pid, signal.SIGKILL)
                        kills += 1
        assert second.returncode == 0, errors
        plan = client.plan(nightly.NAME, only=True)
        status = plan.status()
    assert kills >= 2
    assert plan.path == path
    assert (status.state, status.dead, status.finished) == ("done", 0, status.added)
    frame, array, stamps = pickle.loads(out.read_bytes())
    assert frame.equals(nightly.frame().compute(scheduler="synchronous"))
    assert (array == nightly.array().compute(scheduler="synchronous")).all()
    names = [f"{row}.{at}" for row in range(nightly.HEIGHT) for at in range(nightly.WIDTH)]
    assert sorted(stamps) == sorted([*names, "end"])
    assert set(stamps.items()) <= {tuple(line.split()) for line in notes(file)}
