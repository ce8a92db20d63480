"""Supervise worker processes: replace dead ones, drain all on a signal, restart on new code."""

from __future__ import annotations

import atexit
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence

from ..basics.log import get_logger
from ..basics.settings import Handed, Settings
from ..processes.crew import YOUNG_S, Crew, SigningOff
from ..processes.worker import LowerEnd, WorkerProcess
from ..values.functions_by_name import changed_modules
from . import EXIT_UNREACHABLE, EXIT_USAGE

logger = get_logger("zkplan.processes")

#: How often --reload looks at the files of the imported modules.
LOOK_S = 1.0


class HangUp:
    """Handles SIGHUP, which asks for new code unless a closing terminal has sent it."""

    def __init__(self) -> None:
        self._has_terminal = _has_terminal()
        #: `nohup` has started this process, so it stays when the terminal closes.
        self._stays = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN

    def install(self, renew: Callable[[], None], leave: Callable[[], None]) -> None:
        """Let SIGHUP call `renew`, or `leave` when the terminal was closed."""

        def hang_up(*_: object) -> None:
            if not self._has_terminal or _has_terminal():
                renew()
            elif not self._stays:
                leave()

        signal.signal(signal.SIGHUP, hang_up)
        # A SIGHUP that came while this process started again was blocked, and arrives now.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGHUP])

    def block(self) -> None:
        """Let a SIGHUP wait until `install`. Call it before this process starts again."""
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])
        if self._stays:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)


class Leaving:
    """How a worker process ends: for good, or to start again with new code.

    `stop` drains the worker within the given seconds. Signal handlers call these methods, so they
    take no lock: the interrupted code could hold it.
    """

    def __init__(self, stop: Callable[[float], None], grace_s: float) -> None:
        self._stop, self._grace_s = stop, grace_s
        self._ends = self._renews = False

    @property
    def starts_anew(self) -> bool:
        return self._renews and not self._ends

    def leave(self) -> None:
        """Drain, and end."""
        self._ends = True
        self._stop(self._grace_s)

    def leave_or_hurry(self) -> None:
        """Drain, and end; the second time, hand back at once."""
        self._stop(0) if self._ends else self.leave()

    def renew(self) -> None:
        """Drain, and start again; do nothing if the worker already ends or starts again."""
        if not (self._ends or self._renews):
            self._renews = True
            logger.info("this worker drains, then starts again with new code")
            self._stop(self._grace_s)


class Successor:
    """The command that runs again in this process, with the same settings and supervisor."""

    def __init__(self, settings: Settings, line: LowerEnd, hang_up: HangUp) -> None:
        self._settings, self._line, self._hang_up = settings, line, hang_up
        # Tasks run in this process, and may change both.
        self._folder, self._environment = os.getcwd(), dict(os.environ)

    def start(self, leaving: Leaving, *, at_exit: bool) -> None:
        """Run the same command in place of this process, under its ID. Returns if a signal ended
        the worker for good meanwhile. `at_exit`: call the functions of `atexit` first."""
        if at_exit:
            atexit._run_exitfuncs()
        self._hang_up.block()
        # The worker has left: from here on these signals end the process at once.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        if not leaving.starts_anew:
            return
        sys.stdout.flush()
        sys.stderr.flush()
        handed = Handed(self._settings)
        os.set_inheritable(handed.to_pass, True)
        os.chdir(self._folder)
        environment = self._environment | handed.environment() | self._line.hand_on()
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)


def renew_on_change(renew: Callable[[], None]) -> None:
    """Start a thread that calls `renew` once the file of an imported module has changed."""
    threading.Thread(target=_watch, args=[renew], name="zkplan-reload", daemon=True).start()


def _watch(renew: Callable[[], None]) -> None:
    reported: dict[str, str] = {}
    while True:
        threading.Event().wait(LOOK_S)
        changed = changed_modules()
        broken = {name: _why_not(file) for name, file in changed.items()}
        faults = {name: why for name, why in broken.items() if why}
        for name, why in faults.items():
            if reported.get(name) != why:
                logger.error("%s has changed, but cannot be loaded: %s", changed[name], why)
        reported = faults
        if changed and not faults:
            logger.info("changed: %s", ", ".join(changed.values()))
            renew()
            return


def _why_not(file: str) -> str:
    """Return why Python cannot load the file; empty if its syntax is right."""
    try:
        with open(file, "rb") as source:
            compile(source.read(), file, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, OSError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _has_terminal() -> bool:
    """Whether an open terminal controls this process."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


# ---- Run several worker processes as one command.
#
# The workers also drain when this process is killed: a worker process outlives its supervisor only
# to finish what it runs.


_POLL_S = 0.2
#: How long a process may take after its grace to hand back and end, before it is killed.
_LEAVE_S = 20.0
#: How long signing off the workers that died while the others drained may take.
_SIGN_OFF_S = 5.0


class Supervisor:
    """Runs `count` processes of this command until a signal arrives; a second signal hurries them.

    SIGHUP replaces the processes, to load new code. They connect with `settings`, even if this
    command has other options, and also get the options `more`. When a process dies, the supervisor
    signs off its worker, so that others take over its tasks at once.
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
        """The IDs of the processes that run now. Any thread may call this."""
        return [process.pid for process in self._crew.processes]

    def run(self, words: Sequence[str] = ()) -> None:
        """Run until a signal arrives. Raises SystemExit if every process would fail alike.

        `words` are appended to the command of each process.
        """
        self._command += words
        self._crew.start()
        try:
            while not (self._signals.ends or self._crew.is_empty):
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
                lambda: self._signals.ends > 1,
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
        self.ends = 0
        self._reload = False
        self._arrived, arrive = os.pipe()
        for end in (self._arrived, arrive):
            os.set_blocking(end, False)
        # macOS has no sigtimedwait, so this uses a pipe. A full pipe wakes as well as one byte.
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
        self.ends += 1

    def wait(self, timeout_s: float) -> None:
        """Wait for a signal for at most this many seconds; a signal that came before counts."""
        if select.select([self._arrived], [], [], timeout_s)[0]:
            os.read(self._arrived, 4096)
