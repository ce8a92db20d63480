"""Take new code: a worker process drains, and starts anew in its place, by SIGHUP or --reload."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable

from ..basics.loaded_code import changed_modules
from ..log import get_logger
from ..processes.line import LowerEnd
from ..settings import Settings
from ..settings.handing import Handed

logger = get_logger("zkplan.processes")

#: How often --reload looks at the files of the imported modules.
LOOK_S = 1.0


class HangUp:
    """Tells the SIGHUP of somebody who asks for new code from that of a terminal that closes."""

    def __init__(self) -> None:
        self._has_terminal = _has_terminal()
        #: `nohup` has started this process: it is to stay when the terminal closes.
        self._stays = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN

    def install(self, renew: Callable[[], None], leave: Callable[[], None]) -> None:
        """From now on SIGHUP calls `renew`, and `leave` where the terminal was closed."""

        def hang_up(*_: object) -> None:
            if not self._has_terminal or _has_terminal():
                renew()
            elif not self._stays:
                leave()

        signal.signal(signal.SIGHUP, hang_up)
        # One that came while this process started anew was blocked, and arrives now.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGHUP])

    def block(self) -> None:
        """Before this process starts anew: a SIGHUP waits until `install` there."""
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])
        if self._stays:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)


class Leaving:
    """How a worker process ends: for good, or to start anew with new code.

    `stop` drains the worker within so many seconds. Signal handlers call this: it takes no lock,
    which what they interrupt could hold.
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
        """The same; the second time, hand back at once."""
        self._stop(0) if self._ends else self.leave()

    def renew(self) -> None:
        """Drain, and start anew. One that ends goes on with that."""
        if not (self._ends or self._renews):
            self._renews = True
            logger.info("this worker drains, then it starts anew and loads the code of tasks again")
            self._stop(self._grace_s)


class Successor:
    """This process as it was started: what it runs anew, with its settings and its supervisor."""

    def __init__(self, settings: Settings, line: LowerEnd, hang_up: HangUp) -> None:
        self._settings, self._line, self._hang_up = settings, line, hang_up
        # Tasks run in this process, and may change both.
        self._folder, self._environment = os.getcwd(), dict(os.environ)

    def start(self, leaving: Leaving, *, at_exit: bool) -> None:
        """Run the same command in place of this process, under its ID. Returns where it was told
        to end for good meanwhile. With `at_exit` what is registered with `atexit` runs first."""
        if at_exit:
            atexit._run_exitfuncs()
        self._hang_up.block()
        # The worker has left: from here on these end the process at once, and none gets lost.
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
    """Call `renew` once the file of an imported module has changed, on a thread of its own."""
    threading.Thread(target=_watch, args=[renew], name="zkplan-reload", daemon=True).start()


def _watch(renew: Callable[[], None]) -> None:
    told: dict[str, str] = {}
    while True:
        threading.Event().wait(LOOK_S)
        changed = changed_modules()
        broken = {name: _why_not(file) for name, file in changed.items()}
        faults = {name: why for name, why in broken.items() if why}
        for name, why in faults.items():
            if told.get(name) != why:
                logger.error("%s has changed, but cannot be loaded: %s", changed[name], why)
        told = faults
        if changed and not faults:
            logger.info("changed: %s", ", ".join(changed.values()))
            renew()
            return


def _why_not(file: str) -> str:
    """Why Python cannot load the file; empty if its syntax is right."""
    try:
        with open(file, "rb") as source:
            compile(source.read(), file, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, OSError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _has_terminal() -> bool:
    """Whether this process has a terminal that controls it, and that is open."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
