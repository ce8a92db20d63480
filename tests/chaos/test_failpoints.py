"""The named points of the code: nothing unless armed; they delay, stop once, and kill."""

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

from .faults.points import AUTHOR_POINTS, POINTS, points_in_the_code

TOP = Path(__file__).parents[2]
REACH_TWICE = """
from zkplan.protocol import failpoints
failpoints.reach("here")
failpoints.reach("here")
"""


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    failpoints.arm("")


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """For how long each point has delayed that was reached, without any delay."""
    seconds: list[float] = []
    monkeypatch.setattr(failpoints, "time", SimpleNamespace(sleep=seconds.append))
    return seconds


def test_a_point_that_nobody_armed_does_nothing() -> None:
    before = failpoints.reach
    failpoints.reach("anywhere")
    failpoints.arm("")
    assert failpoints.reach is before


def test_an_armed_point_delays_and_others_do_not(slept: list[float]) -> None:
    failpoints.arm("here=sleep:0.05")
    failpoints.reach("elsewhere")
    assert slept == []
    failpoints.reach("here")
    assert slept == [0.05]


def test_a_star_arms_every_point_that_is_not_named(slept: list[float]) -> None:
    failpoints.arm("*=sleep:0.05,here=sleep:0:1")
    failpoints.reach("here")
    assert slept == [0.0]
    failpoints.reach("elsewhere")
    assert slept == [0.0, 0.05]


def test_a_point_with_a_probability_of_zero_never_acts() -> None:
    failpoints.arm("here=kill:0")
    for _ in range(100):
        failpoints.reach("here")


def test_a_point_may_be_passed_before_it_acts() -> None:
    environment = os.environ | {failpoints.VARIABLE: "here=kill:1:1"}
    done = subprocess.run([sys.executable, "-c", REACH_TWICE], cwd=TOP, env=environment)
    assert done.returncode == -signal.SIGKILL
    environment[failpoints.VARIABLE] = "here=kill:1:2"
    done = subprocess.run([sys.executable, "-c", REACH_TWICE], cwd=TOP, env=environment)
    assert done.returncode == 0


@pytest.mark.parametrize("text", ["here", "here=jump", "here=sleep", "=stop", "here=sleep:long"])
def test_a_text_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        failpoints.arm(text)


def test_a_process_is_armed_by_its_environment_and_dies_there() -> None:
    environment = os.environ | {failpoints.VARIABLE: "here=kill"}
    done = subprocess.run([sys.executable, "-c", REACH_TWICE], cwd=TOP, env=environment)
    assert done.returncode == -signal.SIGKILL


def test_a_process_that_was_continued_goes_on() -> None:
    environment = os.environ | {failpoints.VARIABLE: "here=stop"}
    process = subprocess.Popen([sys.executable, "-c", REACH_TWICE], cwd=TOP, env=environment)
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    process.send_signal(signal.SIGCONT)
    assert process.wait(30) == 0


def test_every_point_of_a_fault_is_reached_in_the_code() -> None:
    missing = {*POINTS, *AUTHOR_POINTS} - points_in_the_code()
    assert not missing
