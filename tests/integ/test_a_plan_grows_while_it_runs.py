"""Tasks are added to running plans, on finished tasks, and from inside running tasks."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

import zkplan
from tests.tools.support import Here, WorkerProcess, note, notes, pass_gate, wait_until, working
from zkplan import (
    Client,
    PayloadTooLarge,
    Plan,
    PlanDrained,
    PlanError,
    PlanFailed,
    ResultNotKept,
    TaskSpec,
    Worker,
)
from zkplan.protocol import failpoints
from zkplan.protocol.core import repeatable_adds as wide_join
from zkplan.protocol.core.add import NewTask
from zkplan.protocol.core.repeatable_adds import EDGES_PER_MULTI
from zkplan.protocol.failpoints import VARIABLE
from zkplan.protocol.features.author import Author
from zkplan.protocol.requests import Step

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


def test_an_interrupted_add_of_several_transactions_says_how_much_was_added(
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

    # Such a wide join has transactions of its own; the tasks before it have ended by then.
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


def test_the_result_of_the_adding_task_is_an_argument_of_the_added_task(
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


def test_a_task_that_adds_a_dependent_of_an_unkept_result_fails_with_the_reason(
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


@pytest.mark.parametrize("isolation", ["thread", "process"])
@pytest.mark.parametrize("how", ["task", "tasks", "map"])
def test_a_builder_without_dependents_may_return_the_tasks_it_adds(
    zkplan_client: Client, isolation: Any, how: str
) -> None:
    def build() -> Any:
        plan = zkplan.current().plan
        if how == "task":
            return plan.add_task(abs, [-1])
        return plan.map(abs, [-1]) if how == "map" else plan.add_tasks([TaskSpec(abs, [-1])])

    with zkplan_client.create_plan(attempts=1) as plan:
        builder = plan.add_task(build, isolation=isolation)
    assert plan.wait(30).finished == 2
    assert builder.result(1) is None


#: More than one request carries, with a join of more edges than one transaction makes.
PARTS, LARGE = EDGES_PER_MULTI, 5


def build_many(folder: str) -> str:
    """Adds parts, large ones, a join of all, and what takes that, a gate and its own result."""
    here, note_to = zkplan.current(), str(Path(folder) / "ran")
    numbers = [here.plan.add_task(noted, [note_to, n, b""], keep=False) for n in range(PARTS)]
    numbers += [here.plan.add_task(noted, [note_to, -n, b"x" * 250_000]) for n in range(LARGE)]
    total = here.plan.add_task(sum, [numbers], queue="sums")
    gate = zkplan.when(f"{here.plan.path}/ready")
    here.plan.add_task(noted_together, [note_to, total, here.task, gate], name="end", keep=True)
    return "built"


def noted(file: str, number: int, _: Any) -> int:
    note(file, str(number))
    return number


def noted_together(file: str, total: int, built: str, _: bytes) -> tuple[int, str]:
    note(file, "end")
    return total, built


def require_built(plan: Plan, folder: Path) -> None:
    """All that `build_many` adds has run, and once."""
    status = plan.wait(100)
    # With them the builder, the sum, the last task and its gate.
    assert (status.finished, status.dead) == (PARTS + LARGE + 4, 0)
    assert plan.task("end").result(1) == (sum(range(PARTS)) - sum(range(LARGE)), "built")
    ran = [*map(str, range(PARTS)), *(str(-number) for number in range(LARGE)), "end"]
    assert sorted(notes(folder / "ran")) == sorted(ran)


def test_a_task_adds_as_many_tasks_as_an_author_may(
    here: Here, zkplan_client: Client, tmp_path: Path
) -> None:
    with zkplan_client.create_plan(attempts=1) as plan:
        plan.add_task(build_many, [str(tmp_path)])
    with working(*here, of_worker={"queues": ["sums"]}):
        require_built(plan, tmp_path)


def test_a_task_in_its_own_process_adds_as_many(zkplan_client: Client, tmp_path: Path) -> None:
    def build() -> None:
        plan = zkplan.current().plan
        parts = [plan.add_task(len, [b"x" * 250_000]) for _ in range(5)]
        plan.add_task(noted, [str(tmp_path / "ran"), 7, parts], name="end")

    with zkplan_client.create_plan(attempts=1) as plan:
        plan.add_task(build, isolation="process")
    status = plan.wait(60)
    assert (status.finished, status.dead) == (7, 0)
    assert notes(tmp_path / "ran") == ["7"]


@pytest.mark.parametrize(
    "point", ["wide.fixing", "wide_adds.between", "wide_adds.edges", "wide_adds.let_go"]
)
def test_tasks_added_by_a_task_are_added_once_wherever_its_worker_dies(
    here: Here,
    zkplan_client: Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    worker: Worker,
    point: str,
) -> None:
    with zkplan_client.create_plan(attempts=1) as plan:
        plan.add_task(build_many, [str(tmp_path)], queue="builders")
    # At the second pass: something is done there, and something is left.
    monkeypatch.setenv(VARIABLE, f"{point}=kill" if point == "wide.fixing" else f"{point}=kill:1:1")
    options = ("--session-timeout", "2", "--queue", "builders")
    with WorkerProcess(*here, tmp_path / "log", *options) as doomed:
        assert doomed.process.wait_ended(60)
        assert doomed.process.exit_code == -signal.SIGKILL
    if point != "wide_adds.let_go":
        assert notes(tmp_path / "ran") == [], "nothing runs before all of it is there"
    with working(*here, of_worker={"queues": ["builders", "sums"]}):
        require_built(plan, tmp_path)


def test_a_dependency_that_is_lost_while_tasks_are_added_fails_its_dependent(
    here: Here, zkplan_client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stood when the outcome of the adding task was fixed, so the other tasks count."""
    gate = tmp_path / "gate"

    def build(number: str) -> None:
        plan = zkplan.current().plan
        for _ in range(5):
            plan.add_task(len, [b"x" * 250_000])
        plan.add_task(str, [plan.task(number)], name="late")

    with zkplan_client.create_plan() as plan:
        held = plan.add_task(pass_gate, [str(gate)], queue="held", keep=False)
        plan.add_task(build, [held.number], queue="adders")

    def reached(name: str) -> None:
        if name == "wide_adds.between" and not gate.exists():
            gate.touch()
            wait_until(lambda: plan.status().finished == 1, "the dependency has finished")

    monkeypatch.setattr(failpoints, "reach", reached)
    with (
        working(*here, of_worker={"queues": ["held"]}),
        working(*here, of_worker={"queues": ["adders"]}),
        pytest.raises(PlanFailed) as failed,
    ):
        plan.wait(60)
    assert "was not kept" in failed.value.failures["late"]
    assert (plan.status().finished, plan.status().dead) == (1 + 1 + 5, 1)


def test_a_task_that_adds_a_task_too_large_for_a_request_fails_at_once(
    zkplan_client: Client,
) -> None:
    def greedy() -> None:
        zkplan.current().plan.add_task(len, [b"x" * 1_100_000])

    with zkplan_client.create_plan(attempts=5, retry_delay=100.0) as plan:
        task = plan.add_task(greedy)
    with pytest.raises(PayloadTooLarge, match="store for large values"):
        task.result(30)
    assert (plan.status().added, plan.status().dead) == (1, 1)


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
