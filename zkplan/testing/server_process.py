"""Run a server on loopback as a process: start, kill, pause it, restart it on the same data."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from zkplan.processes.output import log_tail
from zkplan.processes.watched import WatchedProcess
from zkplan.testing.loopback import LOOPBACK, free_port, server_status, server_version

S = TypeVar("S", bound="ServerProcess")

_START_DEADLINE_S = 60.0
_STOP_GRACE_S = 5.0
_POLL_S = 0.02
_WATCH_S = 1.0


class ServerDidNotStart(RuntimeError):
    """A server ended or served no request in time; the message shows the end of its log."""


class ServerProcess:
    """One server with a data folder and a loopback port of its own; a subclass says its command.

    Its process dies with this one. The same object can be started again on the same data after
    `stop()` or `kill()`; `close()`, and leaving the `with` block, also remove the data, unless
    their folder was given. Not safe for use by several threads at once.
    """

    def __init__(self, port: int | None, data: Path | None) -> None:
        self.port = free_port() if port is None else port
        self._keeps_data = data is not None
        self.data = data or Path(tempfile.mkdtemp(prefix="zkplan-zookeeper-"))
        self.data.mkdir(parents=True, exist_ok=True)
        self.log = self.data / "server.log"
        #: Of its process, from its next start on; None: that of this process.
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
        """Whether its process runs; a paused one does."""
        return self._process is not None and self._process.is_running()

    def broke_down(self) -> bool:
        """Whether its process has ended, though nobody has ended it here."""
        process = self._process
        # Another thread may be ending it: it takes the process away first.
        return process is not None and not process.is_running() and process is self._process

    @property
    def exit_code(self) -> int | None:
        """How it broke down: its code, or the number of a signal, negative; else None."""
        return self._process.exit_code if self._process is not None else None

    def start(self: S, *, wait: bool = True) -> S:
        """Start it and wait until it serves requests. Does nothing if it runs.

        Raises ServerDidNotStart. With `wait=False`, call `wait_serving` later.
        """
        if not self.is_running():
            self.kill()
            self._process = WatchedProcess(self._command, self.log, self.environment)
        if wait:
            self.wait_serving()
        return self

    def wait_serving(self, timeout_s: float = _START_DEADLINE_S) -> None:
        """Wait until it serves requests (a member: has a quorum); raises ServerDidNotStart."""
        deadline = time.monotonic() + timeout_s
        while self.mode is None:
            ended = self._process is None or self._process.wait_ended(_POLL_S)
            if ended or time.monotonic() > deadline:
                how = "ended" if ended else f"served no request within {timeout_s} s"
                raise ServerDidNotStart(
                    f"the server on port {self.port} {how}.{log_tail(self.log)}"
                )

    def wait_ended(self) -> None:
        """Wait until its process ends, by whatever; Ctrl-C ends the wait alone."""
        while self._process is not None and not self._process.wait_ended(_WATCH_S):
            pass

    def stop(self) -> None:
        """Terminate it, paused or not. Its data stay. Does nothing if it does not run."""
        self._end(_STOP_GRACE_S)

    def kill(self) -> None:
        """End it with SIGKILL, as a power cut of the process; its data stay."""
        self._end(0)

    def restart(self) -> None:
        """Stop it and start it on the same data and port; sessions that reconnect go on."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Stop its process with SIGSTOP: connections stay open, nothing more is answered."""
        if self._process is not None:
            self._process.pause()

    def resume(self) -> None:
        """Let a paused server go on."""
        if self._process is not None:
            self._process.resume()

    def close(self) -> None:
        """End it and remove its data, unless their folder was given; it cannot be started again."""
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
