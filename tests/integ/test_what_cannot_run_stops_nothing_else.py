"""Missing workers, modules and secrets, and damaged znodes are reported, and stop nothing else."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

import zkplan
from tests.tools.support import (
    Here,
    WorkerProcess,
    key_file,
    note,
    notes,
    secret_of,
    wait_until,
    working,
)
from zkplan import Client, PayloadUndecodable, WaitTimeout


@pytest.mark.usefixtures("quick_looks")
def test_a_wait_without_workers_times_out_and_says_how_to_start_one(
    zkplan_client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    with zkplan_client.create_plan() as plan:
        task = plan.add_task(int)
    command = f"zkplan worker --hosts {zkplan_client.transport.hosts} --root {zkplan_client.root}"
    with pytest.raises(WaitTimeout, match=rf"(?s)not done after 0\.2 s.*{command}"):
        plan.wait(0.2)
    with pytest.raises(TimeoutError, match="no result of"):
        task.result(0.2)
    with pytest.raises(WaitTimeout):
        plan.wait(1)
    assert "no worker is registered" in caplog.text
    assert command in caplog.text


MODULE = "zkplan_test_only_here"


def test_a_worker_that_lacks_a_module_leaves_the_task_to_others(
    here: Here, zkplan_client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It uses up no attempt, however often it meets the task."""
    (tmp_path / f"{MODULE}.py").write_text(
        "import zkplan\nclass Value:\n    def __init__(self, x): self.x = x\n"
        "def work(value=None):\n    return zkplan.current()._job.claim.a, value and value.x\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    module = __import__(MODULE)
    with zkplan_client.create_plan(attempts=1) as plan:
        by_function = plan.add_task(module.work)
        by_value = plan.add_task(lambda value: value.x, [module.Value(5)])
        other = plan.add_task(lambda: "runs anywhere", priority=-5)
    with WorkerProcess(*here, tmp_path / "lacking") as lacking:
        assert other.result(30) == "runs anywhere"
        wait_until(
            lambda: lacking.said(f"No module named '{MODULE}'"), "the worker says what it lacks"
        )
        assert lacking.said("is left to others")

        def told(fragment: str) -> bool:
            with pytest.raises(WaitTimeout) as caught:
                by_function.result(0.2)
            assert plan.path in str(caught.value)
            return fragment in str(caught.value)

        # While the worker has the task in its hands it is claimed, and the wait says: it goes on.
        wait_until(lambda: told(f"No module named '{MODULE}'"), "who waits is told what it lacks")
        observer = zkplan_client.observer()
        wait_until(
            lambda: any(
                late.code == "not_decoded" and f"plan {int(plan.number)} " in late.text
                for late in observer.look().late
            ),
            "the plan is among what needs attention",
        )
        with working(*here):
            assert by_function.result(60) == (0, None)
            assert by_value.result(60) == 5
            assert plan.wait(30).dead == 0
    sys.modules.pop(MODULE)


def test_tasks_whose_module_a_worker_lacks_do_not_delay_others_of_their_plan(
    here: Here, zkplan_client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"{MODULE}.py").write_text("def work(): pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    module = __import__(MODULE)
    monkeypatch.undo()
    with zkplan_client.create_plan(attempts=1) as plan:
        lacking = [plan.add_task(module.work) for _ in range(14)]
        others = [plan.add_task(int) for _ in range(5)]
    with WorkerProcess(*here, tmp_path / "lacking", "--threads", "1"):
        # A rest of the whole plan for each of them took two minutes.
        assert plan.results(others, timeout=30) == [0] * 5
        late = plan.add_task(int)
        assert late.result(10) == 0
    assert not any(task.done() for task in lacking)
    sys.modules.pop(MODULE)


def test_workers_with_different_modules_together_run_all_tasks(
    here: Here, zkplan_client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where what each lacks is the first of its share, with which it would begin each time."""
    works = []
    for letter in "ab":
        name = f"{MODULE}_{letter}"
        (tmp_path / letter).mkdir()
        (tmp_path / letter / f"{name}.py").write_text("def work(): return __name__\n")
        monkeypatch.syspath_prepend(str(tmp_path / letter))
        works.append(__import__(name).work)
    with ExitStack() as stack:
        for letter in "ab":
            monkeypatch.setenv("PYTHONPATH", str(tmp_path / letter))
            log = tmp_path / f"log-{letter}"
            stack.enter_context(WorkerProcess(*here, log, "--threads", "1").wait_ready())
        # It is not known which worker gets which task, so each order is tried in a plan of its own.
        for first, second in (works, works[::-1]):
            with zkplan_client.create_plan(attempts=1, keep=True) as plan:
                tasks = [plan.add_task(work) for work in (first, second, *[int] * 100)]
            assert plan.wait(60).dead == 0
            names = [first.__module__, second.__module__]
            assert [task.result(1) for task in tasks] == [*names, *[0] * 100]
    for work in works:
        sys.modules.pop(work.__module__)


def test_a_worker_with_another_secret_runs_nothing(here: Here, tmp_path: Path) -> None:
    file, key = tmp_path / "ran", key_file(tmp_path, "theirs")
    with zkplan.connect(*here, secret=secret_of("ours")) as client:
        with client.create_plan(attempts=1) as plan:
            task = plan.add_task(note, [str(file), "ran"])
        with WorkerProcess(*here, tmp_path / "other", "--secret-file", str(key)) as other:
            wait_until(lambda: other.said("another secret"), "the worker says why it does not run")
            assert not notes(file)
            with working(*here, secret=secret_of("ours")):
                assert task.result(60) is None
        assert notes(file) == ["ran"]
        with (
            zkplan.connect(*here) as stranger,
            pytest.raises(PayloadUndecodable, match="sealed with a secret"),
        ):
            stranger.plan(plan.path).task(task.number).result(5)
