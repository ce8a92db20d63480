"""Results of many tasks at once, and tasks as they complete: in order, with all errors."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, FIRST_EXCEPTION
from typing import Any

import pytest

import zkplan
from tests.tools.support import WAIT_S, fail, wait_until
from zkplan import Client, Plan, Task, Worker
from zkplan.author import results as kept
from zkplan.protocol.requests import ReadMany

gate = threading.Event()


def wait_at_the_gate(value: Any = None) -> Any:
    gate.wait(WAIT_S)
    return value


@pytest.fixture(autouse=True)
def _closed_gate(worker: Worker) -> Iterator[None]:
    gate.clear()
    yield
    gate.set()


@pytest.fixture
def failing(zkplan_client: Client) -> tuple[Plan, dict[str, Task]]:
    """A plan with a task of each fate."""
    with zkplan_client.create_plan(attempts=1) as plan:
        tasks = {
            "kept": plan.add_task(abs, [-1]),
            "given": plan.add_task(abs, [-2]),
            "fails": plan.add_task(fail, keep=True),
        }
        tasks["takes"] = plan.add_task(abs, [tasks["given"]])
        tasks["never runs"] = plan.add_task(str, [tasks["fails"]])
    return plan, tasks


def test_results_come_in_the_order_asked(zkplan_client: Client) -> None:
    with zkplan_client.create_plan() as plan:
        tasks = [plan.add_task(abs, [-number]) for number in range(300)]
    assert plan.results(reversed(tasks), WAIT_S) == list(reversed(range(300)))
    assert plan.results([tasks[7], tasks[7]], WAIT_S) == [7, 7]
    assert plan.results([], WAIT_S) == []


def test_all_kept_results_come_in_the_order_of_task_numbers(zkplan_client: Client) -> None:
    with zkplan_client.create_plan() as plan:
        taken = [plan.add_task(abs, [-number]) for number in range(3)]
        plan.add_task(sum, [taken])
        plan.add_task(abs, [-9])
    assert plan.results(timeout=WAIT_S) == [3, 9]


def test_many_results_cost_few_requests(
    zkplan_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zkplan_client.create_plan() as plan:
        tasks = [plan.add_task(abs, [-number]) for number in range(2000)]
    plan.wait(WAIT_S)
    asked: list[object] = []
    ask = zkplan_client.transport.ask

    def counted(request: Any) -> Any:
        asked.append(request)
        return ask(request)

    monkeypatch.setattr(zkplan_client.transport, "ask", counted)
    assert plan.results(tasks) == list(range(2000))
    assert 0 < sum(isinstance(request, ReadMany) for request in asked) < 10
    assert len(asked) < 20


def test_the_first_failure_is_raised(failing: tuple[Plan, dict[str, Task]]) -> None:
    plan, tasks = failing
    with pytest.raises(ValueError, match="on purpose") as caught:
        plan.results([tasks["kept"], tasks["fails"], tasks["never runs"]], WAIT_S)
    assert isinstance(caught.value.__cause__, zkplan.TaskFailed)


def test_results_may_hold_errors_in_place_of_values(failing: tuple[Plan, dict[str, Task]]) -> None:
    plan, tasks = failing
    found = plan.results(tasks.values(), WAIT_S, on_error="return")
    assert dict(zip(tasks, map(type, found), strict=True)) == {
        "kept": int,
        "given": zkplan.ResultNotKept,
        "fails": ValueError,
        "takes": int,
        "never runs": zkplan.PlanFailed,
    }
    assert list(map(type, plan.results(on_error="return"))) == [int, ValueError, int]


def test_a_result_that_is_not_kept_is_refused_before_the_wait(zkplan_client: Client) -> None:
    with zkplan_client.create_plan() as plan:
        first = plan.add_task(wait_at_the_gate)
        plan.add_task(str, [first])
        dropped = plan.add_task(wait_at_the_gate, keep=False)
    for task in (first, dropped, *(plan.task(each.number) for each in (first, dropped))):
        for ask in (lambda task: plan.results([task]), Task.result, awaited):
            with pytest.raises(zkplan.ResultNotKept, match="not kept"):
                ask(task)
    assert plan.status().finished == 0


@pytest.mark.parametrize("on_error", ["raise", "return"])
def test_a_plan_that_keeps_nothing_is_refused_before_the_wait(
    zkplan_client: Client, on_error: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "TASKS_PER_BATCH", 2)  # several batches are read
    with zkplan_client.create_plan(keep=False) as plan:
        first = plan.add_task(wait_at_the_gate)
        plan.add_task(wait_at_the_gate, [first])
        plan.add_task(wait_at_the_gate)
    for asked in (None, [first], [plan.task(first.number)]):
        with pytest.raises(zkplan.ResultNotKept, match="keep=True"):
            plan.results(asked, on_error=on_error)
    assert plan.status().finished == 0
    plan.add_task(wait_at_the_gate, ["kept"], keep=True)
    gate.set()
    assert plan.results(None, WAIT_S, on_error) == ["kept"]
    with zkplan_client.create_plan(keep=False) as ended:
        ended.add_task(abs, [-1])
    ended.wait(WAIT_S)
    assert ended.results(None, WAIT_S, on_error) == []


def awaited(task: Task) -> Any:
    return asyncio.run(task._awaited())


def test_a_failure_is_raised_even_if_the_result_would_not_be_kept(
    failing: tuple[Plan, dict[str, Task]],
) -> None:
    plan, _ = failing
    with plan.client.create_plan(attempts=1, keep=False) as plan:
        task = plan.add_task(fail)
    assert isinstance(task.exception(WAIT_S), ValueError)
    for ask in (lambda task: plan.results([task]), Task.result, awaited):
        with pytest.raises(ValueError, match="on purpose"):
            ask(plan.task(task.number))


def test_a_task_of_another_plan_is_refused(zkplan_client: Client) -> None:
    other = zkplan_client.create_plan().add_task(abs, [1])
    with pytest.raises(zkplan.ForeignTask, match="is not of"):
        zkplan_client.create_plan().results([other])


def test_a_wait_that_times_out_says_how_many_tasks_are_missing(zkplan_client: Client) -> None:
    with zkplan_client.create_plan() as plan:
        tasks = [plan.add_task(wait_at_the_gate), plan.add_task(abs, [1])]
    tasks[1].result(WAIT_S)
    with pytest.raises(zkplan.WaitTimeout, match="1 of 2 results"):
        plan.results(tasks, timeout=0.2)
    with pytest.raises(zkplan.WaitTimeout, match="1 of 2 tasks"):
        list(zkplan.as_completed(tasks, timeout=0.2))


def test_waiting_inside_the_block_of_the_plan_is_refused(zkplan_client: Client) -> None:
    with zkplan_client.create_plan() as plan:
        task = plan.add_task(abs, [1])
        each: list[Callable[[], object]] = [plan.results, plan.wait, task.result, task.exception]
        each.append(lambda: list(zkplan.as_completed([task])))
        for call in each:
            with pytest.raises(zkplan.PlanError, match="after the block"):
                call()


def test_tasks_of_several_plans_are_yielded_in_order_of_completion(zkplan_client: Client) -> None:
    tasks = []
    for _ in range(2):
        with zkplan_client.create_plan() as plan:
            tasks += [plan.add_task(wait_at_the_gate, ["late"]), plan.add_task(abs, [-1])]
    seen = []
    for task in zkplan.as_completed([*tasks, tasks[0]], WAIT_S):
        seen.append(task.result())
        if len(seen) == 2:
            gate.set()
    assert seen == [1, 1, "late", "late"]


def test_tasks_with_equal_paths_on_two_servers_are_distinguished(zkplan_client: Client) -> None:
    with zkplan.connect("embedded:", root=zkplan_client.root) as other:
        tasks = []
        for client in (zkplan_client, other):
            with client.create_plan() as plan:
                tasks.append(plan.add_task(abs, [-1]))
        assert tasks[0].path == tasks[1].path
        assert list(zkplan.as_completed(tasks[:1] * 2, WAIT_S)) == tasks[:1]
        with zkplan.Worker(other, threads=1):
            assert set(zkplan.as_completed(tasks, WAIT_S)) == set(tasks)


async def first_of(tasks: list[Task]) -> Any:
    return await anext(aiter(zkplan.as_completed(tasks, WAIT_S)))


def called_back(task: Task) -> Any:
    done = threading.Event()
    task.add_done_callback(lambda _: done.set())
    assert done.wait(WAIT_S)
    return task.result()


@pytest.mark.parametrize(
    "wait",
    [
        lambda task: task.result(),
        lambda task: task.plan.results([task]),
        lambda task: task.plan.results(),
        lambda task: task.plan.wait(),
        lambda task: asyncio.run(task._awaited()),
        lambda task: asyncio.run(task.plan.wait_async()),
        lambda task: asyncio.run(first_of([task])).result(),
        lambda task: zkplan.wait([task]).done.pop().result(),
        called_back,
    ],
    ids=["result", "results", "all results", "plan", "await", "async", "each", "wait", "callback"],
)
def test_every_wait_ends_when_its_plan_is_removed(
    wait: Callable[[Task], Any], zkplan_client: Client
) -> None:
    with zkplan_client.create_plan() as plan:
        task = plan.add_task(wait_at_the_gate)
    wait_until(task.running, "it runs")
    remover = threading.Timer(0.3, plan.remove)
    remover.start()
    with pytest.raises((zkplan.PlanCancelled, zkplan.PlanNotFound)):
        wait(task)
    remover.join()


@pytest.mark.parametrize("act", ["cancel", "remove"])
def test_tasks_that_can_never_finish_complete_with_the_reason(
    zkplan_client: Client, act: str
) -> None:
    with zkplan_client.create_plan() as plan:
        task = plan.add_task(wait_at_the_gate)
    wait_until(task.running, "it runs")
    stopper = threading.Timer(0.2, getattr(plan, act))
    stopper.start()
    [seen] = zkplan.as_completed([task], WAIT_S)
    stopper.join()  # it may need the client for longer than the wait
    assert seen is task
    assert isinstance(task.exception(WAIT_S), zkplan.PlanCancelled | zkplan.PlanNotFound)


def test_a_wait_can_end_at_the_first_task_that_completes_or_fails(
    zkplan_client: Client,
) -> None:
    with zkplan_client.create_plan(attempts=1) as plan:
        slow, quick = plan.add_task(wait_at_the_gate), plan.add_task(abs, [1])
        broken = plan.add_task(fail)
    done, not_done = zkplan.wait([slow, quick], WAIT_S, FIRST_COMPLETED)
    assert (done, not_done) == ({quick}, {slow})
    done, not_done = zkplan.wait([slow, broken], WAIT_S, FIRST_EXCEPTION)
    assert (done, not_done) == ({broken}, {slow})
    assert zkplan.wait([slow], 0.1).not_done == {slow}
    gate.set()
    assert zkplan.wait([slow, quick], WAIT_S).done == {slow, quick}
    with pytest.raises(zkplan.ZkplanError, match="FIRST_EXCEPTION"):
        zkplan.wait([slow], return_when="SOON")


def test_a_handle_shows_what_became_of_its_task(failing: tuple[Plan, dict[str, Task]]) -> None:
    _, tasks = failing
    found = {name: type(task.exception(WAIT_S)) for name, task in tasks.items()}
    assert found == {
        "kept": type(None),
        "given": type(None),
        "fails": ValueError,
        "takes": type(None),
        "never runs": zkplan.PlanFailed,
    }
    assert [task.done() for task in tasks.values()] == [True, True, True, True, False]
    states = [task.state() for task in tasks.values()]
    assert states == ["finished", "finished", "dead", "finished", "waiting"]
    info = tasks["fails"].info()
    assert (info.attempts, info.attempts_used, info.failed, info.feeds) == (1, 1, True, 1)
    assert info.last_error == "ValueError: on purpose"


def log_and_wait() -> None:
    zkplan.current().log({"half": 1})
    gate.wait(WAIT_S)


def test_a_running_task_shows_its_worker_and_progress(
    zkplan_client: Client, worker: Worker
) -> None:
    with zkplan_client.create_plan() as plan:
        task = plan.add_task(log_and_wait)
    wait_until(lambda: task.info().progress() == [{"half": 1}], "it has told its progress")
    info = task.info()
    assert (info.state, info.worker, task.running(), task.done()) == (
        "running",
        worker.id,
        True,
        False,
    )
    assert info.since is not None


def test_callbacks_are_called_once_and_their_exceptions_are_logged(
    zkplan_client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Any] = []
    done = threading.Event()

    def note(task: Task) -> None:
        told.append(task.result())
        if len(told) == 3:
            done.set()

    def breaks(task: Task) -> None:
        raise RuntimeError("my callback")

    def exits(task: Task) -> None:
        raise SystemExit("my exit")

    with zkplan_client.create_plan() as plan:
        task = plan.add_task(wait_at_the_gate, [5])
    task.add_done_callback(breaks)
    task.add_done_callback(exits)
    task.add_done_callback(note)
    task.add_done_callback(note)
    gate.set()
    task.result(WAIT_S)
    task.add_done_callback(note)  # has completed already
    assert done.wait(WAIT_S)
    assert told == [5, 5, 5]
    assert "my callback" in caplog.text
    assert "my exit" in caplog.text
    wait_until(
        lambda: not [t for t in threading.enumerate() if t.name == "zkplan-watcher"],
        "the thread ends with the last callback",
    )


def test_coroutines_await_tasks_and_plans(failing: tuple[Plan, dict[str, Task]]) -> None:
    plan, tasks = failing

    async def main() -> None:
        assert await tasks["kept"] == 1
        for name, error in {
            "given": zkplan.ResultNotKept,
            "fails": ValueError,
            "never runs": zkplan.PlanFailed,
        }.items():
            with pytest.raises(error):
                await tasks[name]
        seen = {task async for task in zkplan.as_completed(tasks.values(), WAIT_S)}
        assert seen == set(tasks.values())
        with pytest.raises(zkplan.PlanFailed):
            await plan.wait_async(WAIT_S)

    asyncio.run(main())


def test_a_cancelled_coroutine_leaves_no_thread(zkplan_client: Client) -> None:
    with zkplan_client.create_plan() as plan:
        task = plan.add_task(wait_at_the_gate)

    async def main() -> None:
        for wait in (plan.wait_async(), task._awaited()):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(wait, 0.2)
        with pytest.raises(zkplan.WaitTimeout, match="1 of 1 tasks"):
            await anext(aiter(zkplan.as_completed([task], 0.2)))

    asyncio.run(main())
    names = ("zkplan-watcher", "zkplan-wait")
    wait_until(
        lambda: not [t for t in threading.enumerate() if t.name in names],
        "the threads end with the waits",
    )
