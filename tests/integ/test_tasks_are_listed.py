"""The unfinished tasks of a plan are listed, found by name, and shown with their worker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkplan
from tests.tools.support import WAIT_S, described, fail, pass_gate, wait_for_delayed, wait_until
from zkplan import Client, InvalidTask, Plan, PlanNotFound, TaskSpec, Worker
from zkplan.protocol.core.load import VALUES_FIRST
from zkplan.protocol.layout import PENDING, Entry, delayed_name
from zkplan.protocol.requests import Node
from zkplan.views import unfinished
from zkplan.views.dependencies import dependencies
from zkplan.views.unfinished import TASKS_PER_READ

pytestmark = pytest.mark.usefixtures("nothing_stalls")


def log_and_wait(gate: str) -> str:
    zkplan.current().log("half")
    return pass_gate(gate)


@pytest.fixture
def gate(tmp_path: Path, worker: Worker) -> Iterator[Path]:
    """A gate that opens before the worker is stopped, which would wait for its grace."""
    yield tmp_path / "gate"
    (tmp_path / "gate").touch()


@pytest.fixture
def plan(zkplan_client: Client, gate: Path) -> Plan:
    """A plan with a task in each state that lasts."""
    with zkplan_client.create_plan() as made:
        held = made.add_task(log_and_wait, [str(gate)], name="held")
        made.add_task(str, [held], name="waits")
        made.add_task(fail, name="dies", attempts=1)
        made.add_task(fail, name="comes later", retry_delay=3600)
    wait_until(Path(f"{gate}-reached").exists, "the first one runs")
    wait_until(lambda: made.status().dead, "another one is dead")
    wait_for_delayed(zkplan_client, 1)
    return made


def test_each_task_is_listed_with_its_state(plan: Plan, worker: Worker) -> None:
    found = {task.name: task for task in plan.tasks()}
    assert {name: task.state for name, task in found.items()} == {
        "held": "running",
        "waits": "waiting",
        "dies": "dead",
        "comes later": "delayed",
    }
    assert found["held"].worker == worker.id
    assert [found[name].attempts for name in ("held", "waits", "dies", "comes later")] == [
        *(0, 0, 1, 1)
    ]
    assert [task.number for task in plan.tasks()] == sorted(t.number for t in found.values())


def test_a_listing_has_as_many_tasks_as_asked_for(zkplan_client: Client) -> None:
    plan = zkplan_client.create_plan()
    plan.add_tasks([TaskSpec(int, name=f"t{index}") for index in range(250)])
    assert [task.name for task in plan.tasks()] == [f"t{index}" for index in range(250)]
    assert [task.name for task in islice(plan.tasks(), 3)] == ["t0", "t1", "t2"]
    assert {task.state for task in plan.tasks()} == {"runnable"}


@pytest.mark.parametrize(
    ("listing", "index"),
    [(Plan.tasks, "runnable"), (Plan.outcomes, "results"), (Plan.dead, "dead")],
)
def test_a_plan_without_tasks_has_empty_listings_and_a_missing_plan_is_an_error(
    listing: Callable[[Plan], Iterable[Any]],
    index: str,
    zkplan_client: Client,
    znodes: KazooClient,
) -> None:
    plan = zkplan_client.create_plan()
    assert list(listing(plan)) == []
    # The plan is there, even if somebody has deleted the index by hand.
    znodes.delete(f"{plan.path}/{index}")
    assert list(listing(plan)) == []
    assert plan.retry() == 0
    plan.remove()
    with pytest.raises(PlanNotFound):
        listing(plan)


def test_a_listing_is_read_only_as_far_as_it_is_consumed(
    zkplan_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = zkplan_client.create_plan()
    plan.add_tasks([TaskSpec(int) for _ in range(10 * TASKS_PER_READ)])
    read: list[str] = []
    run = zkplan_client.transport.run

    def recorded(step: Any) -> Any:
        read.append(step.__name__)
        return run(step)

    monkeypatch.setattr(zkplan_client.transport, "run", recorded)
    listed = plan.tasks()
    assert next(listed).state == "runnable"
    assert read.count("read_all") == 1
    assert len(list(listed)) == 10 * TASKS_PER_READ - 1
    assert read.count("read_all") == 10


def test_a_slowly_consumed_listing_shows_the_current_states_of_tasks(
    zkplan_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unfinished, "INDEXES_AGE_S", 0.0)
    plan = zkplan_client.create_plan()
    tasks = plan.add_tasks([TaskSpec(int) for _ in range(2 * TASKS_PER_READ)])
    listed = plan.tasks()
    next(listed)
    entry, raw = Entry("5000", tasks[-1].number, 0, 0), zkplan_client.transport.client
    raw.delete(f"{plan.path}/runnable/{entry.name}")
    raw.create(f"{zkplan_client.paths.delayed}/{delayed_name(10**12, plan.number, entry)}")
    assert list(listed)[-1].state == "delayed"


def test_a_name_of_no_task_or_of_several_is_refused(zkplan_client: Client) -> None:
    plan = zkplan_client.create_plan()
    twins = plan.add_tasks([TaskSpec(int, name="twin"), TaskSpec(int, name="twin")])
    for name in ("missing", "1" * 11, "-1", "task-"):
        with pytest.raises(InvalidTask, match=f"no unfinished task named '{name}'"):
            plan.task(name)
    with pytest.raises(InvalidTask, match=f"2 tasks named 'twin'.*{twins[0].number}"):
        plan.task("twin")


def test_a_claimed_task_is_shown_with_its_worker_and_its_log(plan: Plan, worker: Worker) -> None:
    shown = described(plan.task("held"))
    assert (shown["state"], shown["worker"], shown["attempt"]) == ("running", worker.id, "1")
    assert "progress note of" in shown["log"]
    assert shown["log"][:2] == "20"  # of a date
    assert described(plan.task("comes later"))["state"] == "delayed"


def test_a_task_that_ends_while_it_is_looked_at_is_shown_as_finished(
    zkplan_client: Client, gate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zkplan_client.create_plan() as plan:
        task = plan.add_task(log_and_wait, [str(gate)])
    wait_until(Path(f"{gate}-reached").exists, "it runs")

    def after_its_end(*given: Any) -> Any:
        gate.touch()
        task.result(WAIT_S)
        return dependencies(*given)

    monkeypatch.setattr("zkplan.views.task_details.dependencies", after_its_end)
    shown = described(task)
    assert shown["state"] == "finished"
    assert "Task.result() reads it" in shown["outcome"]


def test_pending_records_are_not_counted_as_claims_of_a_worker(
    zkplan_client: Client, worker: Worker, plan: Plan
) -> None:
    claims_node = zkplan_client.paths.claims_of(worker.id)
    zkplan_client.transport.client.create(f"{claims_node}/{PENDING}of-this-test", b"")
    (found,) = zkplan_client.workers()
    assert found.claims == 1


def test_large_arguments_are_not_read_in_one_answer(
    zkplan_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else limits an answer: a hundred of a megabyte end a server with the usual heap."""
    with zkplan_client.create_plan() as plan:
        plan.add_tasks([TaskSpec(len, [bytes([n]) * 200_000]) for n in range(80)])
    transport = zkplan_client.transport
    received = transport._wait
    sizes = []

    def measured(*given: Any) -> Any:
        answers = received(*given)
        if isinstance(answers, list):
            sizes.append(sum(len(node.data) for node in answers if isinstance(node, Node)))
        return answers

    monkeypatch.setattr(transport, "_wait", measured)
    assert len(list(plan.tasks())) == 80
    assert sum(sizes) > 80 * 200_000
    assert max(sizes) <= VALUES_FIRST * 201_000


def test_an_empty_text_is_neither_the_number_nor_the_name_of_a_task(zkplan_client: Client) -> None:
    with pytest.raises(InvalidTask, match="neither the number nor the name"):
        zkplan_client.create_plan().task("")
