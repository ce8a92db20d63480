"""The registration of a service: its claims node is where its commits leave what they owe."""

from __future__ import annotations

import itertools
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

from ..basics.version import __version__
from ..errors import ClientClosed, ZooKeeperUnavailable
from ..protocol.layout import SERVICE, Paths
from ..protocol.membership import register, unregister
from ..protocol.shared import Registration
from ..protocol.worker_record import WorkerRecord
from ..transport import Transport
from ..transport.server_clock import ServerClock

#: After so many IDs that were used the session is not one that can register.
TRIES_MAX = 20


class Registered:
    """Registers when that is needed, and again after a lost session. Thread-safe."""

    def __init__(self, transport: Transport, paths: Paths) -> None:
        self._transport, self._paths = transport, paths
        self.clock = ServerClock()
        self._lock = threading.Lock()
        self._me: Registration | None = None
        host = socket.gethostname().split(".")[0][:20]
        name = f"{SERVICE}{host}-{os.getpid()}-{os.urandom(4).hex()}"
        self._ids: Iterator[str] = (
            name if number == 1 else f"{name}-{number}" for number in itertools.count(1)
        )

    def me(self) -> Registration:
        """Raises ZooKeeperUnavailable, TransactionRejected."""
        with self._lock:
            for _ in range(TRIES_MAX):
                if self._me is not None:
                    return self._me
                self._register(next(self._ids))
        raise ZooKeeperUnavailable("this service cannot register: its session ends again and again")

    def _register(self, name: str) -> None:
        record = WorkerRecord(
            name, socket.gethostname(), os.getpid(), 0, time.time(), version=__version__
        )
        uids = map("{:x}".format, itertools.count())  # several threads take from it
        before = time.monotonic()
        self._me = self._transport.run(register(self._paths, name, record.to_bytes(), uids))
        if self._me is not None:
            self.clock.registered(self._me.worker_path, before, time.monotonic())

    def measured(self) -> ServerClock:
        """The server's clock, from the time that it wrote on the registration."""
        if not self.clock.is_known:
            self.me()
            self._transport.run(self.clock.measure())
        return self.clock

    def lost(self, me: Registration) -> None:
        """The registration is gone: whoever clears its claims node does what it owed."""
        with self._lock:
            if self._me is me:
                self._me = None

    def leave(self) -> None:
        with self._lock:
            me, self._me = self._me, None
        if me is not None:
            # Where ZooKeeper is away, the session ends, and others clear the claims node.
            with suppress(ZooKeeperUnavailable, ClientClosed):
                self._transport.run(unregister(me))
