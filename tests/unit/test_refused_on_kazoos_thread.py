"""Whoever waits for an answer is told when the transport ends between two requests of one call."""

from __future__ import annotations

from typing import Any

import pytest
from kazoo.exceptions import NoNodeError, UnimplementedError

from zkplan.errors import ClientClosed, ServerRolledBack
from zkplan.protocol.requests import ReadData, ReadMany, Request
from zkplan.transport.packets import Packer

from .played_connection import WAIT_S, Line, line

__all__ = ["line"]


def end(line: Line, error: type[Exception]) -> None:
    if error is ServerRolledBack:
        line.transport.give_up("restored")
    else:
        line.transport.close()


def told(line: Line) -> BaseException | None:
    answer, error = line.answers.get(timeout=WAIT_S)
    assert answer is None
    assert line.answers.empty(), "once, not for each request"
    return error  # type: ignore[no-any-return]


@pytest.mark.parametrize("error", [ServerRolledBack, ClientClosed])
def test_a_read_that_found_nothing_and_then_something(error: type[Exception], line: Line) -> None:
    line.submit(ReadData("/late", watch=True))
    line.next_call().set_exception(NoNodeError())
    exists = line.next_call()
    end(line, error)
    exists.set("the stat of a znode that was created meanwhile")
    assert isinstance(told(line), error)


@pytest.mark.parametrize("error", [ServerRolledBack, ClientClosed])
def test_a_batch_that_is_split_for_a_server_without_batches(
    error: type[Exception], line: Line
) -> None:
    line.submit(ReadMany([ReadData("/a"), ReadData("/b")]))
    call = line.next_call()
    end(line, error)
    call.set_exception(UnimplementedError())
    assert isinstance(told(line), error)


def test_a_request_while_the_transport_is_closed_is_refused(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack = Packer.pack

    def close_meanwhile(packer: Packer, request: Request) -> Any:
        line.transport.close()
        return pack(packer, request)

    monkeypatch.setattr(Packer, "pack", close_meanwhile)
    with pytest.raises(ClientClosed):
        line.submit(ReadData("/a"))
