"""The log of a worker has the type of a task's exception, and its message only if asked for."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from zkplan.errors import PayloadUndecodable
from zkplan.protocol.task_options import TaskOptions
from zkplan.runtime.attempt_end import settle
from zkplan.runtime.attempts import MESSAGES, describe, for_log, time_out
from zkplan.runtime.runner import Runner

from .attempts import CODEC, PATHS, job_of, one_runner

CANARY = "the card is 4111"
runner = pytest.fixture(one_runner)


@pytest.fixture
def asked_for() -> Iterator[None]:
    before = MESSAGES.level
    MESSAGES.setLevel(logging.INFO)
    yield
    MESSAGES.setLevel(before)


def pay(card: str) -> None:
    raise ValueError(card)


class Telling:
    def __setstate__(self, state: Any) -> None:
        raise AttributeError(state["card"])


def test_the_message_of_an_exception_is_in_the_tree_and_not_in_the_log(
    runner: Runner, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "zkplan.worker")
    for a in (0, 1):
        ended = runner.run(job_of(pay, (CANARY,), a=a, options=TaskOptions(attempts=2)))
        assert ended.failure is not None
        assert ended.failure.message == CANARY
        settle(ended, CODEC, PATHS)
    again, dead = caplog.messages
    assert "failed (1 of 2 attempts used): ValueError (`zkplan task show 3 12` shows" in again
    assert "is out of attempts: ValueError (`zkplan task show 3 12` shows" in dead
    assert CANARY not in caplog.text


@pytest.mark.usefixtures("asked_for")
def test_the_message_of_an_exception_is_logged_in_one_line_if_asked_for(
    runner: Runner, caplog: pytest.LogCaptureFixture
) -> None:
    ended = runner.run(job_of(pay, ("a\nb" + "x" * 5000,), options=TaskOptions(attempts=1)))
    settle(ended, CODEC, PATHS)
    (line,) = caplog.messages
    assert r"ValueError: a\nbxxx" in line
    assert len(line) < 700


def test_failure_messages_of_zkplan_itself_are_logged_in_full() -> None:
    job = job_of(pay, (CANARY,), options=TaskOptions(timeout=2.0))
    job.options = TaskOptions(timeout=2.0)
    assert for_log(time_out(job), job) == ("TimeoutError: it ran longer than its time-out of 2 s")
    refused = describe(PayloadUndecodable("refused"), job, CODEC)
    assert for_log(refused, job, "refused") == "PayloadUndecodable: refused"


def test_an_undecodable_value_is_logged_by_its_kind_and_not_its_content(runner: Runner) -> None:
    telling = Telling()
    telling.__dict__["card"] = CANARY
    ended = runner.run(job_of(print, (telling,)))
    assert CANARY in ended.cannot_run
    assert ended.shown == "AttributeError"


def test_a_missing_module_or_name_is_named_in_the_log(
    runner: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "present.py").write_text("def work(): pass\ndef gone(): pass\n")
    (tmp_path / "absent.py").write_text("def work(): pass\n")
    (tmp_path / "broken.py").write_text("def work(): pass\n")
    import absent  # type: ignore[import-not-found]
    import broken  # type: ignore[import-not-found]
    import present  # type: ignore[import-not-found]

    jobs = [job_of(each) for each in (absent.work, present.gone, broken.work)]
    (tmp_path / "absent.py").unlink()
    (tmp_path / "broken.py").write_text(f"raise ValueError({CANARY!r})\n")
    for name in ("absent", "broken"):
        monkeypatch.delitem(sys.modules, name)
    del present.gone
    shown = [runner.run(job).shown for job in jobs]
    assert "No module named 'absent'" in shown[0]
    assert "has no attribute 'gone'" in shown[1]
    assert shown[2] == "the function broken.work cannot be imported: ValueError"
