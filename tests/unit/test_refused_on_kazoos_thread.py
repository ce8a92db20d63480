"""Whoever waits for an answer is told when the transport ends between two requests of one call."""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.exceptions import NoNodeError, UnimplementedError
from kazoo.protocol.states import KeeperState

from zkplan.errors import ClientClosed, ServerRolledBack
from zkplan.protocol.requests import ReadData, ReadMany, Request
from zkplan.transport import Transport
from zkplan.transport.packets import Packer

WAIT_S = 10.0
Told = queue.SimpleQueue[tuple[Any, BaseException | None]]


class Client:
    """A connected client; the test answers what is in its queue."""

    chroot, default_acl, connected, hosts = "", None, True, [("zk", 2181)]
    _state, _session_timeout = KeeperState.CONNECTED, 20

    def __init__(self) -> None:
        self._queue: deque[tuple[Any, Any]] = deque()
        self._connection = self._write_sock = self

    def gettimeout(self) -> None:
        pass

    def send(self, byte: bytes, flags: int) -> None:
        pass

    def add_listener(self, listener: Callable[[str], None]) -> None:
        pass

    remove_listener = add_listener

    def stop(self) -> None:
        pass

    close = stop


def asked(request: Request) -> tuple[Transport, Client, Told]:
    client, told = Client(), Told()
    transport = Transport(client, owns=False)
    transport.submit(request, lambda answer, error: told.put((answer, error)))
    return transport, client, told


@pytest.mark.parametrize("ends", [ServerRolledBack, ClientClosed])
def test_a_read_that_found_nothing_and_then_something(ends: type[Exception]) -> None:
    transport, client, told = asked(ReadData("/late", watch=True))
    client._queue.popleft()[1].set_exception(NoNodeError())
    _, exists = client._queue.popleft()
    if ends is ServerRolledBack:
        transport.give_up("restored")
    else:
        transport.close()
    exists.set("the stat of a znode that was created meanwhile")
    answer, error = told.get(timeout=WAIT_S)
    assert answer is None
    assert isinstance(error, ends)


def test_a_batch_that_falls_apart_on_a_server_without_batches() -> None:
    transport, client, told = asked(ReadMany([ReadData("/a"), ReadData("/b")]))
    transport.close()
    client._queue.popleft()[1].set_exception(UnimplementedError())
    answer, error = told.get(timeout=WAIT_S)
    assert answer is None
    assert isinstance(error, ClientClosed)
    assert told.empty()  # once, not for each of its reads


def test_a_request_while_the_keeper_is_closed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    transport = Transport(Client(), owns=False)
    pack = Packer.pack

    def close_meanwhile(packer: Packer, request: Request) -> Any:
        transport.close()
        return pack(packer, request)

    monkeypatch.setattr(Packer, "pack", close_meanwhile)
    with pytest.raises(ClientClosed):
        transport.submit(ReadData("/a"), lambda answer, error: None)
