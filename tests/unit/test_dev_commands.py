"""dev.py: what its commands run, and when parallel runs pass."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.unit import module_list

_FILE = Path(__file__).parents[2] / "dev.py"
KINDS = ("embedded", "zookeeper", "ensemble")


@pytest.mark.parametrize(
    ("codes", "arguments", "good"),
    [
        ([0, 0], [], True),
        ([0, 5], [], False),
        ([0, 5], ["-m", "chaos"], False),
        ([0, 5], ["--kind", "x", "-k", "some"], True),
        ([0, 5], ["-ksome"], True),
        ([5, 5], ["-k", "some"], False),
        ([0, 1], ["-k", "some"], False),
    ],
)
def test_a_run_that_collects_nothing_passes_only_with_a_selection(
    codes: list[int], arguments: list[str], good: bool
) -> None:
    assert dev().passed(codes, arguments) is good


def test_the_list_of_modules_matches_their_docstrings() -> None:
    page = module_list.PAGE.read_text("utf-8")
    assert module_list.with_modules(page) == page, "run `python3 dev.py docs`"


def dev() -> ModuleType:
    """The module; nothing imports it by name."""
    spec = importlib.util.spec_from_file_location("dev", _FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def runs_of(command: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """The arguments of its runs of pytest that play faults, by the kind of server."""
    runs = all_runs_of(command, monkeypatch)
    chaotic = [run for run in runs if any(word.startswith("tests/chaos") for word in run)]
    return {word.partition("=")[2]: run for run in chaotic for word in run if "-kind=" in word}


def all_runs_of(command: str, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The arguments of each of its runs of pytest."""
    module, runs = dev(), list[list[str]]()
    monkeypatch.setattr(module, "lint", lambda _: None)
    monkeypatch.setattr(module, "tests", lambda *arguments: [*arguments])
    monkeypatch.setattr(
        module,
        "side_by_side",
        lambda them, at_once, alone=(): runs.extend([*them, ["alone", *alone]]),
    )
    getattr(module, command)([])
    return runs


def test_a_sample_of_the_faults_runs_with_every_change(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = runs_of("test", monkeypatch)
    assert set(runs) == {"embedded"}
    marked = runs["embedded"][runs["embedded"].index("-m") + 1]
    assert marked == "(sample or not (chaos or slow)) and not bench"


def test_chaos_runs_every_fault_and_takeover_on_every_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = runs_of("chaos", monkeypatch)
    assert set(runs) == {*KINDS, "both"}
    assert all("chaos and not slow" in run for run in runs.values())
    assert "tests/chaos" in runs["embedded"]
    for kind in KINDS[1:]:
        assert "tests/chaos/test_every_fault.py" in runs[kind]
    assert runs["both"][:2] == ["alone", "tests/chaos/test_takeover.py"]
    assert not [run for run in (runs[kind] for kind in KINDS) if run[0] == "alone"]
    assert "--ignore=tests/chaos/test_takeover.py" in runs["embedded"]
    assert {"tests/chaos/test_access.py", "tests/chaos/test_tls.py"} < {*runs["zookeeper"]}
    assert "tests/chaos/test_access.py" in runs["ensemble"]


def test_chaos_also_runs_the_integration_tests_that_are_marked_chaos(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Set-ups of test_a_profile_is_enough.py, and the rounds of test_keys_are_rotated.py."""
    assert ["tests/integ", "-m", "chaos and not slow"] in all_runs_of("chaos", monkeypatch)


@pytest.mark.parametrize(
    ("beside", "code", "last"), [(0, 1, ["alone"]), (1, 0, ["alone"]), (2, 0, [])]
)
def test_runs_that_need_the_machine_alone_come_last_unless_ctrl_c_ended_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, beside: int, code: int, last: list[str]
) -> None:
    module = dev()
    log = tmp_path / "log"
    program = tmp_path / "program"
    program.write_text(f'#!/bin/sh\necho "$3" >> {log}\nexit "$4"\n')
    program.chmod(0o755)
    monkeypatch.setattr(module, "venv_program", lambda name: str(program))
    with pytest.raises(SystemExit):
        module.side_by_side(
            [module.tests("first", "0"), module.tests("other", str(beside))],
            at_once=1,
            alone=module.tests("alone", str(code)),
        )
    assert log.read_text().split()[2:] == last


def of(code: str, *more: str) -> list[str]:
    return [sys.executable, "-c", code, *more]


def test_runs_are_bounded_and_failures_are_listed_at_the_end(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    # Each of the first two waits for the other, and the third finds both ended.
    pair = "import pathlib, sys, time; here, other, end = map(pathlib.Path, sys.argv[1:4])\n"
    pair += "here.touch()\nwhile not other.exists(): time.sleep(0.01)\n"
    pair += "print('FAILED tests/test_x.py::test_y - why'); end.touch(); sys.exit(int(sys.argv[4]))"
    a, b, ended = (str(tmp_path / name) for name in ("a", "b", "ended"))
    commands = [
        of(pair, a, b, ended, "1", "pytest"),
        of(pair, b, a, ended, "0", "pytest"),
        of(f"import os; assert os.path.exists({ended!r}); print('third')", "pytest"),
    ]
    with pytest.raises(SystemExit) as stopped:
        dev().side_by_side(commands, at_once=2)
    assert stopped.value.code == 1
    said, at_the_end = capfd.readouterr()
    assert "third" in said
    assert at_the_end == "[dev] failed: 1 of 3 runs\n"
    told = said.rpartition("[dev] failed (exit code 1): ")[2]
    assert told.splitlines()[-1] == "FAILED tests/test_x.py::test_y - why"


def test_a_check_that_fails_beside_the_tests_fails_all(capfd: pytest.CaptureFixture[str]) -> None:
    module = dev()
    good = of("", "pytest")
    module.side_by_side([of("print('checked')"), good], at_once=1)
    with pytest.raises(SystemExit):
        module.side_by_side([of("print('x.py: no good'); exit(2)"), good, good], at_once=1)
    last = capfd.readouterr().out.rpartition("[dev] failed (exit code 2): ")[2]
    assert last.strip().endswith("x.py: no good")


def test_each_module_of_a_folder_is_assigned_to_one_of_the_runs() -> None:
    dealt = dev().shares("tests/integ", 3)
    assert max(map(len, dealt)) - min(map(len, dealt)) <= 1
    folder = _FILE.parent / "tests" / "integ"
    wanted = sorted(f"tests/integ/{path.name}" for path in folder.glob("test_*.py"))
    assert sorted(name for share in dealt for name in share) == wanted


def test_the_demo_installs_only_the_package_and_other_commands_add_the_tools(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    module, ran = dev(), list[str]()
    monkeypatch.setattr(module, "VENV", tmp_path)
    monkeypatch.setattr(module, "STAMP", tmp_path / "stamp")
    monkeypatch.setattr(module, "execute", lambda command: ran.append(command[-1]))
    monkeypatch.setattr(module, "MADE_BY", "# another Python")
    monkeypatch.chdir(tmp_path)  # It is put back after main(), which changes the folder.

    def installs(command: str) -> list[str]:
        ran.clear()
        module.main([command])
        return [word for word in ran if word.startswith(".[") or word == str(tmp_path)]

    assert installs("demo") == [str(tmp_path), ".[service]"]
    assert installs("demo") == []
    assert installs("lint") == [".[dev]"]
    assert installs("lint") == []
    assert installs("demo") == []


def test_tools_are_installed_from_the_lock_if_it_is_for_this_python(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    module, ran = dev(), list[list[str]]()
    lock = module.TOP / "requirements-dev.lock"
    monkeypatch.setattr(module, "VENV", tmp_path)
    monkeypatch.setattr(module, "STAMP", tmp_path / "stamp")
    monkeypatch.setattr(module, "MADE_BY", lock.read_text().partition("\n")[0])
    monkeypatch.setattr(module, "execute", ran.append)
    module.set_up_packages(module.TOOLS)
    assert ran[1][-3:] == ["--require-hashes", "-r", str(lock)]
    assert ran[2][-4:] == ["--no-deps", "--no-build-isolation", "-e", "."]


def test_an_interrupted_installation_is_repeated(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    module, ran = dev(), list[str]()

    def execute(command: list[str]) -> None:
        ran.append(command[-1])
        if len(ran) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(module, "VENV", tmp_path)
    monkeypatch.setattr(module, "STAMP", tmp_path / "stamp")
    monkeypatch.setattr(module, "execute", execute)
    monkeypatch.setattr(module, "MADE_BY", "# another Python")
    module.set_up_packages(module.PLAIN)
    with pytest.raises(KeyboardInterrupt):
        module.set_up_packages(module.TOOLS)
    module.set_up_packages(module.PLAIN)
    assert ran == [str(tmp_path), ".[service]", ".[dev]", str(tmp_path), ".[service]"]
