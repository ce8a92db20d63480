"""A ZooKeeper server in Python, for one machine: run it in a thread or as a process.

Of the rest of zkplan, this package imports only `basics`.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import ssl
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path
from typing import NamedTuple

from ..basics.private import is_loopback
from .connection import allow_descriptors
from .database import (
    StorageDamaged,
    StorageError,
    StorageLocked,
    address_of,
    call_after_fork,
)
from .limits import Limits, Settings
from .login import (
    Access,
    announced,
    folder_access,
    folder_login,
    folder_secret,
    new_login,
    new_secret,
)
from .server import Server
from .storage import make_folder
from .words import Subject

__all__ = [
    "Access",
    "EmbeddedServer",
    "Limits",
    "StorageDamaged",
    "StorageError",
    "StorageLocked",
    "address_of",
    "announced",
    "folder_access",
    "server_tls",
]

DURABILITIES = ("durable", "fast")


class EmbeddedServer:
    """A ZooKeeper server in one process, for one machine; any ZooKeeper client can use it.

    With a folder `data`, every acknowledged write survives: with durability 'durable' even a power
    cut, with 'fast' (which does not wait for the disk) the end of the process. Without a folder the
    tree is in memory and ends with the server. There are no replicas.

        with EmbeddedServer() as server:
            KazooClient(server.hosts).start()

    `port` 0 chooses a free port, and later starts of the same object use that port again. A session
    gets the time-out that its client asks for, within the two bounds in milliseconds. Thread-safe.

    By default the server is closed: it serves only clients that have logged in. A KazooClient logs
    in with `auth_data=[("digest", server.login)]`; `zkplan.connect` and the commands of the same
    user on this machine find the login by themselves. After the login the access lists of the nodes
    decide. `logins` are more logins, each `user:password`. With `is_open` the server admits every
    client that reaches it: for tests, or behind a firewall. `tls` encrypts; see `server_tls`.

    `clock` returns the time that znodes show, in seconds since 1970. Schedules, retention,
    deadlines and `not_before` follow it, so a test need not wait for them. Sessions do not.
    """

    def __init__(
        self,
        data: str | Path | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        durability: str = "durable",
        tick_time_ms: int = 500,
        min_session_timeout_ms: int = 1000,
        max_session_timeout_ms: int = 60_000,
        sweep_s: float = 10.0,
        limits: Limits | None = None,
        is_open: bool = False,
        logins: Collection[str] = (),
        tls: ssl.SSLContext | None = None,
        store: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Prepare a server, but open nothing yet. Clients get the URL `store` with the login.

        Raises ValueError for an unknown durability, and for `logins` of an open server.
        """
        if is_open and logins:
            raise ValueError("an open server asks for no login: give either is_open or logins")
        if durability not in DURABILITIES:
            raise ValueError(
                f"durability must be one of {', '.join(DURABILITIES)}, not {durability!r}; "
                "for a server in memory give no data folder"
            )
        self.data = None if data is None else Path(data)
        self.host = host
        self.port = port
        self._is_open, self._logins = is_open, frozenset(logins)
        #: Login and secret of a server in memory. With a folder, `_serve` reads them from there.
        self._access = Access(
            "" if is_open else new_login(), "" if is_open else new_secret(), store
        )
        self._settings = Settings(
            self.data,
            durability == "durable",
            tick_time_ms,
            min_session_timeout_ms,
            max_session_timeout_ms,
            sweep_s,
            limits or Limits(),
            tls=tls,
            clock=clock,
        )
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._server: Server | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def hosts(self) -> str:
        """The connection string for clients: host:port. With `port` 0, only after the start."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def access(self) -> Access:
        """Login, secret and store for clients. With a data folder, only after the first start."""
        return self._access

    @property
    def login(self) -> str:
        """`user:password` of the owner; empty if the server is open. Keep it secret."""
        return self.access.login

    @property
    def fatal(self) -> BaseException | None:
        """The error that ended the server: of the disk, or an unexpected one. Otherwise None."""
        return None if self._server is None else self._server.fatal

    def is_running(self) -> bool:
        """Whether the server runs in its thread, and has not begun to end."""
        thread, server = self._thread, self._server
        return (
            thread is not None
            and thread.is_alive()
            and server is not None
            and not server.ended.is_set()
        )

    def statistics(self, within_s: float = 5.0) -> ServerStatistics | None:
        """Return counts of the running server, or None if its loop does not answer within
        `within_s` seconds. Do not call this on the server's own thread."""
        found: Future[ServerStatistics] = Future()
        loop, server = self._loop, self._server
        if loop is None or server is None or server.ended.is_set():
            return None
        try:
            loop.call_soon_threadsafe(lambda: found.set_result(statistics_of(server)))
            return found.result(within_s)
        except (RuntimeError, TimeoutError, FutureTimeoutError):
            return None  # the loop has just ended, or hangs

    def start(self) -> EmbeddedServer:
        """Serve in a thread; return when clients can connect. Does nothing if the server runs.

        Raises OSError if the address is in use, and StorageLocked, StorageDamaged or StorageError
        if the data folder cannot be used.
        """
        with self._lock:
            if self.is_running():
                return self
            if self._thread is not None and self._thread.is_alive():
                self._thread.join()  # until it has ended, it holds the folder and the port
            self._server = None
            self._start()
            return self

    def _start(self) -> None:
        started: Future[None] = Future()
        abandoned = threading.Event()

        def on_started() -> None:
            started.set_result(None)
            if abandoned.is_set():
                self._stop_soon()

        def serve() -> None:
            try:
                asyncio.run(self._serve(on_started))
            except BaseException as error:
                if not started.done():
                    started.set_exception(error)

        # Register before there is anything to close: a fork may come at any moment.
        call_after_fork(self, EmbeddedServer._forget)
        self._thread = threading.Thread(target=serve, name="zkplan-embedded", daemon=True)
        try:
            self._thread.start()
            started.result()
        except BaseException:
            # Ctrl-C, or a failed start. Whichever runs later, this code or on_started, sees that
            # the other one has run, and stops the server.
            abandoned.set()
            if started.done():
                self._stop_soon()
            raise

    def stop(self) -> None:
        """Stop serving. Sessions stay in the data folder, as in a restart of a real server."""
        with self._lock:
            if self._thread is not None and self._thread.is_alive():
                self._stop_soon()
                self._thread.join()
            self._thread = None

    def _stop_soon(self) -> None:
        loop, server = self._loop, self._server
        if loop is not None and server is not None:
            try:
                loop.call_soon_threadsafe(server.ended.set)
            except RuntimeError:
                pass  # the loop has just ended

    def run(self, on_started: Callable[[EmbeddedServer], None] | None = None) -> int:
        """Serve in the main thread of a process until SIGINT or SIGTERM, and return the exit code.

        The code is 0 after a clean stop, 1 after a failure (see `fatal`). Raises as `start` does.
        """
        allow_descriptors(self._settings.limits.connections)
        # The tree is long-lived: frequent garbage collections of all of it would stall clients.
        gc.set_threshold(50_000, 50, 1_000)

        def started() -> None:
            gc.freeze()
            if on_started is not None:
                on_started(self)

        asyncio.run(self._serve(started, signals=(signal.SIGINT, signal.SIGTERM)))
        return 0 if self.fatal is None else 1

    def __enter__(self) -> EmbeddedServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def _serve(
        self, on_started: Callable[[], None], signals: tuple[signal.Signals, ...] = ()
    ) -> None:
        if self.data is not None:
            self._access = self._access_of(self.data)
        login = self._access.login
        logins = self._logins | {login} if login else frozenset()
        server = Server(self._settings._replace(logins=logins), self._access)
        loop = asyncio.get_running_loop()
        for number in signals:
            loop.add_signal_handler(number, server.ended.set)
        await server.start(self.host, self.port)
        try:
            self.port = server.port
            self._server, self._loop = server, loop
            on_started()
            await server.ended.wait()
        finally:
            await server.close()

    def _access_of(self, folder: Path) -> Access:
        """Return login and secret of the data folder; create them if missing. Raises OSError."""
        if self._is_open:
            # Keep the secret, because plans may be signed with it. An open server has no login.
            return folder_access(folder, self._access.store)._replace(login="")
        # Only clients on this machine can find the secret, so only a loopback server uses it.
        secret = folder_secret(folder) if is_loopback(self.host) else ""
        make_folder(folder)
        return Access(folder_login(folder), secret, self._access.store)

    def _forget(self) -> None:
        """In a forked child, close the copies of the server's sockets: otherwise they would keep
        connections open after the server has ended, and clients would wait."""
        if self._server is not None:
            for descriptor in self._server.descriptors():
                os.close(descriptor)
        self._thread = self._server = self._loop = None
        self._lock = threading.Lock()


class ServerStatistics(NamedTuple):
    """Counts of a server at one moment. Fields with `_max` are its limits.

    `tree_bytes` counts data, paths and access lists. `answers` requests took `answer_s` seconds in
    all, the slowest one `slowest_s`. The time of a request includes the commit of its group.
    """

    znodes: int
    znodes_max: int
    tree_bytes: int
    tree_bytes_max: int
    connections: int
    connections_max: int
    sessions: int
    ephemerals: int
    watches: int
    received: int
    sent: int
    answers: int
    answer_s: float
    slowest_s: float


def statistics_of(server: Subject) -> ServerStatistics:
    """Count what `server` holds and has done. Call this only on the thread of its loop."""
    limits, tree, traffic = server.settings.limits, server.tree, server.traffic
    return ServerStatistics(
        znodes=tree.node_count,
        znodes_max=limits.znodes,
        tree_bytes=tree.znodes.bytes,
        tree_bytes_max=limits.tree_bytes,
        connections=len(server.peers()),
        connections_max=limits.connections,
        sessions=len(server.sessions),
        ephemerals=tree.ephemeral_count,
        watches=tree.watches.counts()[2],
        received=server.service.received,
        sent=traffic.sent,
        answers=traffic.timed,
        answer_s=traffic.sum_ms / 1000,
        slowest_s=traffic.max_ms / 1000,
    )


def server_tls(
    certificate: str | Path, key: str | Path, client_ca: str | Path | None = None
) -> ssl.SSLContext:
    """Return a context for TLS 1.2 or later. The three paths are PEM files.

    `certificate` may hold its authorities, too. With `client_ca`, a client needs a certificate of
    that authority, and still has to log in. Raises OSError for files that cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    if client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(client_ca)
    return context
