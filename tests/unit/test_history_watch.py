"""A client that is cut off asks whether ZooKeeper was restored, whatever stands in the way."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

import pytest

from zkplan.errors import HistoryLost
from zkplan.keeper.core import Keeper
from zkplan.keeper.history import HistoryWatch
from zkplan.requests import ReadData

WAIT_S = 10.0


class Client:
    """A client that has seen transaction 100 and is cut off."""

    chroot, default_acl, connected, hosts = "", None, False, [("zk", 2181)]
    _session_timeout, last_zxid = 20, 100

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self.listeners: list[Callable[[str], None]] = []

    def add_listener(self, listener: Callable[[str], None]) -> None:
        self.listeners.append(listener)

    def stop(self) -> None:
        self._stopped.set()

    def lose(self) -> None:
        for listener in self.listeners:
            listener("SUSPENDED")


class Answer:
    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act

    def get(self, timeout: float | None = None) -> None:
        assert timeout is not None, "waits for ever where the connection breaks"
        self._act()


class Probe:
    """A new session at a server that has made `last` transactions, and knows of `known`."""

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


def watched(probes: list[Probe]) -> tuple[Keeper, threading.Event]:
    """A keeper that is cut off; an event that is set when all probes were used."""
    client, used = Client(), threading.Event()

    def probe(hosts: str) -> Any:
        if len(probes) == 1:
            used.set()
        return probes.pop(0) if len(probes) > 1 else probes[0]

    keeper = Keeper(client, owns=True)
    HistoryWatch(keeper, probe)
    client.lose()
    return keeper, used


def test_one_that_could_not_ask_asks_again() -> None:
    keeper, _ = watched([Broken(0), Probe(50)])
    with pytest.raises(HistoryLost):
        keeper.ask(ReadData("/"))


def test_a_follower_that_lags_behind_has_lost_nothing() -> None:
    """With local sessions it opens one without a transaction, and may be behind what was seen."""
    keeper, used = watched([Probe(120, known=50), Probe(120, known=50), Probe(120)])
    assert used.wait(WAIT_S)
    keeper.submit(ReadData("/"), lambda answer, error: None)
    keeper.client.stop()


def test_each_that_waits_is_told_by_an_error_of_its_own() -> None:
    """Who adds tasks writes into it how many of them were added."""
    client = Client()
    keeper, told = Keeper(client, owns=True), queue.SimpleQueue[BaseException | None]()
    for _ in range(2):
        keeper.submit(ReadData("/"), lambda answer, error: told.put(error))
    keeper.give_up("restored")
    first, second = told.get(timeout=WAIT_S), told.get(timeout=WAIT_S)
    assert isinstance(first, HistoryLost)
    assert first is not second
