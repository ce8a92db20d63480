"""A task runs only on workers that serve its queue, and the author is warned if none does."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import zkplan
from tests.tools.support import WAIT_S, Here, Run, plain_client, tree, wait_until, working
from zkplan.errors import InvalidTask, WaitTimeout
from zkplan.runtime.poller import Poller
from zkplan.transport import Transport


def where(*_: Any) -> str:
    return zkplan.current().worker


def fails_once(*_: Any) -> str:
    if zkplan.current().attempt == 0:
        raise ValueError("the first attempt")
    return zkplan.current().worker


def adds_more(*_: Any) -> None:
    plan = zkplan.current().plan
    plan.add_task(where, name="added", queue="late", keep=True)


def serving(stack: ExitStack, here: Here, *queues: str) -> zkplan.Worker:
    return stack.enter_context(
        working(*here, threads=1, of_worker={"queues": queues or ("default",)})
    )


def test_each_task_runs_on_a_worker_that_serves_its_queue(
    zkplan_client: zkplan.Client, here: Here
) -> None:
    @zkplan.task(queue="b.2", retry_delay=0.05, keep=True)
    def decorated(*_: Any) -> str:
        return fails_once()

    with ExitStack() as stack:
        workers = {"default": serving(stack, here), "a-1": serving(stack, here, "a-1")}
        workers["b.2"] = workers["late"] = serving(stack, here, "late", "b.2")
        with zkplan_client.create_plan("mixed", queue="a-1", retry_delay=0.05) as plan:
            first = plan.add_task(where, keep=True)
            # Edges with one input, which a commit claims by itself, and with more, which it
            # publishes.
            second = plan.add_task(where, [first], queue="default", keep=True)
            third = decorated(second, first)
            again = plan.add_task(fails_once, [[first, second, third]], keep=True)
            mapped = plan.map(where, range(3), queue="default")
            plan.add_task(adds_more, [again])
        plan.wait(timeout=20)
        ran = [task.result() for task in (first, second, third, again)]
        assert ran == [workers[name].id for name in ("a-1", "default", "b.2", "a-1")]
        assert set(mapped) == {workers["default"].id}
        assert plan.task("added").result() == workers["late"].id
        assert [each.queues for each in zkplan_client.workers() if each.id == ran[2]] == [
            ("late", "b.2")
        ]


def test_dead_tasks_and_tasks_of_a_lost_worker_stay_in_their_queue(
    zkplan_client: zkplan.Client, here: Here, tmp_path: Path
) -> None:
    with zkplan_client.create_plan("lost", queue="gpu", attempts=1) as plan:
        task = plan.add_task(fails_once, name="dead")
        file = tmp_path / "exported"
    with ExitStack() as stack:
        serving(stack, here, "gpu")
        wait_until(lambda: task.state() == "dead", "it is dead")
    plan.retry()
    assert [(queue.name, queue.runnable) for queue in zkplan_client.queues()] == [
        ("default", 0),
        ("gpu", 1),
    ]
    zkplan_client.export_plan(plan, file, pause=True, remove=True)
    moved = zkplan_client.import_plan(file)
    moved.resume()
    late = moved.add_task(where, [moved.task("dead")], queue="cpu")
    with ExitStack() as stack:
        of_gpu, of_cpu = serving(stack, here, "gpu"), serving(stack, here, "cpu")
        assert late.result(timeout=10) == of_cpu.id
        assert of_gpu.statistics().executed == of_cpu.statistics().executed == 1


def test_a_worker_takes_the_queue_it_prefers_first(
    zkplan_client: zkplan.Client, here: Here
) -> None:
    with zkplan_client.create_plan("order") as plan:
        notes = [plan.add_task(where, queue="low", priority=9) for _ in range(4)]
        urgent = [plan.add_task(where, queue="high") for _ in range(4)]
    raw = zkplan_client.transport.client
    with ExitStack() as stack:
        serving(stack, here, "high", "low", "none.of.it")
        plan.wait(timeout=20)
    path = f"{plan.path}/results/"
    ended = [raw.exists(path + task.number).czxid for task in [*urgent, *notes]]
    assert max(ended[:4]) <= min(ended[4:])


def test_the_author_is_warned_once_that_no_worker_serves_a_queue(
    zkplan_client: zkplan.Client, here: Here, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    with ExitStack() as stack:
        serving(stack, here)
        with zkplan_client.create_plan("waits") as plan:
            task = plan.add_task(where, queue="gpu")
        with pytest.raises(WaitTimeout, match="no worker serves the queue gpu; start one: zkplan"):
            plan.wait(timeout=4.5)
        told = [r.getMessage() for r in caplog.records if "serves the queue gpu" in r.getMessage()]
        assert len(told) == 1, told
        for why in (plan.why(), task.why()):
            assert [cause.code for cause in why.causes] == ["unserved_queue"]
            assert "zkplan worker --queue gpu" in why.causes[0].advice
        listed = run("queue", "ls", "-o", "json").data[-1]
    assert listed["name"] == "gpu"
    assert listed["runnable"] == 1
    assert listed["workers"] == []


@pytest.mark.parametrize("name", ["GPU", "", "a" * 41, "a/b", ".", "..", 3, ["gpu"]])
def test_an_invalid_queue_name_is_refused_before_anything_is_written(
    zkplan_client: zkplan.Client, name: Any
) -> None:
    plan = zkplan_client.create_plan("none")
    with pytest.raises(InvalidTask, match="queue must be a name: 1 to 40"):
        plan.add_task(where, queue=name)
    with pytest.raises(InvalidTask, match="queue must be a name: 1 to 40"):
        zkplan_client.create_plan("none", queue=name)
    with pytest.raises(zkplan.ZkplanError, match="is not the name of a queue"):
        zkplan.Worker(zkplan_client, queues=[name])
    assert plan.status().tasks == 0


def test_tasks_without_a_named_queue_cause_no_request_about_queues(
    zkplan_client: zkplan.Client, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    submit = Transport.submit

    def spy(self: Transport, request: Any, done: Any) -> Any:
        seen.append(repr(request))
        return submit(self, request, done)

    monkeypatch.setattr(Transport, "submit", spy)
    with ExitStack() as stack:
        serving(stack, here)
        with zkplan_client.create_plan("plain") as plan:
            tasks = [plan.add_task(where)]
            for _ in range(20):
                tasks.append(plan.add_task(where, [tasks[-1], tasks[0]]))
        plan.wait(timeout=20)
    # The end of a plan asks whether the plan has queues, in a request that is sent anyhow.
    per_task = [text for text in seen if "/queues" in text and "/add-count" not in text]
    per_task = [text for text in per_task if "/done" not in text]
    assert per_task == [], per_task[0]
    with plain_client(here[0]) as raw:
        assert not [path for path in tree(raw, plan.path) if "/queues" in path]


def test_unannounced_work_is_found_in_every_queue(
    zkplan_client: zkplan.Client, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = zkplan.Backoff(initial_s=0.05, max_s=0.1)
    with zkplan.connect(*here) as client:
        worker = zkplan.Worker(client, queues=["default", "gpu"], backoff=quick)
        registered = threading.Event()
        worker.on_ready(lambda _: registered.set())
        with worker:
            assert registered.wait(WAIT_S)
            with zkplan_client.create_plan("first") as plan:
                held = plan.add_task(time.sleep, [2.0])  # so that the plan does not end
            wait_until(lambda: held.state() == "running", "it runs")
            # From now on watches tell this worker nothing.
            monkeypatch.setattr(Poller, "touched", lambda self, path: True)
            later = [plan.add_task(where, queue=queue) for queue in ("gpu", "default")]
            with zkplan_client.create_plan("second") as second:
                later.append(second.add_task(where))
            assert {task.result(timeout=10) for task in later} == {worker.id}
