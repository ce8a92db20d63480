"""Fixed code runs after SIGHUP or with --reload; zkplan says when a fix does not run."""

from __future__ import annotations

import importlib
import itertools
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tools.support import (
    Here,
    WorkerProcess,
    fail,
    pass_gate,
    wait_until,
    working,
    zkplan_command,
)
from zkplan import Client

BROKEN = "def work():\n    raise ValueError('broken')\n"
FIXED = "def work():\n    return 'fixed, and longer than before'\n"
_names = (f"edited_{os.getpid()}_{number}" for number in itertools.count())


class Module:
    """A module in a folder of its own, which a test edits as a user does."""

    def __init__(self, folder: Path) -> None:
        self.name = next(_names)
        self.file = folder / f"{self.name}.py"
        self.write(BROKEN)
        self.work: Callable[[], Any] = importlib.import_module(self.name).work

    def write(self, text: str) -> None:
        # As editors do: a worker never finds half a file.
        new = self.file.with_suffix(".new")
        new.write_text(text)
        new.replace(self.file)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Module]:
    monkeypatch.syspath_prepend(str(tmp_path))
    made = Module(tmp_path)
    yield made
    del sys.modules[made.name]


def workers_besides(client: Client, old: str) -> list[str]:
    return [each.id for each in client.workers() if each.id != old]


def test_sighup_makes_a_worker_finish_its_tasks_and_load_new_code(
    here: Here, zkplan_client: Client, module: Module, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    options = ("--import-path", str(tmp_path), "--threads", "2")
    with WorkerProcess(*here, tmp_path, *options) as process:
        process.wait_ready()
        (old,) = zkplan_client.workers()
        with zkplan_client.create_plan() as plan:
            broken = plan.add_task(module.work, attempts=1)
            running = plan.add_task(pass_gate, [str(gate)], attempts=1, keep=True)
        wait_until(lambda: broken.info().state == "dead", "the old code has failed")
        wait_until(Path(f"{gate}-reached").exists, "the other task runs")
        module.write(FIXED)
        process.process.send(signal.SIGHUP)
        wait_until(lambda: process.said("then starts again"), "it takes the signal")
        assert broken.retry()
        gate.touch()
        assert running.result(30) == "open"
        assert broken.result(30) == "fixed, and longer than before"
        (new,) = wait_until(lambda: workers_besides(zkplan_client, old.id), "it is registered anew")
        assert [each.pid for each in zkplan_client.workers() if each.id == new] == [process.pid]
        process.process.terminate()
        assert process.process.wait_ended(30)
        assert process.process.exit_code == 0, process.log.read_text()
    assert not zkplan_client.workers()


@pytest.mark.parametrize("processes", ["1", "2"])
def test_reload_loads_a_changed_file_unless_it_does_not_compile(
    processes: str, here: Here, zkplan_client: Client, module: Module, tmp_path: Path
) -> None:
    options = ("--import-path", str(tmp_path), "--processes", processes, "--reload")
    with WorkerProcess(*here, tmp_path, *options) as process:
        process.wait_ready(int(processes))
        old = {each.id for each in zkplan_client.workers()}
        with zkplan_client.create_plan() as plan:
            task = plan.add_task(module.work, attempts=1)
        wait_until(lambda: task.info().state == "dead", "the old code has failed")
        module.write("def work(:\n")
        wait_until(lambda: process.said("cannot be loaded: SyntaxError"), "the mistake is shown")
        assert {each.id for each in zkplan_client.workers()} == old
        module.write(FIXED)
        wait_until(lambda: process.said("then starts again"), "the change is seen")
        # With two processes, the other one has not imported it.
        wait_until(lambda: {each.id for each in zkplan_client.workers()} - old, "it has new code")
        assert task.retry()
        assert task.result(30) == "fixed, and longer than before"


def test_a_restarted_worker_still_ends_with_its_supervisor(
    here: Here, zkplan_client: Client, tmp_path: Path
) -> None:
    with WorkerProcess(*here, tmp_path, "--processes", "2") as process:
        process.wait_ready(2)
        first = zkplan_client.workers()[0]
        os.kill(first.pid, signal.SIGHUP)
        wait_until(lambda: process.said("then starts again"), "it takes the signal")
        wait_until(
            lambda: first.pid in {w.pid for w in zkplan_client.workers() if w.id != first.id},
            "it is registered anew",
        )
        assert not process.said("it is replaced")
        process.process.end(0)
        wait_until(lambda: not zkplan_client.workers(), "both have left")


def test_a_failure_by_old_code_names_the_module_and_the_worker_to_restart(
    here: Here,
    zkplan_client: Client,
    module: Module,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with WorkerProcess(*here, tmp_path, "--import-path", str(tmp_path)) as process:
        process.wait_ready()
        with zkplan_client.create_plan() as plan:
            task = plan.add_task(module.work, attempts=1)
        wait_until(lambda: task.info().state == "dead", "the code has failed")
        (cause,) = task.why().causes
        assert "Workers keep the code that they have loaded" in cause.advice
        assert "kill -HUP PID" in cause.advice
        module.write(FIXED)
        with caplog.at_level(logging.INFO, "zkplan.plan"):
            assert plan.retry() == 1
        assert "Workers keep the code that they have loaded" in caplog.text
        wait_until(lambda: "older state" in str(task.why()), "it has failed again")
        worker = zkplan_client.workers()[0]
        told = (
            f"Worker {worker.id} runs an older state of {module.name} than its file has: restart "
            f"it, or let it load the new code with `kill -HUP {process.pid}` on {worker.host}."
        )
        for why in (task.why(), plan.why()):
            assert why.causes[0].advice.endswith(told)
        for words in (("task", "retry", plan.number, task.number), ("plan", "retry", plan.number)):
            wait_until(lambda: task.info().state == "dead", "it is dead")
            shown = zkplan_command(*words, "--hosts", here[0], "--root", here[1])
            assert shown.returncode == 0
            assert told in shown.stderr


def test_a_failure_in_code_sent_with_the_plan_says_that_a_fix_does_not_reach_it(
    here: Here, zkplan_client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    with working(*here):
        with zkplan_client.create_plan() as plan:
            sent = plan.add_task(lambda: fail(), name="sent", attempts=1)
            named = plan.add_task(fail, name="named", attempts=1)
        wait_until(lambda: plan.status().dead == 2, "both have failed")
        told = (
            f"The code of task {int(sent.number)} (sent) was sent with its plan, so a fix in your "
            "file does not reach it: add the task anew"
        )
        assert told in sent.why().causes[0].advice
        assert told in plan.why().causes[0].advice
        assert "was sent with" not in str(named.why())
        assert (sent.info().is_code_sent, named.info().is_code_sent) == (True, False)
        assert sent.retry()
        assert told in caplog.text
