"""Run a server on loopback as a process: find a port, start, pause, kill and restart it."""

from __future__ import annotations

import atexit
import errno
import fcntl
import os
import random
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from typing import TypeVar

from ..basics.private import PRIVATE_FOLDER, open_closed_folder, open_own, own_folders
from ..processes import WatchedProcess, log_tail

LOOPBACK = "127.0.0.1"
# Below the ports of clients (32768 and up on Linux): a client that reconnects to a port in that
# range while the server is down can connect to itself, and so take the port.
_PORTS = range(20_000, 32_000)

_given_ports: set[int] = set()


def free_port() -> int:
    """Return a free loopback port outside the range of client ports, each port once.

    While this process lives, no other process of this user with the same temporary folder gets the
    port either, so that a server that was killed can start again on its port.
    """
    # Not the shared generator, because tests that seed it would choose the same ports in two
    # processes.
    for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
        if port not in _given_ports and _claim(port) and is_free(port):
            _given_ports.add(port)
            return port
    raise OSError(f"no free port from {_PORTS.start} to {_PORTS.stop} on {LOOPBACK}")


def _claim(port: int) -> bool:
    """Lock byte number `port` of a shared file. Returns False if another process has locked it.

    Without such a file, or without locks, callers can only check whether the port is free.
    """
    claims = _claims()
    if claims is None:
        return True
    try:
        fcntl.lockf(claims, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError as error:
        return error.errno not in (errno.EACCES, errno.EAGAIN)
    return True


@cache
def _claims() -> int | None:
    """The shared file, open until the end of this process, which frees its locks; None if there
    cannot be one."""
    for folder in reversed([*own_folders("ports")]):  # the temporary folder first
        with suppress(OSError), ExitStack() as opened:
            folder.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
            within = open_closed_folder(folder)
            opened.callback(os.close, within)
            claims = open_own("claimed", os.O_RDWR | os.O_CREAT, within=within)
            os.utime(claims)  # so that no clean-up of old temporary files deletes it
            return claims
    return None


def is_free(port: int) -> bool:
    """Whether no program listens on this loopback port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def server_status(host: str, timeout_s: float = 1.0) -> dict[str, str]:
    """The answer of `host:port` to the four-letter word `srvr`, by heading; empty without one.

    A server without a quorum, or with the word disabled, has no headings.
    """
    answer = _ask(host, b"srvr", timeout_s).decode(errors="replace")
    lines = (line.partition(": ") for line in answer.splitlines())
    return {heading: value for heading, colon, value in lines if colon}


def is_serving(host: str, timeout_s: float = 1.0) -> bool:
    """Whether `host:port` answers `ruok`, as a server without a quorum also may."""
    return _ask(host, b"ruok", timeout_s) == b"imok"


def _ask(host: str, word: bytes, timeout_s: float) -> bytes:
    """The answer to a four-letter word; empty without one."""
    address, _, port = host.strip().rpartition(":")
    try:
        with socket.create_connection((address.strip("[]"), int(port)), timeout_s) as connection:
            connection.sendall(word)
            return b"".join(iter(lambda: connection.recv(4096), b""))
    except (OSError, ValueError):
        return b""


def server_version(hosts: str) -> str:
    """The version of the first server in a connection string that reports it, else `unknown`."""
    for host in hosts.partition("/")[0].split(","):
        banner = server_status(host).get("Zookeeper version", "")
        if banner:
            return banner.partition("-")[0]
    return "unknown"


S = TypeVar("S", bound="ServerProcess")

_START_DEADLINE_S = 60.0
_STOP_GRACE_S = 5.0
_POLL_S = 0.02
_WATCH_S = 1.0


class ServerDidNotStart(RuntimeError):
    """A server ended, or served no request in time. The message shows the end of its log."""


class ServerProcess:
    """A server with its own data folder and loopback port; subclasses set its command.

    The server's process dies with this process. After `stop()` or `kill()`, the same object can be
    started again on the same data. `close()` and the end of a `with` block also remove the data,
    unless their folder was given. Not thread-safe.
    """

    def __init__(self, port: int | None, data: Path | None) -> None:
        self.port = free_port() if port is None else port
        self._keeps_data = data is not None
        self.data = data or Path(tempfile.mkdtemp(prefix="zkplan-zookeeper-"))
        self.data.mkdir(parents=True, exist_ok=True)
        self.log = self.data / "server.log"
        #: The environment of the server from the next start on; None for that of this process.
        self.environment: Mapping[str, str] | None = None
        self._command: Sequence[str] = ()
        self._owner_pid = os.getpid()
        self._process: WatchedProcess | None = None
        atexit.register(self._close_at_exit)

    @property
    def hosts(self) -> str:
        """The connection string for clients: `127.0.0.1:port`."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def pid(self) -> int | None:
        """The server's process id; None while it does not run."""
        return self._process.pid if self.is_running() and self._process else None

    @property
    def version(self) -> str:
        """The server's version, such as `3.8.0`; `unknown` while it does not answer."""
        return server_version(self.hosts)

    @property
    def mode(self) -> str | None:
        """`standalone`, `leader` or `follower`; None while it serves no requests."""
        return server_status(self.hosts).get("Mode")

    def is_running(self) -> bool:
        """Whether the server's process runs, perhaps paused."""
        return self._process is not None and self._process.is_running()

    def broke_down(self) -> bool:
        """Whether the server's process has ended by itself."""
        process = self._process
        # Another thread that ends the process first sets `_process` to None.
        return process is not None and not process.is_running() and process is self._process

    @property
    def exit_code(self) -> int | None:
        """The exit code, or a signal's negative number, after a breakdown; else None."""
        return self._process.exit_code if self._process is not None else None

    def start(self: S, *, wait: bool = True) -> S:
        """Start the server unless it runs, and wait until it serves requests.

        Raises ServerDidNotStart. With `wait=False`, call `wait_serving` later.
        """
        if not self.is_running():
            self.kill()
            self._process = WatchedProcess(self._command, self.log, self.environment)
        if wait:
            self.wait_serving()
        return self

    def wait_serving(self, timeout_s: float = _START_DEADLINE_S) -> None:
        """Wait until the server serves requests (and a member has a quorum). Raises
        ServerDidNotStart."""
        deadline = time.monotonic() + timeout_s
        while self.mode is None:
            ended = self._process is None or self._process.wait_ended(_POLL_S)
            if ended or time.monotonic() > deadline:
                how = "ended" if ended else f"served no request within {timeout_s} s"
                raise ServerDidNotStart(
                    f"the server on port {self.port} {how}.{log_tail(self.log)}"
                )

    def wait_ended(self) -> None:
        """Wait until the server's process ends. Ctrl-C ends only the wait."""
        while self._process is not None and not self._process.wait_ended(_WATCH_S):
            pass

    def stop(self) -> None:
        """Terminate the server, paused or not, and keep its data. Does nothing if it is down."""
        self._end(_STOP_GRACE_S)

    def kill(self) -> None:
        """End the server with SIGKILL, but keep its data."""
        self._end(0)

    def restart(self) -> None:
        """Stop the server, and start it on the same data and port. Reconnecting sessions go on."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Stop the process with SIGSTOP: connections stay open, but no request is answered."""
        if self._process is not None:
            self._process.pause()

    def resume(self) -> None:
        """Let a paused server go on."""
        if self._process is not None:
            self._process.resume()

    def close(self) -> None:
        """End the server for good, and remove its data unless their folder was given."""
        self._end(_STOP_GRACE_S)
        self._remove_data()
        atexit.unregister(self._close_at_exit)

    def __enter__(self: S) -> S:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def _end(self, grace_s: float) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.end(grace_s)

    def _close_at_exit(self) -> None:
        # A forked child inherits this hook, but must not stop the server.
        if os.getpid() == self._owner_pid:
            self.kill()
            self._remove_data()

    def _remove_data(self) -> None:
        if not self._keeps_data:
            shutil.rmtree(self.data, ignore_errors=True)


class EmbeddedServerProcess(ServerProcess):
    """A `zkplan server` with a data folder: like `ZooKeeperServer`, without Java."""

    def __init__(
        self,
        *,
        tick_time_ms: int = 500,
        durability: str = "durable",
        port: int | None = None,
        data: Path | None = None,
        is_open: bool = True,
    ) -> None:
        """Prepare a server; nothing is started yet.

        A session ends at most `tick_time_ms` after its time-out. `data` is a folder that outlives
        the server; without it `close` removes the data. The server is open to every user of the
        machine, for tests with any client. With `is_open` False it is closed, and `zkplan.connect`
        logs in by itself.
        """
        super().__init__(port, data)
        self._command = [
            *(sys.executable, "-m", "zkplan", "server"),
            *("--listen", f"{LOOPBACK}:{self.port}", "--data", str(self.data / "data")),
            *("--durability", durability, "--tick-time", str(tick_time_ms)),
            *(["--open"] if is_open else []),
        ]

    @property
    def mode(self) -> str | None:
        """See ServerProcess. A closed server tells clients without a login only that it serves."""
        return "standalone" if is_serving(self.hosts) else None
