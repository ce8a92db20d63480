"""What was submitted first is sent first, whatever the connection does meanwhile.

A worker reads its new tasks right behind the transaction that claims them. A read that overtook it
found no claims: the worker took them for lost, and nobody ran them as long as it lived.
"""

from __future__ import annotations

import pytest
from kazoo.client import KazooState
from kazoo.exceptions import ConnectionLoss

from .played_connection import CLAIM, READ, Line, line

__all__ = ["line"]

IN_ORDER = ["TransactionPacket", "ReadManyPacket"]


def test_a_read_behind_a_write_stays_behind_it(line: Line) -> None:
    line.submit(CLAIM)
    line.submit(READ)
    assert line.waiting == IN_ORDER
    line.down()
    assert line.waiting == []
    line.up()
    assert line.waiting == IN_ORDER


def test_a_read_that_comes_while_the_loss_is_being_told_stays_behind_the_write(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kazoo fails what is under way first, and says only then that the connection is lost."""
    told = line.client._make_state_change

    def read_meanwhile(state: str) -> None:
        if state == KazooState.SUSPENDED:
            line.submit(READ)
        told(state)

    monkeypatch.setattr(line.client, "_make_state_change", read_meanwhile)
    line.submit(CLAIM)
    line.down()
    line.up()
    assert line.waiting == IN_ORDER


def test_a_read_that_comes_while_the_writes_are_failed_stays_behind_them(line: Line) -> None:
    """Kazoo fails one request after the other; threads submit meanwhile."""

    class Meanwhile:
        def set_exception(self, error: BaseException) -> None:
            assert isinstance(error, ConnectionLoss)
            line.submit(READ)

    line.submit(CLAIM)
    line.client._queue.append((None, Meanwhile()))
    line.submit(CLAIM)
    line.down()
    line.up()
    assert line.waiting == ["TransactionPacket", *IN_ORDER]
