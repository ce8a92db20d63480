"""Several worker processes as one command: the dead are replaced, a signal drains all of them.

They drain as well when this process is killed: a worker process outlives its supervisor only to end
what it runs.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..backoff import Backoff
from . import EXIT_UNREACHABLE, EXIT_USAGE
from .line import UpperEnd
from .signing_off import SigningOff

logger = logging.getLogger("zkplan.supervisor")

#: A process that dies is started again; the delay grows while it dies young.
_RESTART = Backoff(initial_s=0.2, max_s=10.0, jitter=0.3)
_YOUNG_S = 10.0
_POLL_S = 0.2
#: What a process may take beyond its grace to hand back and leave, before it is killed.
_LEAVE_S = 20.0
#: What those that died while the others drained may take to be signed off.
_SIGN_OFF_S = 5.0


@dataclass
class _Seat:
    """The place of one worker process, whoever sits there now."""

    command: list[str]
    deaths: int = 0
    #: Monotonic time of the next start; None while a process runs.
    due: float | None = None
    born: float = 0.0
    process: subprocess.Popen[bytes] = field(init=False)
    line: UpperEnd = field(init=False)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        self.line = UpperEnd()
        # A session of its own: Ctrl-C in the terminal reaches it once, through the supervisor.
        self.process = subprocess.Popen(
            self.command,
            start_new_session=True,
            pass_fds=[self.line.to_pass],
            env=os.environ | self.line.environment(),
        )
        self.line.was_passed()
        self.born, self.due = time.monotonic(), None

    def bury(self, now: float) -> None:
        """Its process is dead: say so, and when the next one starts."""
        self.line.close()
        self.deaths = self.deaths + 1 if now - self.born < _YOUNG_S else 0
        delay = _RESTART.delay_s(self.deaths, 0.5)
        self.due = now + delay
        logger.warning(
            "worker process %d %s; it is replaced in %.1f s",
            self.process.pid,
            _manner(self.process.returncode),
            delay,
        )


class Supervisor:
    """Runs `count` processes of this very command until a signal; a second one hurries them.

    `extra` are options that these processes get besides, and which win over those given here. The
    workers of those that die are signed off, so that others take their tasks over at once.
    """

    def __init__(
        self, count: int, grace_s: float, signing_off: SigningOff, extra: Sequence[str] = ()
    ) -> None:
        self._grace_s = grace_s
        self._signing_off = signing_off
        self._signals = 0
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._count_signal)
        command = [sys.executable, "-m", "zkplan", *sys.argv[1:], "--processes", "1", *extra]
        self._seats = [_Seat(command) for _ in range(count)]
        #: A process registered, or lived long enough to show that usage and address are right.
        self._proven = False

    def _count_signal(self, *_: object) -> None:
        self._signals += 1

    def run(self) -> int:
        """The exit code: 0 when told to stop, that of its processes where all must fail alike."""
        code = 0
        while not self._signals and not code:
            for seat in self._seats:
                code = code or self._tend(seat, time.monotonic())
            signal.sigtimedwait([signal.SIGCHLD], _POLL_S)
        self._drain()
        return code

    def _tend(self, seat: _Seat, now: float) -> int:
        if seat.due is None:
            has_ended = seat.process.poll() is not None
            # Behind that look: so what it told before its end is known.
            seat.line.listen()
            self._proven = self._proven or bool(seat.line.worker) or now - seat.born >= _YOUNG_S
            if not has_ended:
                return 0
            code = seat.process.returncode
            if code in (EXIT_USAGE, EXIT_UNREACHABLE) and not self._proven:
                # Wrong usage or no ZooKeeper, from the start: a new one would fail alike.
                return code
            self._sign_off(seat)
            seat.bury(now)
        elif now >= seat.due:
            seat.start()
        return 0

    def _sign_off(self, seat: _Seat) -> None:
        """Its process is dead. One that ended with 0 has signed off by itself, or has tried to."""
        if seat.process.returncode and seat.line.worker:
            self._signing_off.has_died(seat.line.worker)

    def _drain(self) -> None:
        told = False
        deadline = time.monotonic() + self._grace_s + _LEAVE_S
        while living := self._living():
            # One signal drains, a second one hurries; more change nothing. One for each look: two
            # that follow at once can arrive as one.
            if not told or self._signals > 1:
                for process in living:
                    process.terminate()
            told = True
            if time.monotonic() > deadline:
                for process in living:
                    process.kill()
            try:
                living[0].wait(_POLL_S)
            except subprocess.TimeoutExpired:
                pass
        self._signing_off.finish(_SIGN_OFF_S)

    def _living(self) -> list[subprocess.Popen[bytes]]:
        """The processes that run on, while nobody takes the places of those that have ended."""
        for seat in self._seats:
            if seat.due is None and seat.process.poll() is not None:
                seat.line.listen()
                self._sign_off(seat)
                seat.due = math.inf
        return [seat.process for seat in self._seats if seat.due is None]


def _manner(code: int) -> str:
    """
    >>> _manner(3), _manner(-9)
    ('ended with 3', 'was ended by SIGKILL')
    """
    if code >= 0:
        return f"ended with {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
