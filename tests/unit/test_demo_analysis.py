"""The analysis of the demonstration gives right figures however files are split and merged."""

from __future__ import annotations

import os
import time
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import zkplan
from zkplan.cli import demo_tasks as analysis
from zkplan.cli.demo import how_often, taken_over
from zkplan.cli.demo_tasks import Execution, Module, Summary, execution_of, noted

TREE = {
    "alpha.py": "import os, os.path\nimport sys as s\n\ndef one():\n    def two(): pass\n",
    "beta.py": "from os import path\nclass A:\n    async def b(self): pass\n",
    "pack/__init__.py": "from . import inner\nfrom pack import inner\nimport sys\n",
    "pack/inner.py": "",
    "pack/broken.py": "def (:\n",
    "pack/null.py": "x = '\0'\n",
    "pack/test/case.py": "import unittest\n",
    "site-packages/other.py": "import sys\n",
    "notes.txt": "import sys\n",
}
SOURCES = [
    "alpha.py",
    "beta.py",
    "pack/__init__.py",
    "pack/broken.py",
    "pack/inner.py",
    "pack/null.py",
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in TREE.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path


def test_tests_installed_packages_and_other_files_are_left_out(folder: Path) -> None:
    assert analysis.source_files(folder) == SOURCES


def test_definitions_are_counted_at_any_depth_and_imports_once_per_file(folder: Path) -> None:
    summary = analysis.analyse(str(folder), ["alpha.py", "beta.py"])
    assert summary.largest == (Module(5, "alpha", 2, 0), Module(3, "beta", 1, 1))
    assert (summary.files, summary.lines, summary.functions, summary.classes) == (2, 8, 3, 1)
    assert summary.importers == {"os": 2, "sys": 1}
    package = analysis.analyse(str(folder), ["pack/__init__.py"])
    assert package.importers == {"sys": 1}, "imports within one package do not count"
    assert package.largest[0].name == "pack", "it is named after its folder"


def test_files_with_syntax_errors_are_named_and_not_counted(folder: Path) -> None:
    summary = analysis.analyse(str(folder), ["pack/null.py", "pack/broken.py", "alpha.py"])
    assert summary.unparsed == ("pack/broken.py", "pack/null.py")
    assert summary.files == 1


def test_a_large_package_is_split_and_one_sorted_among_modules_stays_one_chunk() -> None:
    files = [f"big/m{number}.py" for number in range(5)] + ["os.py", "small/__init__.py"]
    chunks = analysis.split(files, size=2)
    assert [chunk.name for chunk in chunks] == ["modules", "big-1", "big-2", "big-3", "small"]
    assert sorted(file for chunk in chunks for file in chunk.files) == sorted(files)
    chunks = analysis.split(["abc.py", "email/a.py", "email/b.py", "zipfile.py"])
    assert [(chunk.name, len(chunk.files)) for chunk in chunks] == [("modules", 2), ("email", 2)]


_MODULES = st.builds(
    Module, st.integers(0, 50), st.text("abc", min_size=1, max_size=3), st.just(0), st.just(0)
)


@given(st.lists(_MODULES, max_size=60, unique_by=lambda module: module.name), st.randoms())
def test_the_result_does_not_depend_on_how_parts_are_merged(
    modules: list[Module], random: Random
) -> None:
    parts = [
        Summary(1, module.lines, 0, 0, (), (module,), {module.name[0]: 1}) for module in modules
    ]
    at_once = analysis.merge(parts)
    random.shuffle(parts)
    while len(parts) > 1:
        cut = random.randint(2, len(parts))
        parts = [*parts[cut:], analysis.merge(parts[:cut])]
    assert analysis.merge(parts) == at_once


def test_the_most_imported_modules_rank_by_number_then_by_name() -> None:
    importers = {"re": 2, "abc": 2, "sys": 3}
    summary = Summary(0, 0, 0, 0, (), (), importers)
    assert analysis.most_imported(summary) == [("sys", 3), ("abc", 2), ("re", 2)]


def test_a_single_line_says_who_executes_a_task(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    context = SimpleNamespace(name="parse os", attempt=2, worker="w")
    monkeypatch.setattr(zkplan, "current", lambda: context)
    before = time.monotonic()
    assert noted(max, 1, 2) == 2
    (line,) = capfd.readouterr().out.splitlines()
    execution = execution_of(line)
    assert execution is not None
    assert execution[:4] == ("parse os", 2, "w", os.getpid())
    assert before <= execution.at <= time.monotonic()
    assert execution_of("what a task prints") is None


def test_a_takeover_is_the_first_execution_elsewhere_after_the_kill() -> None:
    history = [
        Execution("a", 0, "dead", 1, 1.0),
        Execution("b", 0, "other", 2, 2.0),
        Execution("a", 1, "other", 2, 9.0),
        Execution("a", 2, "third", 3, 12.0),
    ]
    assert taken_over(history, {"a", "b"}, pid=1, since=5.0) == [history[2]]


def test_executions_are_summed_up_by_how_often_a_task_ran() -> None:
    tasks = ["a", "a", "a", "b", "b", "c", "d"]
    history = [Execution(task, 0, "w", 1, 0.0) for task in tasks]
    assert how_often(history) == "2 tasks once, 1 task twice, 1 task 3 times"
