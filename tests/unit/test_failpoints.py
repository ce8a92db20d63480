"""Failpoints do nothing unless armed; an armed one delays, fails, stops or kills."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from zkplan.protocol import failpoints

TOP = Path(__file__).parents[2]
REACH_TWICE = (
    "from zkplan.protocol import failpoints; failpoints.reach('here'); failpoints.reach('here')"
)


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    failpoints.arm("")


@pytest.mark.parametrize(
    ("armed", "reached", "delays"),
    [
        ("", ["here"], []),
        ("here=sleep:0.05", ["elsewhere", "here"], [0.05]),
        ("*=sleep:0.05,here=sleep:0:1", ["here", "elsewhere"], [0.0, 0.05]),
        ("here=kill:0", ["here"] * 100, []),
    ],
)
def test_an_armed_failpoint_delays_and_others_do_not(
    monkeypatch: pytest.MonkeyPatch, armed: str, reached: list[str], delays: list[float]
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(failpoints, "time", SimpleNamespace(sleep=slept.append))
    before = failpoints.reach
    failpoints.arm(armed)
    assert (failpoints.reach is before) == (not armed)
    for name in reached:
        failpoints.reach(name)
    assert slept == delays


def test_a_failpoint_armed_to_fail_raises_an_os_error() -> None:
    failpoints.arm("here=fail:1:1")
    failpoints.reach("here")
    for _ in range(2):
        with pytest.raises(OSError, match="made to fail at here"):
            failpoints.reach("here")


@pytest.mark.parametrize("text", ["here", "here=jump", "here=sleep", "=stop", "here=sleep:long"])
def test_a_malformed_failpoint_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        failpoints.arm(text)


@pytest.mark.parametrize(("armed", "code"), [("", -9), (":1:1", -9), (":1:2", 0)])
def test_a_process_armed_by_its_environment_dies_at_the_point(armed: str, code: int) -> None:
    environment = os.environ | {failpoints.VARIABLE: f"here=kill{armed}"}
    done = subprocess.run([sys.executable, "-c", REACH_TWICE], cwd=TOP, env=environment)
    assert done.returncode == code


def test_a_process_that_stopped_at_a_point_goes_on_when_continued() -> None:
    environment = os.environ | {failpoints.VARIABLE: "here=stop"}
    process = subprocess.Popen([sys.executable, "-c", REACH_TWICE], cwd=TOP, env=environment)
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    process.send_signal(signal.SIGCONT)
    assert process.wait(30) == 0
