"""A failing function is retried until its task is dead, and every detail can be read."""

from __future__ import annotations

import itertools
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

import zkplan
from tests.tools.support import note, notes, wait_until
from zkplan import Client, PayloadTooLarge, PlanFailed, ResultNotKept, TaskFailed

pytestmark = pytest.mark.usefixtures("nothing_stalls", "worker")


class Refused(Exception):
    """An error with more than a message."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(code, reason)
        self.code, self.reason = code, reason


class Unpicklable(Exception):
    def __init__(self) -> None:
        super().__init__("holds a generator")
        self.items = (number for number in range(3))


def fail_until(attempts: int, file: str) -> str:
    note(file, str(zkplan.current().attempt))
    if len(notes(file)) < attempts:
        raise Refused(len(notes(file)), "not yet")
    return "at last"


def refuse(code: int) -> None:
    raise Refused(code, "never")


def test_a_failed_task_is_retried_with_a_growing_attempt_number(
    zkplan_client: Client, tmp_path: Path
) -> None:
    file = tmp_path / "tries"
    with zkplan_client.create_plan(attempts=3, retry_delay=0) as plan:
        task = plan.add_task(fail_until, [3, str(file)])
    assert task.result(30) == "at last"
    assert notes(file) == ["0", "1", "2"]
    assert plan.wait(30).dead == 0


def test_the_delay_between_attempts_is_kept_and_grows(
    zkplan_client: Client, tmp_path: Path
) -> None:
    file = str(tmp_path / "times")

    def fail() -> None:
        note(file, str(time.time()))
        raise ValueError

    with zkplan_client.create_plan(attempts=3, retry_delay=0.4) as plan:
        task = plan.add_task(fail)
    with pytest.raises(ValueError):
        task.result(30)
    times = [float(line) for line in notes(file)]
    first, second = (later - earlier for earlier, later in itertools.pairwise(times))
    # 0.4 s and 0.8 s, each shortened by chance by at most 30 %.
    assert first >= 0.27
    assert second >= 0.55


def test_a_dead_task_gives_the_original_exception_and_the_remote_traceback(
    zkplan_client: Client,
) -> None:
    with zkplan_client.create_plan(attempts=2, retry_delay=0) as plan:
        task = plan.add_task(refuse, [42], name="refuser")
    with pytest.raises(Refused) as caught:
        task.result(30)
    assert (caught.value.code, caught.value.reason) == (42, "never")
    cause = caught.value.__cause__
    assert isinstance(cause, TaskFailed)
    assert cause.task == "refuser"
    assert 'raise Refused(code, "never")' in cause.remote_traceback
    assert "in refuse" in "".join(traceback.format_exception(caught.value))
    # The frames of zkplan itself would only be noise.
    assert "zkplan/runtime/" not in cause.remote_traceback


def test_a_result_too_large_fails_its_task_at_once(zkplan_client: Client, tmp_path: Path) -> None:
    """It would be as large the next time."""
    file = str(tmp_path / "runs")

    def large() -> bytes:
        note(file, "ran")
        return bytes(1_100_000)

    with zkplan_client.create_plan(attempts=3, retry_delay=0) as plan:
        task = plan.add_task(large, name="too much")
        other = plan.add_task(lambda: "fine")
    told = "the result of task too much: 1100.*store for large values"
    with pytest.raises(PayloadTooLarge, match=told) as caught:
        task.result(30)
    assert 1_100_000 <= caught.value.size < 1_101_000
    assert 1_000_000 <= caught.value.limit < 1_048_576
    assert notes(file) == ["ran"]
    assert dict(plan.dead())[task.number].a == 1
    assert other.result(30) == "fine"


def test_a_wait_for_a_plan_with_a_dead_task_reports_it(zkplan_client: Client) -> None:
    with zkplan_client.create_plan(attempts=1) as plan:
        bad = plan.add_task(refuse, [1], name="bad")
        good = plan.add_task(lambda: "good", name="good")
        both = plan.add_task(lambda a, b: (a, b), [bad, good], name="both")
    with pytest.raises(PlanFailed, match=r"retry.*bad: Refused: \(1, 'never'\)") as caught:
        plan.wait(30)
    assert caught.value.failures == {"bad": "Refused: (1, 'never')"}
    with pytest.raises(PlanFailed):
        both.result(30)
    status = plan.status()
    assert (status.state, status.tasks, status.dead, status.runnable) == ("failed", 2, 1, 0)


def test_a_dead_task_runs_again_after_a_retry(zkplan_client: Client, tmp_path: Path) -> None:
    file = tmp_path / "tries"
    with zkplan_client.create_plan(attempts=2, retry_delay=0) as plan:
        task = plan.add_task(fail_until, [4, str(file)])
        after = plan.add_task(lambda text: text.upper(), [task])
    assert isinstance(task.exception(30), Refused)
    assert plan.retry() == 1
    assert after.result(30) == "AT LAST"
    assert plan.wait(30).dead == 0
    # The numbers go on: what an earlier attempt wrote can be told from what this one writes.
    assert notes(file) == ["0", "1", "2", "3"]
    assert plan.retry() == 0
    assert task.retry() is False
    with pytest.raises(ResultNotKept):
        plan.task(task.number).result(30)


def test_a_cascade_fails_all_dependents_and_the_plan_drains(zkplan_client: Client) -> None:
    with zkplan_client.create_plan(attempts=1, on_failure="cascade") as plan:
        bad = plan.add_task(refuse, [7], name="bad")
        good = plan.add_task(lambda: 1, name="good")
        middle = plan.add_task(lambda a, b: a, [bad, good], name="middle")
        end = plan.add_task(lambda a: a, [middle], name="end")
    with pytest.raises(PlanFailed, match="has ended; 3 tasks failed") as caught:
        plan.wait(30)
    assert set(caught.value.failures) == {"bad", "middle", "end"}
    assert "Refused" in caught.value.failures["end"]
    assert plan.status().state == "failed"
    with pytest.raises(Refused):
        bad.result(10)
    for task, where in ((middle, "which it depends on"), (end, "2 tasks before it")):
        with pytest.raises(Refused) as original:
            task.result(10)
        told = f"task {int(bad.number)}, {where}, failed: Refused"
        assert told in str(original.value.__cause__)


def test_a_task_that_times_out_gets_another_attempt(zkplan_client: Client, tmp_path: Path) -> None:
    file, gate = tmp_path / "tries", tmp_path / "gate"

    def hang(file: str, gate: str) -> str:
        here = zkplan.current()
        note(file, f"attempt {here.attempt}")
        if here.attempt == 0:
            wait_until(lambda: here.cancelled, "the task is told that its time is over")
            note(file, "told")
            wait_until(lambda: Path(gate).exists(), "the gate opens")
            return "too late"
        return "in time"

    # Later attempts have no more time than the first: one that had to wait for the processor may
    # not end in it, and there is another one.
    with zkplan_client.create_plan(attempts=20, retry_delay=0, timeout=2.0) as plan:
        task = plan.add_task(hang, [str(file), str(gate)])
    assert task.result(30) == "in time"
    wait_until(lambda: "told" in notes(file), "the first attempt is told")
    gate.touch()
    noted = notes(file)
    assert noted.count("attempt 0") == noted.count("told") == 1
    assert len(noted) > 2
    assert plan.wait(30).finished == 1


def raise_unpicklable() -> None:
    raise Unpicklable


def exit_python() -> None:
    exec("raise SystemExit(3)")


def wait_a_second() -> None:
    threading.Event().wait(1.0)


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (raise_unpicklable, r"bad \(\S+\) is out of attempts: Unpicklable: holds a generator"),
        (exit_python, "SystemExit: 3"),
        (wait_a_second, r"bad.*TimeoutError: it ran longer than .* 0.1 s"),
    ],
)
def test_a_failure_without_a_serialisable_exception_is_shown_as_text(
    function: Callable[[], None], told: str, zkplan_client: Client
) -> None:
    with zkplan_client.create_plan(attempts=1) as plan:
        task = plan.add_task(function, timeout=0.1 if function is wait_a_second else 30, name="bad")
        other = plan.add_task(lambda: 1)
    with pytest.raises(TaskFailed, match=told):
        task.result(30)
    assert other.result(30) == 1


def test_a_task_with_many_logs_and_a_large_result_is_committed(zkplan_client: Client) -> None:
    def chatty() -> bytes:
        here = zkplan.current()
        for number in range(300):
            here.log(number)
        return b"x" * 1_020_000

    with zkplan_client.create_plan(attempts=1) as plan:
        task = plan.add_task(chatty)
    assert len(task.result(60)) == 1_020_000
    plan.wait(30)


def test_the_context_names_plan_task_and_worker(
    zkplan_client: Client, worker: zkplan.Worker
) -> None:
    def look() -> tuple[str, str, str, str, int, bool]:
        here = zkplan.current()
        here.check()
        return (
            here.plan.path,
            here.task.number,
            here.name,
            here.worker,
            here.attempt,
            here.cancelled,
        )

    with zkplan_client.create_plan("mine") as plan:
        task = plan.add_task(look, name="looker")
    assert task.result(30) == (plan.path, task.number, "looker", worker.id, 0, False)
    with pytest.raises(zkplan.ZkplanError, match="only inside a task"):
        zkplan.current()
