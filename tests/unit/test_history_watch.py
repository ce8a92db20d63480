"""A client that was disconnected checks whether ZooKeeper was restored, until it knows."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from zkplan.errors import ServerRolledBack
from zkplan.protocol.requests import ReadData
from zkplan.transport import RollbackWatch, Transport, kazoo_client

WAIT_S = 10.0


class Client:
    """A client that has seen transaction 100 and is cut off."""

    chroot, default_acl, connected, hosts = "", None, False, [("zk", 2181)]
    _session_timeout, last_zxid = 20, 100

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._connection = SimpleNamespace(_read_sock=None, _write_sock=None)
        self.listeners: list[Callable[[str], None]] = []

    def add_listener(self, listener: Callable[[str], None]) -> None:
        self.listeners.append(listener)

    def remove_listener(self, listener: Callable[[str], None]) -> None:
        self.listeners = [kept for kept in self.listeners if kept != listener]  # as kazoo

    def stop(self) -> None:
        self._stopped.set()

    def close(self) -> None:
        """There is nothing."""

    def lose(self) -> None:
        self.tell("SUSPENDED")

    def tell(self, state: str) -> None:
        for listener in self.listeners:
            listener(state)

    def expire(self) -> None:
        """As kazoo does it: the listeners are told, then it forgets."""
        self.tell("LOST")
        self.last_zxid = 0


class Answer:
    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act

    def get(self, timeout: float | None = None) -> None:
        assert timeout is not None, "waits for ever where the connection breaks"
        self._act()


class Probe:
    """A new session at a server that has made `last` transactions, and knows of `known`."""

    _session_timeout = 20

    def __init__(self, last: int, known: int | None = None) -> None:
        self.last, self.last_zxid = last, last if known is None else known

    def start(self, timeout: float) -> None:
        pass

    stop = close = lambda self: None

    def sync_async(self, path: str) -> Answer:
        return Answer(lambda: setattr(self, "last_zxid", self.last))

    def exists_async(self, path: str) -> Answer:
        return Answer(lambda: None)


class Broken(Probe):
    def start(self, timeout: float) -> None:
        raise OSError("too many open files")


def watched(probes: list[Probe]) -> tuple[Transport, threading.Event]:
    """A transport that is cut off; an event that is set when all probes were used."""
    client, used = Client(), threading.Event()

    def probe(hosts: str) -> Any:
        if len(probes) == 1:
            used.set()
        return probes.pop(0) if len(probes) > 1 else probes[0]

    transport = Transport(client, owns=True)
    RollbackWatch(transport, probe)
    client.lose()
    return transport, used


def test_a_client_that_could_not_check_for_a_restore_checks_again() -> None:
    transport, _ = watched([Broken(0), Probe(50)])
    with pytest.raises(ServerRolledBack):
        transport.ask(ReadData("/"))


def test_a_follower_that_lags_behind_has_lost_nothing() -> None:
    """It opens a local session without a transaction, so that session may know less."""
    transport, used = watched([Probe(120, known=50), Probe(120, known=50), Probe(120)])
    assert used.wait(WAIT_S)
    transport.submit(ReadData("/"), lambda answer, error: None)
    transport.client.stop()


def test_each_waiting_request_gets_an_error_of_its_own() -> None:
    """Who adds tasks writes into it how many of them were added."""
    client = Client()
    transport, told = Transport(client, owns=True), queue.SimpleQueue[BaseException | None]()
    for _ in range(2):
        transport.submit(ReadData("/"), lambda answer, error: told.put(error))
    transport.give_up("restored")
    first, second = told.get(timeout=WAIT_S), told.get(timeout=WAIT_S)
    assert isinstance(first, ServerRolledBack)
    assert first is not second


def test_a_client_whose_session_expired_still_knows_what_it_has_seen() -> None:
    client = Client()
    transport = Transport(client, owns=True)
    RollbackWatch(transport, lambda hosts: Probe(50))
    client.expire()
    with pytest.raises(ServerRolledBack):
        transport.ask(ReadData("/"))


def test_a_session_that_follows_an_expired_one_is_also_checked() -> None:
    """A server that went back takes it: the new session has seen nothing."""
    client, told = Client(), queue.SimpleQueue[BaseException | None]()
    client._session_timeout = 3_600_000  # it is not cut off that long
    transport = Transport(client, owns=True)
    RollbackWatch(transport, lambda hosts: Probe(50))
    transport.submit(ReadData("/"), lambda answer, error: told.put(error))
    client.expire()
    transport._requests._is_connected = False  # the answer to its first request never comes
    client.listeners[-1]("CONNECTED")
    assert isinstance(told.get(timeout=WAIT_S), ServerRolledBack)


def test_the_thread_that_reports_a_loss_does_not_wait_for_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That of kazoo: out of memory, a Thread may end at once, and its start would wait for ever."""
    with monkeypatch.context() as now:
        now.setattr(threading.Thread, "_bootstrap", lambda thread: None)
        transport, _ = watched([Probe(50)])
    with pytest.raises(ServerRolledBack):
        transport.ask(ReadData("/"))


class Slow(Client):
    """One whose thread ends late, as in an attempt to connect; kazoo closes no such connection."""

    def __init__(self) -> None:
        super().__init__()
        self.handler, self.over = self, threading.Event()

    def stop(self) -> None:
        if not self._stopped.is_set():
            super().stop()
            self.over.wait(WAIT_S)

    def close(self) -> None:
        if not self.over.is_set():
            raise Exception("Cannot close connection until it is stopped")


def test_an_abandoned_transport_that_stops_late_can_be_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kazoo_client, "_STOP_S", 0.0)
    monkeypatch.setattr(kazoo_client, "_STOP_MORE_S", 0.01)
    client = Slow()
    transport = Transport(client, owns=True)
    transport.give_up("restored")
    transport.close()
    client.over.set()
