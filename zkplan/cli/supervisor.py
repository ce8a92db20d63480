"""Run several worker processes as one command: replace the dead ones, drain all on a signal.

The workers also drain when this process is killed: a worker process outlives its supervisor only to
finish what it runs.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Sequence

from ..log import get_logger
from ..processes.crew import YOUNG_S, Crew
from ..processes.signing_off import SigningOff
from ..processes.worker import WorkerProcess
from ..settings import Settings
from . import EXIT_UNREACHABLE, EXIT_USAGE
from .new_code import HangUp

logger = get_logger("zkplan.processes")

_POLL_S = 0.2
#: How long a process may take after its grace to hand back and end, before it is killed.
_LEAVE_S = 20.0
#: How long it may take to sign off workers that died while the others drained.
_SIGN_OFF_S = 5.0


class Supervisor:
    """Runs `count` processes of this command until a signal arrives; a second signal hurries them.

    SIGHUP replaces them, so that they load their code anew.

    They connect as `settings` say, whatever options were given to this command, and have the
    options `more` besides. When a process
    dies, its worker is signed off, so that others take over its tasks at once.
    """

    def __init__(
        self,
        count: int,
        grace_s: float,
        signing_off: SigningOff,
        settings: Settings,
        more: Sequence[str] = (),
    ) -> None:
        self._grace_s, self._signing_off = grace_s, signing_off
        self._signals = _Signals()
        self._command = [sys.executable, "-m", "zkplan", *sys.argv[1:], *more, "--processes", "1"]
        self._settings = settings
        self._crew = Crew(self._start, count, self._has_ended, settings.session_timeout)
        #: A process registered, or it ran long enough to show that usage and address are right.
        self._proven = False

    def pids(self) -> list[int]:
        """The processes that run now. Any thread may ask."""
        return [process.pid for process in self._crew.processes]

    def run(self, words: Sequence[str] = ()) -> None:
        """Returns when told to stop; raises SystemExit where all processes must fail alike.

        `words` are appended to the command of each process.
        """
        self._command += words
        self._crew.start()
        try:
            while not (self._signals.told or self._crew.is_empty):
                for process in self._crew.processes:
                    self._prove(process)
                if self._signals.take_reload():
                    logger.info("SIGHUP: new worker processes replace the old ones, one by one")
                    self._crew.renew()
                self._crew.tend()
                self._signals.wait(_POLL_S)
        finally:
            self._crew.stop(
                self._grace_s + _LEAVE_S,
                lambda: self._signals.told > 1,
                has_ended=self._signing_off.has_ended,
            )
            self._signing_off.finish(_SIGN_OFF_S)

    def _start(self) -> WorkerProcess:
        return WorkerProcess(self._command, None, settings=self._settings, watched=False)

    def _prove(self, process: WorkerProcess) -> None:
        lived_s = time.monotonic() - process.born
        self._proven = self._proven or bool(process.worker) or lived_s >= YOUNG_S

    def _has_ended(self, process: WorkerProcess) -> None:
        self._prove(process)
        if process.exit_code in (EXIT_USAGE, EXIT_UNREACHABLE) and not self._proven:
            # Wrong usage, or no ZooKeeper from the start: a new process would fail in the same way.
            raise SystemExit(process.exit_code)
        self._signing_off.has_ended(process)


class _Signals:
    """Counts SIGTERM and SIGINT, and notes SIGHUP. These, and the end of a child, end a wait."""

    def __init__(self) -> None:
        self.told = 0
        self._reload = False
        self._arrived, arrive = os.pipe()
        for end in (self._arrived, arrive):
            os.set_blocking(end, False)
        # macOS has no sigtimedwait, so this uses a pipe. A full pipe wakes as well as one byte
        # does.
        signal.set_wakeup_fd(arrive, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._count)
        HangUp().install(self._ask_reload, self._count)

    def _ask_reload(self) -> None:
        self._reload = True

    def take_reload(self) -> bool:
        """Whether new code was asked for since the last call."""
        asked, self._reload = self._reload, False
        return asked

    def _count(self, *_: object) -> None:
        self.told += 1

    def wait(self, timeout_s: float) -> None:
        """Wait for a signal, at most this many seconds; a signal that came before counts."""
        if select.select([self._arrived], [], [], timeout_s)[0]:
            os.read(self._arrived, 4096)
