"""Start `zkplan worker` as a process, and read what it reports."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from .line import UpperEnd
from .output import Relay
from .watched import WatchedProcess, same_imports

#: The environment variable that holds the secret. `zkplan worker` removes it before tasks run.
SECRET_VARIABLE = "ZKPLAN_SECRET"


class WorkerProcess(WatchedProcess):
    """See WatchedProcess. Over a line it reports the ID of its worker, and notices our end."""

    def __init__(
        self,
        command: Sequence[str],
        log: Path | Relay | None,
        environment: Mapping[str, str] | None = None,
        *,
        watched: bool = True,
    ) -> None:
        self.line = UpperEnd()
        self.born = time.monotonic()
        #: When it was last seen running, by the monotonic clock.
        self.seen = self.born
        try:
            super().__init__(
                command,
                log,
                {**(os.environ if environment is None else environment)} | self.line.environment(),
                pass_fds=[self.line.to_pass],
                watched=watched,
            )
        except BaseException:
            self.line.close()
            raise
        finally:
            self.line.was_passed()

    @property
    def worker(self) -> str:
        """The last ID under which its worker registered; empty before the first. Still known after
        its end."""
        self.line.listen()
        return self.line.worker

    def is_running(self) -> bool:
        """See WatchedProcess."""
        now = time.monotonic()
        running = super().is_running()
        self.seen = now if running else self.seen
        return running

    def end(self, grace_s: float) -> None:
        """See WatchedProcess."""
        super().end(grace_s)
        self.line.listen()
        self.line.close()


def worker_command(
    hosts: str, root: str, threads: int, session_timeout_s: float, grace_s: float, *more: str
) -> list[str]:
    """The command line of a worker. Every user can read it, so it must hold no secret."""
    command = [sys.executable, "-m", "zkplan", "worker", "--hosts", hosts, "--root", root]
    command += ["--threads", str(threads), "--session-timeout", str(session_timeout_s)]
    return [*command, "--grace", str(grace_s), *more]


def worker_environment(secret: str, store: str = "") -> dict[str, str]:
    """The environment for a worker: that of this process without its `ZKPLAN_…` options, and the
    secret and the store.

    Other users of the machine cannot read it. The worker can import what this process can.
    """
    kept = {name: value for name, value in same_imports().items() if not name.startswith("ZKPLAN_")}
    given = {SECRET_VARIABLE: secret, "ZKPLAN_STORE": store, "PYTHONUNBUFFERED": "1"}
    return kept | given
