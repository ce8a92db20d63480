"""The exact list of the public names of zkplan: a change of the interface changes this list."""

from __future__ import annotations

import ast
import inspect
import pkgutil
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
    if inspect.isclass(thing) and issubclass(thing, BaseException)
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


def test_dir_shows_only_the_public_names() -> None:
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


def test_importing_zkplan_imports_only_the_errors() -> None:
    assert loaded_by("import zkplan") == {"basics", "errors"}


def test_an_author_imports_neither_the_command_line_nor_what_runs_tasks() -> None:
    loaded = loaded_by("import zkplan; zkplan.connect, zkplan.Plan, zkplan.task, zkplan.wait")
    assert {"client", "plan"} <= loaded
    assert loaded.isdisjoint({"cli", "testing", "stress", "demo", "embedded"})
    assert loaded.isdisjoint({"worker", "runtime", "isolation", "processes", "local_run"})


def loaded_by(code: str) -> set[str]:
    """The modules right below zkplan that the code imports."""
    code += "; import sys; print(*(name for name in sys.modules if name.startswith('zkplan.')))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.split(".")[1] for name in ran.stdout.split()}


def test_a_type_checker_knows_the_lazy_names() -> None:
    told = {
        name.name: (node.module or "")
        for node in ast.walk(ast.parse(Path(zkplan.__file__).read_text()))
        if isinstance(node, ast.ImportFrom) and node.level == 1
        for name in node.names
    }
    assert {name for name, module in told.items() if module == "errors"} == ERRORS | {"Failure"}
    assert told.pop("__version__") == "basics"
    assert {name: at for name, at in told.items() if name not in ERRORS} == zkplan._MODULES


def test_no_public_name_equals_the_name_of_a_module_that_would_replace_it() -> None:
    modules = {module.name for module in pkgutil.iter_modules(zkplan.__path__)}
    assert {"plan", "worker", "local_run"} <= modules
    assert modules.isdisjoint(zkplan.__all__)


def test_a_direct_submodule_is_found_without_importing_it() -> None:
    asked = "zkplan.errors, zkplan.gates.When, zkplan.worker.Worker, zkplan.plan.Plan"
    assert "worker" in loaded_by(f"import zkplan; {asked}")
    for missing in ("nothing", "_nothing", "__main__", "Zkplan"):
        assert not hasattr(zkplan, missing)
