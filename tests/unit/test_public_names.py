"""The public surface of zkplan is exactly this; whoever changes it changes this list."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import zkplan
from zkplan import errors

TOP = Path(__file__).parents[2]
AUTHOR = {"connect", "local", "Client", "Plan", "Task", "TaskSpec", "PlanStatus", "WorkerRecord"}
AUTHOR |= {"QueueStatus", "LimitStatus", "Permit", "Event", "TaskLog"}
SCHEDULES = {"Schedule", "ScheduleInfo"}
FUTURES = {
    "task",
    "kind",
    "as_completed",
    "wait",
    "Executor",
    "TaskInfo",
    "PlanProgress",
    "Why",
    "Cause",
}
FUNCTIONAL = {"create_plan", "add_task", "mark_ready", "plan_completed"}
GATES = {"when", "When"}
COMMANDS = {"shell", "ShellCommand", "ShellResult"}
WORKER = {"Worker", "Backoff", "Statistics"}
WITHIN = {"current", "Context", "Failure"}
#: All of them: tests/unit/test_errors.py compares these classes with the tree in their docstring.
ERRORS = {
    name
    for name, thing in vars(errors).items()
    if inspect.isclass(thing) and thing.__module__ == errors.__name__
}
#: How a record is written into the tree and read there: for zkplan alone.
RECORD = {"to_bytes", "from_bytes"}


def test_the_public_names_are_exactly_these() -> None:
    assert (
        set(zkplan.__all__)
        == AUTHOR | SCHEDULES | FUTURES | GATES | FUNCTIONAL | COMMANDS | WORKER | WITHIN | ERRORS
    )
    assert len(zkplan.__all__) == len(set(zkplan.__all__))
    assert all(hasattr(zkplan, name) for name in zkplan.__all__)


def test_dir_shows_the_public_names_only() -> None:
    assert set(dir(zkplan)) == {*zkplan.__all__, "__version__"}


def test_the_reference_has_every_public_name_and_every_member_of_a_class() -> None:
    words = set(re.findall(r"\w+", (TOP / "docs" / "start" / "reference.md").read_text()))
    missing = set(zkplan.__all__) - words
    for name in set(zkplan.__all__) - ERRORS:
        thing = getattr(zkplan, name)
        members = vars(thing) if inspect.isclass(thing) else {}
        public = {member for member in members if not member.startswith("_")} - RECORD
        missing |= {f"{name}.{member}" for member in public - words}
    assert missing == set()


def test_every_public_name_is_documented() -> None:
    for name in zkplan.__all__:
        thing = getattr(zkplan, name)
        assert inspect.getdoc(thing), f"{name} has no docstring"
        if inspect.isclass(thing):
            for attribute, member in vars(thing).items():
                if attribute.startswith("_") or not inspect.isfunction(member):
                    continue
                assert member.__annotations__, f"{name}.{attribute} has no types"


def test_importing_zkplan_does_not_import_the_command_line_or_the_tests() -> None:
    code = "import sys, zkplan; print(*(m for m in sys.modules if m.startswith('zkplan.')))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = {name.split(".")[1] for name in ran.stdout.split()}
    assert modules.isdisjoint({"cli", "testing", "stress", "demo", "embedded"})
