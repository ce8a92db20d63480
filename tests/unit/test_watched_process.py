"""Watched processes: what they write, how they end, and how they are signed off."""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, cast

import pytest

from zkplan import Client
from zkplan.processes import Relay, WatchedProcess, show
from zkplan.processes.crew import SigningOff
from zkplan.processes.worker import LowerEnd, UpperEnd
from zkplan.protocol.layout import Paths
from zkplan.protocol.requests import Applied, Multi, Request, Step
from zkplan.transport import Transport
from zkplan.transport.transport import run_step


def test_a_process_that_ends_while_paused_is_not_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread looks whether it runs, and so takes its end from the one that waits."""
    process = WatchedProcess(["/bin/sleep", "60"], tmp_path / "log")
    running = process.is_running

    def ends_meanwhile() -> bool:
        ran = running()
        process.end(0)
        return ran

    monkeypatch.setattr(process, "is_running", ends_meanwhile)
    process.pause()
    assert not running()


STARTS_ONE_THAT_ENDS = """
import os, sys
from pathlib import Path
from zkplan.processes import Relay, show
from zkplan.processes import WatchedProcess
process = WatchedProcess(["/bin/true"], Path(sys.argv[1]))
{sees_its_end}
try:
    os.waitpid(-1, 0)
except ChildProcessError:
    os._exit(0)
"""


@pytest.mark.parametrize("sees", ["process.wait_ended(30)", "while process.is_running(): pass"])
def test_a_process_seen_to_have_ended_is_no_longer_watched(tmp_path: Path, sees: str) -> None:
    """When its starter ends, the watcher would kill whoever has that process id by then."""
    program = STARTS_ONE_THAT_ENDS.replace("{sees_its_end}", sees)
    command = [sys.executable, "-c", program, str(tmp_path / "log")]
    # With a child left, it waits for that.
    assert subprocess.run(command, timeout=30, check=False).returncode == 0


@pytest.mark.parametrize("has_waitid", [True, False])
def test_a_paused_process_stands_still_until_it_is_resumed(
    has_waitid: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """macOS has no waitid."""
    if not has_waitid:
        monkeypatch.delattr(os, "waitid")
    process = WatchedProcess(["/bin/sh", "-c", "sleep 0.1; exit 3"], tmp_path / "log")
    process.pause()
    assert process.is_running()
    assert not process.wait_ended(0.5)
    process.resume()
    assert process.wait_ended(30)
    assert process.exit_code == 3


def relayed(script: str) -> tuple[list[tuple[str, str]], WatchedProcess]:
    """The lines of a shell script, which has ended, and its process."""
    lines: list[tuple[str, str]] = []
    process = WatchedProcess(
        ["/bin/sh", "-c", script], Relay(lambda line, stream: lines.append((line, stream)))
    )
    assert process.wait_ended(30)
    process.end(0)
    return lines, process


def test_each_line_is_passed_on_with_its_stream_even_an_unfinished_last_one() -> None:
    lines, process = relayed(r"printf 'one\ntwo'; printf 'half\rwhole\n' >&2")
    assert [line for line, stream in lines if stream == "stdout"] == ["one\n", "two"]
    assert [line for line, stream in lines if stream == "stderr"] == ["half\r", "whole\n"]
    assert "two" in process.log_tail()


def test_undecodable_output_is_passed_on_with_replacement_characters() -> None:
    lines, _ = relayed(r"printf 'a\377b\n'")
    assert lines == [("a\N{REPLACEMENT CHARACTER}b\n", "stdout")]


def test_a_process_that_inherits_the_pipes_does_not_delay_the_end() -> None:
    began = time.monotonic()
    lines, _ = relayed("sleep 20 & echo told")
    assert lines == [("told\n", "stdout")]
    assert time.monotonic() - began < 15


def test_a_process_that_wrote_nothing_says_so() -> None:
    _, process = relayed("exit 3")
    assert process.exit_code == 3
    assert process.log_tail() == " It wrote no log."


def test_output_that_cannot_be_shown_does_not_block_the_process(
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


def test_a_stream_that_cannot_show_a_character_still_shows_the_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(shown, encoding="ascii"))
    show("naïve\n", "stdout")
    assert shown.getvalue() == rb"na\xefve" + b"\n"
    monkeypatch.setattr("sys.stdout", None)
    show("nobody sees it\n", "stdout")


WAIT_S = 30.0


def lower_end(line: UpperEnd, monkeypatch: pytest.MonkeyPatch) -> LowerEnd:
    """What the process at the other end has."""
    for name, descriptor in line.environment().items():
        monkeypatch.setenv(name, str(os.dup(int(descriptor))))
    line.was_passed()
    return LowerEnd()


def test_the_parent_knows_which_worker_registered_last(monkeypatch: pytest.MonkeyPatch) -> None:
    line = UpperEnd()
    process = lower_end(line, monkeypatch)
    line.listen()
    assert line.worker == ""
    process.report_ready("one")
    process.report_ready("one-2")
    line.listen()
    assert line.worker == "one-2"
    process.report_ready("one-3")
    assert process._lower is not None
    process._lower.close()  # its process has ended
    line.listen()
    assert line.worker == "one-3"
    line.close()


def test_a_name_received_in_two_parts_is_one_name() -> None:
    line = UpperEnd()
    with socket.socket(fileno=os.dup(line.to_pass)) as other:
        other.send(b"first\nsec")
        line.listen()
        assert line.worker == "first"
        other.send(b"ond\n")
        line.listen()
        assert line.worker == "second"
    line.was_passed()
    line.close()


class Tree:
    """A client of which only that is used: it knows who was signed off."""

    paths = Paths("/zkplan")

    def __init__(self) -> None:
        self.gone: list[str] = []
        self.transport = cast("Transport", self)

    def run(self, step: Step[bool]) -> bool:
        return run_step(step, self.sign_off, lambda answer: answer)

    def sign_off(self, request: Request) -> Applied:
        assert isinstance(request, Multi)
        self.gone += [op.path for op in request.ops]
        return Applied([True])

    def __enter__(self) -> Client:
        return cast("Client", self)

    def __exit__(self, *_: object) -> None: ...


def test_signing_off_is_retried_after_an_error_of_any_kind() -> None:
    tree = Tree()
    errors = [RuntimeError("can't start new thread"), OSError("too many open files")]
    tried = threading.Semaphore(0)

    def opened() -> Any:
        tried.release()
        if errors:
            raise errors.pop()
        return tree

    signing_off = SigningOff(opened, session_timeout_s=60.0)
    signing_off.has_died("one")
    signing_off.finish(WAIT_S)
    assert tree.gone == ["/zkplan/workers/one"]
    signing_off.has_died("two")
    signing_off.has_died("three")
    signing_off.finish(WAIT_S)
    assert tree.gone[1:] == ["/zkplan/workers/two", "/zkplan/workers/three"]


def test_signing_off_is_given_up_once_the_session_must_have_ended() -> None:
    def opened() -> Any:
        raise RuntimeError("no server")

    signing_off = SigningOff(opened, session_timeout_s=0.01)
    signing_off.has_died("one")
    signing_off.finish(WAIT_S)
    assert not signing_off._dead
