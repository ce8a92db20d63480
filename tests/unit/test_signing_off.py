"""The line to a supervisor, and what it does for worker processes that have died."""

from __future__ import annotations

import os
import socket
import threading
from types import TracebackType
from typing import Any, cast

import pytest

from zkplan import Client
from zkplan.processes.line import LowerEnd, UpperEnd
from zkplan.processes.signing_off import SigningOff
from zkplan.protocol.layout import Paths
from zkplan.protocol.requests import Applied, Multi, Step
from zkplan.transport import Transport

WAIT_S = 30.0


def lower_end(line: UpperEnd, monkeypatch: pytest.MonkeyPatch) -> LowerEnd:
    """What the process at the other end has."""
    for name, descriptor in line.environment().items():
        monkeypatch.setenv(name, str(os.dup(int(descriptor))))
    line.was_passed()
    return LowerEnd()


def test_the_line_tells_who_registered_last(monkeypatch: pytest.MonkeyPatch) -> None:
    line = UpperEnd()
    process = lower_end(line, monkeypatch)
    line.listen()
    assert line.worker == ""
    process.tell_ready("one")
    process.tell_ready("one-2")
    line.listen()
    assert line.worker == "one-2"
    process.tell_ready("one-3")
    assert process._lower is not None
    process._lower.close()  # its process has ended
    line.listen()
    assert line.worker == "one-3"
    line.close()


def test_a_name_that_came_in_two_parts_is_one_name() -> None:
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
        request = next(step)
        assert isinstance(request, Multi)
        self.gone += [op.path for op in request.ops]
        try:
            step.send(Applied([True]))
        except StopIteration as stop:
            return bool(stop.value)
        raise AssertionError("one transaction signs a worker off")

    def __enter__(self) -> Client:
        return cast("Client", self)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


def test_an_error_of_any_kind_is_survived_and_tried_again() -> None:
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


def test_whose_session_has_ended_meanwhile_is_given_up() -> None:
    def opened() -> Any:
        raise RuntimeError("no server")

    signing_off = SigningOff(opened, session_timeout_s=0.01)
    signing_off.has_died("one")
    signing_off.finish(WAIT_S)
    assert not signing_off._dead
