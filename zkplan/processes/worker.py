"""Start `zkplan worker` as a process, and read what it reports."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..settings import Settings
from ..settings.handing import Handed
from .line import UpperEnd
from .output import Relay
from .watched import WatchedProcess, same_imports


class WorkerProcess(WatchedProcess):
    """See WatchedProcess. Over a line it reports the ID of its worker, and notices our end.

    It connects as `settings` say, if they are given, whatever its command and environment say.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path | Relay | None,
        environment: Mapping[str, str] | None = None,
        *,
        settings: Settings | None = None,
        watched: bool = True,
    ) -> None:
        self.line = UpperEnd()
        handed: Handed | None = None
        self.born = time.monotonic()
        #: When it was last seen running, by the monotonic clock.
        self.seen = self.born
        try:
            handed = None if settings is None else Handed(settings)
            super().__init__(
                command,
                log,
                {
                    **(os.environ if environment is None else environment),
                    **self.line.environment(),
                    **({} if handed is None else handed.environment()),
                },
                pass_fds=[self.line.to_pass, *([] if handed is None else [handed.to_pass])],
                watched=watched,
            )
        except BaseException:
            self.line.close()
            raise
        finally:
            self.line.was_passed()
            if handed is not None:
                handed.was_passed()

    @property
    def worker(self) -> str:
        """The last ID under which its worker registered; empty before the first. Still known after
        its end."""
        self.line.listen()
        return self.line.worker

    @property
    def drained(self) -> bool:
        """Whether its worker was drained from elsewhere. Still known after its end."""
        self.line.listen()
        return self.line.drained

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


def worker_command(threads: int, grace_s: float, *more: str) -> list[str]:
    """The command line of a worker, which is handed its settings. Every user can read the line."""
    command = [sys.executable, "-m", "zkplan", "worker"]
    return [*command, "--threads", str(threads), "--grace", str(grace_s), *more]


def worker_environment() -> dict[str, str]:
    """The environment for a worker: that of this process without its `ZKPLAN_…` options.

    The worker can import what this process can.
    """
    kept = {name: value for name, value in same_imports().items() if not name.startswith("ZKPLAN_")}
    return kept | {"PYTHONUNBUFFERED": "1"}
