"""Tasks are added to running plans, on finished tasks, and from inside running tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import zkplan
from zkplan import Client, PayloadTooLarge, PlanDrained, PlanError, ResultNotKept, TaskSpec
from zkplan.protocol import wide_join
from zkplan.protocol.adding import NewTask
from zkplan.protocol.author import EDGES_PER_MULTI, Author
from zkplan.protocol.requests import Step

from .support import Here, note, notes, pass_gate, wait_until, working

pytestmark = pytest.mark.usefixtures("nothing_stalls", "worker")


def test_a_finished_task_with_a_kept_result_may_be_an_argument(
    zkplan_client: Client, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    with zkplan_client.create_plan() as plan:
        first = plan.add_task(lambda: 1, keep=True)
        gone = plan.add_task(lambda: 2, keep=False)
        held = plan.add_task(pass_gate, [str(gate), first, gone])
    wait_until(lambda: plan.status().finished == 2, "the first two are finished")
    late = plan.add_task(lambda x, y: (x, y), [first, first])
    mixed = plan.add_task(lambda x, y: (x, y), [first, held])
    with pytest.raises(ResultNotKept, match=r"not kept.*keep=True"):
        plan.add_task(lambda x: x, [gone])
    gate.touch()
    assert late.result(30) == (1, 1)
    assert mixed.result(30) == (1, "open")
    assert plan.wait(30).finished == 5


def test_an_add_of_several_transactions_says_how_much_of_it_was_added(
    zkplan_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = zkplan_client.create_plan()
    add_wide_join = wide_join.add_wide_join

    def add_when_drained(author: Author, task: NewTask) -> Step[None]:
        # Ready only now: a plan that runs while its tasks are added may drain between two of them.
        same = zkplan_client.plan(plan.path)
        same.mark_ready()
        wait_until(same.is_drained, "the plan is drained")
        yield from add_wide_join(author, task)

    # A join of so many edges has transactions of its own; what stands before it has ended by then.
    monkeypatch.setattr(wide_join, "add_wide_join", add_when_drained)
    parts = [TaskSpec(abs, [-number], keep=True) for number in range(EDGES_PER_MULTI + 1)]
    with pytest.raises(
        PlanDrained, match=r"the first 1201 of the 1203 tasks .* in the plan"
    ) as got:
        plan.add_tasks([*parts, TaskSpec(sum, [list(parts)]), TaskSpec(abs, [-1])])
    assert got.value.added == EDGES_PER_MULTI + 1
    assert plan.wait(30).added == EDGES_PER_MULTI + 1
    with pytest.raises(PlanDrained) as got:
        plan.add_tasks([TaskSpec(abs, [-1])])
    assert got.value.added == 0


def split(depth: int) -> Any:
    """Adds two tasks of its own kind and one that joins them, until `depth` is 0."""
    if depth == 0:
        return 1
    plan = zkplan.current().plan
    left, right = plan.add_tasks([TaskSpec(split, [depth - 1]), TaskSpec(split, [depth - 1])])
    plan.add_task(collect, [depth, left, right, zkplan.current().task])
    return depth


def collect(depth: int, left: Any, right: Any, own: int) -> tuple[Any, ...]:
    assert own == depth
    return left, right


def test_a_running_task_adds_tasks_that_add_tasks(zkplan_client: Client) -> None:
    with zkplan_client.create_plan(attempts=1) as plan:
        plan.add_task(split, [4])
    status = plan.wait(60)
    # 31 splits, and a join for each of the 15 that split.
    assert (status.finished, status.dead) == (31 + 15, 0)


def test_the_result_of_the_adding_task_is_an_argument_of_what_it_adds(
    zkplan_client: Client, tmp_path: Path
) -> None:
    file = tmp_path / "seen"

    def parent() -> list[int]:
        here = zkplan.current()
        first = here.plan.add_task(lambda own: [*own, 3], [here.task])
        here.plan.add_task(note_sum, [str(file), here.task, first], name="end")
        return [1, 2]

    with zkplan_client.create_plan() as plan:
        plan.add_task(parent)
    status = plan.wait(30)
    assert notes(file) == ["[1, 2] [1, 2, 3]"]
    # It went to them, as along an edge: only the last result went to nobody.
    assert status.finished == 3
    assert len(list(plan.outcomes())) == 1


def note_sum(file: str, *values: Any) -> None:
    note(file, " ".join(str(value) for value in values))


def test_a_parent_that_fails_after_adding_adds_nothing(
    zkplan_client: Client, tmp_path: Path
) -> None:
    file = str(tmp_path / "children")

    def parent() -> str:
        here = zkplan.current()
        for number in range(3):
            here.plan.add_task(note_sum, [file, here.attempt, number])
        if here.attempt < 2:
            raise ValueError("not yet")
        return "done"

    with zkplan_client.create_plan(attempts=3, retry_delay=0) as plan:
        plan.add_task(parent)
    status = plan.wait(30)
    assert sorted(notes(file)) == ["2 0", "2 1", "2 2"]
    assert status.finished == 4


def test_a_running_task_depends_on_finished_tasks_of_its_plan(
    zkplan_client: Client, tmp_path: Path
) -> None:
    file = str(tmp_path / "late")
    with zkplan_client.create_plan() as plan:
        kept = plan.add_task(lambda: 5, keep=True)
        plan.add_task(adds_upon, [file, kept.number, kept])
    assert plan.wait(30).finished == 3
    assert notes(file) == ["5"]


def adds_upon(file: str, number: str, _: int) -> None:
    """Refers to a task by its number alone, so that it may have finished."""
    plan = zkplan.current().plan
    plan.add_task(note_sum, [file, plan.task(number)], name="late")


def test_adding_upon_a_result_that_was_not_kept_fails_the_adder_with_the_reason(
    zkplan_client: Client,
) -> None:
    with zkplan_client.create_plan(attempts=1) as plan:
        gone = plan.add_task(lambda: 5, keep=False)
        adder = plan.add_task(adds_upon, ["", gone.number, gone])
    with pytest.raises(ResultNotKept, match="was not kept"):
        adder.result(30)
    assert plan.status().added == 2


def test_a_large_result_and_its_adds_are_committed_together(
    zkplan_client: Client, tmp_path: Path
) -> None:
    """Too much for one transaction: the delivery is a wide one, and the adds are part of it."""
    file = str(tmp_path / "children")

    def parent() -> bytes:
        here = zkplan.current()
        for number in range(4):
            here.plan.add_task(lambda data, n: note(file, f"{n} {len(data)}"), [here.task, number])
        here.plan.add_task(note, [file, "alone"])
        return b"x" * 400_000

    with zkplan_client.create_plan(attempts=2, retry_delay=0) as plan:
        plan.add_task(parent)
    status = plan.wait(30)
    assert (status.finished, status.dead) == (6, 0)
    assert sorted(notes(file)) == [*(f"{n} 400000" for n in range(4)), "alone"]


def test_a_task_may_not_add_more_than_its_commit_carries(zkplan_client: Client) -> None:
    def greedy() -> tuple[int, str]:
        plan = zkplan.current().plan
        for number in range(100):
            try:
                plan.add_task(len, [b"x" * 50_000])
            except PayloadTooLarge as error:
                return number, str(error)
        return 100, ""

    with zkplan_client.create_plan() as plan:
        task = plan.add_task(greedy, keep=True)
    added, told = task.result(30)
    assert 1 <= added < 100
    assert f"the {added + 1} tasks that task {task.number} adds" in told
    assert "Let it add tasks that add the rest" in told
    assert "store" not in told, "it would not help here"
    assert plan.wait(30).finished == added + 1


def test_a_task_adds_a_thousand_tasks_in_its_commit(zkplan_client: Client) -> None:
    def build() -> int:
        plan = zkplan.current().plan
        plan.map(abs, range(-500, 0))
        for _ in range(500):
            plan.add_task(int)
        return 7

    with zkplan_client.create_plan(attempts=1) as plan:
        builder = plan.add_task(build, keep=True)
    assert builder.result(30) == 7
    status = plan.wait(100)
    assert (status.finished, status.dead) == (1001, 0)


def test_a_task_cannot_wait_for_its_own_plan(zkplan_client: Client) -> None:
    with zkplan_client.create_plan(attempts=1) as plan:
        task = plan.add_task(lambda: zkplan.current().plan.wait())
    with pytest.raises(PlanError, match="cannot wait for its own plan"):
        task.result(30)


def test_two_authors_add_to_one_plan_at_once(
    here: Here, zkplan_client: Client, tmp_path: Path
) -> None:
    """Each predicts numbers the other takes; nothing is lost, doubled or mixed up."""
    import threading

    file, gate = str(tmp_path / "ran"), tmp_path / "gate"
    with zkplan_client.create_plan() as plan:
        # Without it the plan could drain between two adds, and would take no more.
        plan.add_task(pass_gate, [str(gate)])
    errors: list[BaseException] = []

    def author(name: str) -> None:
        try:
            with zkplan.connect(*here) as client:
                mine = client.plan(plan.path)
                for batch in range(8):
                    values = mine.add_tasks(
                        [TaskSpec(lambda x: x, [(name, batch, i)], keep=True) for i in range(10)]
                    )
                    mine.add_task(note_sum, [file, name, batch, values[0], values[9]])
        except BaseException as error:
            errors.append(error)

    with working(*here):
        threads = [threading.Thread(target=author, args=(name,)) for name in "abc"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        gate.touch()
        assert not errors
        status = plan.wait(60)
    expected = [f"{n} {b} {(n, b, 0)} {(n, b, 9)}" for n in "abc" for b in range(8)]
    assert sorted(notes(file)) == sorted(expected)
    assert status.added == status.finished == 1 + 3 * 8 * 11
