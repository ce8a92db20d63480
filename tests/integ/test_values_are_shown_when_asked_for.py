"""`zkplan task show --values` prints results and progress notes; without it nothing is decoded."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import zkplan
from tests.tools.support import (
    WAIT_S,
    Here,
    Ran,
    key_file,
    run_python,
    secret_of,
    wait_until,
    working,
)
from zkplan import Client, Task

NAME = "module_of_a_user"
MODULE = """
import zkplan


class Answer:
    def __repr__(self):
        return "<Answer\\x1b>"

    def __reduce__(self):
        return made, ()


def made():
    open("decoded", "a").close()
    return Answer()


def answer():
    return Answer()


def give_up():
    zkplan.current().log(Answer())
    zkplan.current().log({"half": 21})
    raise ValueError("on purpose")
"""


def show(task: Task, folder: Path, *options: str, secret: str = "") -> Ran:
    """`zkplan task show` as it is when installed: a process that finds zkplan, and no task."""
    code = "import sys; sys.path.remove(''); from zkplan.cli import main; main()"
    command = ("-c", code, "task", "show", task.plan.path, task.number, *options)
    client = task.plan.client
    file = str(key_file(folder, secret)) if secret else ""
    settings = {"HOSTS": client.transport.hosts, "ROOT": client.root, "SECRET_FILES": file}
    given = {f"ZKPLAN_{name}": value for name, value in settings.items()}
    ran = run_python(*command, cwd=folder, env=given)
    return Ran(ran.returncode, ran.stdout, ran.stderr)


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a user's module, which this process finds."""
    (tmp_path / f"{NAME}.py").write_text(MODULE)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop(NAME, None)


@pytest.fixture
def module(code: Path) -> ModuleType:
    return importlib.import_module(NAME)


def decoded(folder: Path) -> bool:
    """Whether a value was decoded in `folder` since the last look."""
    mark = folder / "decoded"
    found = mark.exists()
    mark.unlink(missing_ok=True)
    return found


def test_a_result_is_shown_where_its_module_can_be_imported(
    zkplan_client: Client, worker: zkplan.Worker, code: Path, module: ModuleType
) -> None:
    with zkplan_client.create_plan() as plan:
        task = plan.add_task(module.answer)
    plan.wait(WAIT_S)
    plain = show(task, code)
    assert plain.code == 0, plain.err
    assert "--values shows it" in plain.out
    assert not decoded(code)
    shown = show(task, code, "--values")
    assert shown.code == 0, shown.err
    assert re.search(r"^value +<Answer\\x1b>$", shown.out, re.MULTILINE)
    assert decoded(code)
    told = show(task, code, "--values", "-o", "json")
    assert told.data["value"] == "<Answer\x1b>"
    elsewhere = show(task, code / "elsewhere", "--values")
    assert elsewhere.code == 2
    assert "finished" in elsewhere.out
    assert f"1 value cannot be decoded here; a module or the secret (secret-files) may be " \
        f"missing: ModuleNotFoundError: No module named '{NAME}'" in elsewhere.err  # fmt: skip
    assert "Traceback" not in elsewhere.err


def test_progress_notes_are_shown_and_undecodable_ones_hide_no_other(
    zkplan_client: Client, worker: zkplan.Worker, code: Path, module: ModuleType
) -> None:
    with zkplan_client.create_plan() as plan:
        task = plan.add_task(module.give_up, attempts=1)
    wait_until(lambda: plan.status().dead, "it is dead")
    plain = show(task, code)
    assert plain.out.count("progress note of ") == 2
    assert not decoded(code)
    shown = show(task, code, "--values").out
    assert "progress note: <Answer\\x1b>\n" in shown
    assert "progress note: {'half': 21}\n" in shown
    elsewhere = show(task, code / "elsewhere", "--values")
    assert elsewhere.code == 2
    assert "progress note: (undecodable: ModuleNotFoundError: " in elsewhere.out
    assert "progress note: {'half': 21}\n" in elsewhere.out
    assert "ValueError: on purpose" in elsewhere.out


def test_signed_values_are_shown_only_to_holders_of_the_secret(here: Here, tmp_path: Path) -> None:
    with (
        zkplan.connect(*here, secret=secret_of("ours")) as client,
        working(*here, secret=secret_of("ours")),
    ):
        with client.create_plan() as plan:
            task = plan.add_task(int, [7])
        plan.wait(WAIT_S)
        shown = show(task, tmp_path, "--values", secret="ours").out
        assert re.search("^value +7$", shown, re.MULTILINE)
        for secret in ("", "another"):
            refused = show(task, tmp_path, "--values", secret=secret)
            assert refused.code == 2
            assert "(secret-files)" in refused.err
            assert re.search(r"^value +\(undecodable: ", refused.out, re.MULTILINE)
