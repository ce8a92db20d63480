"""`zkplan.local` shows the output of its tasks, and lets other programs reach its plans."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import pytest

import zkplan
from tests.tools.support import wait_until, zkplan_command
from zkplan import Client, ZkplanError


def log_a_line() -> None:
    logging.getLogger("mine").info("logged by a task")


def run_talk(client: Client) -> None:
    with client.create_plan() as plan:
        plan.add_task(print, ("printed by a task",))
        plan.add_task(log_a_line)
    plan.wait(timeout=30)


def test_a_local_block_shows_what_tasks_print_and_log(capsys: pytest.CaptureFixture[str]) -> None:
    with zkplan.local(workers=1) as client:
        run_talk(client)
    said = capsys.readouterr()
    assert re.fullmatch(r"\[plan-0000000004/task-\d{10} print\] printed by a task\n", said.out), (
        "the line says which task it is from"
    )
    (line,) = said.err.splitlines()  # nothing of zkplan's own, where all is well
    assert "INFO mine: logged by a task [plan=4 task=" in line
    assert " attempt=1 " in line, "people count attempts from 1"


@pytest.mark.parametrize("logged", [False, True])
def test_task_output_is_dropped_or_goes_to_a_log_if_asked_for(
    logged: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log"
    asked_for: dict[str, Any] = {"log": log} if logged else {"output": False}
    with zkplan.local(workers=1, **asked_for) as client:
        run_talk(client)
        if logged:
            wait_until(lambda: "printed by a task" in log.read_text(), "it is printed")
    assert capsys.readouterr() == ("", "")
    assert not logged or "INFO mine: logged by a task" in log.read_text()


def command_beside(here: Any, *words: str, **environment: str) -> str:
    ran = zkplan_command(*words, "--hosts", here.hosts, "--root", here.root, env=environment)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_a_command_started_beside_the_block_sees_its_plans() -> None:
    here = zkplan.local(workers=1, root="/mine")
    for name in ("hosts", "secret"):
        with pytest.raises(ZkplanError, match=r"call start\(\)"):
            getattr(here, name)
    with here as client:
        with client.create_plan("seen") as plan:
            task = plan.add_task(sum, ([20, 22],), keep=True)
        assert task.result(timeout=30) == 42
        assert "seen" in command_beside(here, "plan", "ls")
        show = ("task", "show", "seen", task.number, "--values")
        assert "42" in command_beside(here, *show)
