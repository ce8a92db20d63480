"""Start `zkplan serve` as a process, for the page of a root, and learn its address."""

from __future__ import annotations

import sys
import threading
import time

from ..errors import ZkplanError
from ..settings import Settings
from ..settings.handing import Handed
from .output import Relay
from .watched import WatchedProcess
from .worker import worker_environment

_START_S, _LOOK_S = 30.0, 0.1
_STOP_S = 3.0
_SAYS = "serving at "


class PageProcess(WatchedProcess):
    """See WatchedProcess. It listens on a free port of loopback; `address` has a token
    for this run."""

    def __init__(self, settings: Settings) -> None:
        """Raises ZkplanError if it does not start, as without the packages of zkplan[service]."""
        self.address = ""
        self._said = threading.Event()
        handed = Handed(settings)
        try:
            super().__init__(
                [sys.executable, "-m", "zkplan", "serve", "--listen", "127.0.0.1:0"],
                Relay(self._note),
                worker_environment() | handed.environment(),
                pass_fds=[handed.to_pass],
            )
        finally:
            handed.was_passed()
        try:
            until = time.monotonic() + _START_S
            while not self._said.wait(_LOOK_S) and self.is_running() and time.monotonic() < until:
                pass
            if not self.address:
                raise ZkplanError(f"the service of the page does not start.{self.log_tail()}")
        except BaseException:
            self.close()
            raise

    def _note(self, line: str, _: str) -> None:
        if line.startswith(_SAYS):
            self.address = line.removeprefix(_SAYS).strip()
            self._said.set()

    def close(self) -> None:
        """End it."""
        self.end(_STOP_S)
