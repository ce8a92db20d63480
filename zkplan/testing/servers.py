"""ZooKeeper servers on loopback that a test or a demonstration starts, kills and restarts."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from zkplan.testing.java import find_java, find_zookeeper
from zkplan.testing.loopback import LOOPBACK, free_port, server_status, server_version
from zkplan.testing.process import WatchedProcess

_START_DEADLINE_S = 60.0
# ZooKeeper's own default is 20 ticks, which with short ticks would cut ordinary session timeouts.
_MAX_SESSION_TIMEOUT_MS = 60_000
_STOP_GRACE_S = 5.0
_POLL_S = 0.02
_WATCH_S = 1.0
_LOG_TAIL_LINES = 25


class ServerDidNotStart(RuntimeError):
    """A server ended or served no request in time; the message shows the end of its log."""


class ZooKeeperServer:
    """One ZooKeeper server with a data folder and a loopback port of its own.

    It writes ahead with fsync, has no admin server, and its process dies with this one. The same
    object can be started again on the same data after `stop()` or `kill()`; `close()`, and leaving
    the `with` block, also remove the data, unless their folder was given. Not safe for use by
    several threads at once.
    """

    def __init__(
        self,
        *,
        tick_time_ms: int = 2000,
        min_session_timeout_ms: int = 1000,
        heap: str = "512m",
        jvm_options: Sequence[str] = (),
        config: Mapping[str, str] | None = None,
        server_id: int | None = None,
        port: int | None = None,
        data: Path | None = None,
    ) -> None:
        """Prepare a server; nothing is started yet.

        A session expires at the first multiple of `tick_time_ms` after its timeout: tests of expiry
        set both times small. `config` adds lines to zoo.cfg, `server_id` makes it a member of an
        ensemble. `data` is a folder that outlives the server; without it the data go with `close`.
        Raises ServerDidNotStart where no ZooKeeper is installed.
        """
        java, class_path = find_java(), find_zookeeper()
        if java is None or class_path is None:
            raise ServerDidNotStart(
                "no ZooKeeper is installed here: install libzookeeper-java and a Java runtime "
                "(Debian, Ubuntu), or set ZOOKEEPER_HOME to an unpacked release"
            )
        self.port = free_port() if port is None else port
        self._keeps_data = data is not None
        self.data = data or Path(tempfile.mkdtemp(prefix="zkplan-zookeeper-"))
        self.log = self.data / "server.log"
        self._owner_pid = os.getpid()
        self._process: WatchedProcess | None = None
        settings = {
            "tickTime": str(tick_time_ms),
            "minSessionTimeout": str(min_session_timeout_ms),
            "maxSessionTimeout": str(_MAX_SESSION_TIMEOUT_MS),
            "dataDir": str(self.data / "data"),
            "clientPort": str(self.port),
            "clientPortAddress": LOOPBACK,
            "maxClientCnxns": "0",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "ruok,srvr",
            **(config or {}),
        }
        (self.data / "data").mkdir(parents=True, exist_ok=True)
        if server_id is not None:
            (self.data / "data" / "myid").write_text(f"{server_id}\n")
        cfg = self.data / "zoo.cfg"
        cfg.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self._command = [
            java,
            f"-Xmx{heap}",
            "-XX:+UseSerialGC",
            "-Dzookeeper.jmx.log4j.disable=true",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            *jvm_options,
            "-cp",
            os.pathsep.join(class_path),
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            str(cfg),
        ]
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
        """Whether its process runs; a paused one does."""
        return self._process is not None and self._process.is_running()

    def start(self, *, wait: bool = True) -> ZooKeeperServer:
        """Start it and wait until it serves requests; nothing happens where it runs.

        Raises ServerDidNotStart. With `wait=False`, call `wait_serving` later.
        """
        if not self.is_running():
            self.kill()
            self._process = WatchedProcess(self._command, self.log)
        if wait:
            self.wait_serving()
        return self

    def wait_serving(self, timeout_s: float = _START_DEADLINE_S) -> None:
        """Wait until it serves requests (a member: has a quorum); raises ServerDidNotStart."""
        deadline = time.monotonic() + timeout_s
        while self.mode is None:
            if self._process is None or self._process.wait_ended(_POLL_S):
                raise ServerDidNotStart(f"ZooKeeper on port {self.port} ended.{self._log_tail()}")
            if time.monotonic() > deadline:
                raise ServerDidNotStart(
                    f"ZooKeeper on port {self.port} served no request within {timeout_s} s."
                    f"{self._log_tail()}"
                )

    def wait_ended(self) -> None:
        """Wait until its process ends, by whatever; Ctrl-C ends the wait alone."""
        while self._process is not None and not self._process.wait_ended(_WATCH_S):
            pass

    def stop(self) -> None:
        """Terminate it, paused or not; its data stay. Nothing happens where it does not run."""
        self._end(_STOP_GRACE_S)

    def kill(self) -> None:
        """End it with SIGKILL, as a power cut of the process; its data stay."""
        self._end(0)

    def restart(self) -> None:
        """Stop it and start it on the same data and port; sessions that reconnect go on."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Stop its process with SIGSTOP: connections stay open, nothing is answered."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused server go on."""
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        """End it and remove its data, unless their folder was given; it cannot be started again."""
        self._end(_STOP_GRACE_S)
        self._remove_data()
        atexit.unregister(self._close_at_exit)

    def __enter__(self) -> ZooKeeperServer:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _end(self, grace_s: float) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.end(grace_s)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send(number)

    def _close_at_exit(self) -> None:
        # A forked child inherits this hook; the server is not the child's to stop.
        if os.getpid() == self._owner_pid:
            self.kill()
            self._remove_data()

    def _remove_data(self) -> None:
        if not self._keeps_data:
            shutil.rmtree(self.data, ignore_errors=True)

    def _log_tail(self) -> str:
        if not self.log.exists():
            return " It wrote no log."
        lines = self.log.read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:]
        return " The end of its log:\n" + "\n".join(lines)


class ZooKeeperEnsemble:
    """Three (or more) servers on loopback that form one ensemble.

    `servers` are its members, each with the methods of ZooKeeperServer.
    """

    def __init__(
        self, size: int = 3, *, tick_time_ms: int = 2000, min_session_timeout_ms: int = 1000
    ) -> None:
        """Prepare the members; nothing is started yet. Raises ServerDidNotStart as servers do."""
        members = {
            f"server.{number}": f"{LOOPBACK}:{free_port()}:{free_port()}"
            for number in range(1, size + 1)
        }
        # Deadlines in ticks: with a small tick a busy machine still gets 10 s to form a quorum.
        ticks = max(5, 10_000 // tick_time_ms)
        config = {"initLimit": str(ticks), "syncLimit": str(ticks), **members}
        self.servers = [
            ZooKeeperServer(
                tick_time_ms=tick_time_ms,
                min_session_timeout_ms=min_session_timeout_ms,
                heap="256m",
                config=config,
                server_id=number,
            )
            for number in range(1, size + 1)
        ]

    @property
    def hosts(self) -> str:
        """The connection string with every member."""
        return ",".join(server.hosts for server in self.servers)

    @property
    def version(self) -> str:
        """The version of the members that answer; `unknown` where none does."""
        return server_version(self.hosts)

    def start(self) -> ZooKeeperEnsemble:
        """Start or resume every member that does not serve, and wait until all do."""
        for server in self.servers:
            server.resume()
            server.start(wait=False)
        for server in self.servers:
            server.wait_serving()
        return self

    def leader(self, timeout_s: float = _START_DEADLINE_S) -> ZooKeeperServer:
        """The member that leads; waits for an election under way; raises TimeoutError."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            for server in self.servers:
                if server.is_running() and server.mode == "leader":
                    return server
            time.sleep(_POLL_S)
        raise TimeoutError(f"no member of {self.hosts} led within {timeout_s} s")

    def close(self) -> None:
        """End every member and remove the data."""
        with ExitStack() as stack:
            for server in self.servers:
                stack.callback(server.close)

    def __enter__(self) -> ZooKeeperEnsemble:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
