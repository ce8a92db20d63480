"""dev.py: what its commands run, and when runs side by side pass."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

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


def test_the_list_of_modules_is_what_the_modules_say() -> None:
    page = dev().ARCHITECTURE.read_text("utf-8")
    assert dev().with_modules(page) == page, "run `python3 dev.py docs`"


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
    module, runs = dev(), list[list[str]]()
    monkeypatch.setattr(module, "lint", lambda _: None)
    monkeypatch.setattr(
        module, "side_by_side", lambda *them, alone=(): runs.extend([*them, ["alone", *alone]])
    )
    getattr(module, command)([])
    chaotic = [run for run in runs if any(word.startswith("tests/chaos") for word in run)]
    return {word.partition("=")[2]: run for run in chaotic for word in run if "-kind=" in word}


def test_a_share_of_the_faults_runs_with_every_change(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = runs_of("test", monkeypatch)
    assert set(runs) == {"embedded"}
    marked = runs["embedded"][runs["embedded"].index("-m") + 1]
    assert marked == "(not chaos or sample) and not bench"


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


@pytest.mark.parametrize(
    ("beside", "code", "last"), [(0, 1, ["alone"]), (1, 0, ["alone"]), (2, 0, [])]
)
def test_what_runs_alone_runs_last_whatever_the_others_came_to_but_for_ctrl_c(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, beside: int, code: int, last: list[str]
) -> None:
    module = dev()
    log = tmp_path / "log"
    program = tmp_path / "program"
    program.write_text(f'#!/bin/sh\necho "$3" >> {log}\nexit "$4"\n')
    program.chmod(0o755)
    monkeypatch.setattr(module, "venv_program", lambda name: str(program))
    with pytest.raises(SystemExit):
        module.side_by_side(["first", "0"], ["other", str(beside)], alone=["alone", str(code)])
    assert log.read_text().split()[2:] == last
