"""What a process writes is passed on line by line, all of it, and its end is remembered."""

from __future__ import annotations

import io
import time

import pytest

from zkplan.processes.output import Relay, show
from zkplan.processes.watched import WatchedProcess


def relayed(script: str) -> tuple[list[tuple[str, str]], WatchedProcess]:
    """The lines of a shell script, which has ended, and its process."""
    lines: list[tuple[str, str]] = []
    process = WatchedProcess(
        ["/bin/sh", "-c", script], Relay(lambda line, stream: lines.append((line, stream)))
    )
    assert process.wait_ended(30)
    process.end(0)
    return lines, process


def test_each_line_is_passed_on_with_its_stream_and_the_last_one_unfinished() -> None:
    lines, process = relayed(r"printf 'one\ntwo'; printf 'half\rwhole\n' >&2")
    assert [line for line, stream in lines if stream == "stdout"] == ["one\n", "two"]
    assert [line for line, stream in lines if stream == "stderr"] == ["half\r", "whole\n"]
    assert "two" in process.log_tail()


def test_what_is_no_text_is_passed_on_as_far_as_it_is() -> None:
    lines, _ = relayed(r"printf 'a\377b\n'")
    assert lines == [("a\N{REPLACEMENT CHARACTER}b\n", "stdout")]


def test_who_inherits_the_pipes_does_not_hold_up_the_end() -> None:
    began = time.monotonic()
    lines, _ = relayed("sleep 20 & echo told")
    assert lines == [("told\n", "stdout")]
    assert time.monotonic() - began < 15


def test_a_process_that_wrote_nothing_says_so() -> None:
    _, process = relayed("exit 3")
    assert process.exit_code == 3
    assert process.log_tail() == " It wrote no log."


def test_what_cannot_be_shown_does_not_hold_up_the_process(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def full(line: str, stream: str) -> None:
        raise OSError("No space left on device")

    # More than a pipe holds.
    command = ["/bin/sh", "-c", "yes | head -c 200000; exit 3"]
    process = WatchedProcess(command, Relay(full))
    assert process.wait_ended(30)
    process.end(0)
    assert process.exit_code == 3
    assert caplog.text.count("No space left on device") == 1


def test_a_stream_that_cannot_show_a_character_shows_the_line_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(shown, encoding="ascii"))
    show("naïve\n", "stdout")
    assert shown.getvalue() == rb"na\xefve" + b"\n"
    monkeypatch.setattr("sys.stdout", None)
    show("nobody sees it\n", "stdout")
