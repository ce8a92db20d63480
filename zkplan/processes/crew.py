"""Worker processes that are kept at a number: started, replaced when they die, stopped together."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import wait

from ..backoff import CHANCE, Backoff
from ..errors import WaitTimeout, ZkplanError
from .worker import WorkerProcess

logger = logging.getLogger("zkplan.processes")

#: One that lived shorter has died young.
YOUNG_S = 10.0
#: How long one is away grows while it dies young.
_RESTART = Backoff(initial_s=0.2, max_s=10.0, jitter=0.3)
_POLL_S = 0.2


@dataclass(eq=False)
class _Seat:
    """The place of one worker process, whoever has it now; `due` is when the next one starts."""

    process: WorkerProcess | None = None
    deaths: int = 0
    due: float = 0.0


class Crew:
    """`size` worker processes that `start` starts, one at a call.

    `has_ended` is called with each that ended by itself, before it is replaced, and may raise: then
    `tend` does. One thread at a time looks after them; `close` may come from any.
    """

    def __init__(
        self,
        start: Callable[[], WorkerProcess],
        size: int,
        has_ended: Callable[[WorkerProcess], None] = lambda _: None,
    ) -> None:
        self._start, self._has_ended = start, has_ended
        self._seats = [_Seat() for _ in range(size)]
        self._lock = threading.Lock()
        self._closed = False

    @property
    def processes(self) -> list[WorkerProcess]:
        """Those that have not been seen to have ended."""
        return [seat.process for seat in self._seats if seat.process is not None]

    def start(self) -> None:
        """Start them all; raises what keeps one from starting, and leaves none then."""
        try:
            for seat in self._seats:
                self._fill(seat)
        except BaseException:
            self.close()
            raise

    def wait_ready(self, timeout_s: float) -> None:
        """Wait until each has registered a worker.

        Raises ZkplanError where one ends before, WaitTimeout, both with the end of its log.
        """
        deadline = time.monotonic() + timeout_s
        while missing := [process for process in self.processes if not process.worker]:
            for process in missing:
                if not process.is_running() and not process.worker:
                    process.end(0)
                    raise ZkplanError(
                        f"worker process {process.pid} ended at its start.{process.log_tail()}"
                    )
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise WaitTimeout(
                    f"{len(missing)} of {len(self._seats)} workers did not register within "
                    f"{timeout_s:g} s.{missing[0].log_tail()}"
                )
            wait([process.line.fileno() for process in missing], min(left_s, _POLL_S))

    def tend(self) -> None:
        """Look after each of them once: those that have ended are replaced when that is due."""
        for seat in self._seats:
            now, process = time.monotonic(), seat.process
            if process is not None:
                if not process.is_running():
                    self._replace(seat, process, now)
            elif now >= seat.due:
                try:
                    self._fill(seat)
                except (OSError, RuntimeError) as error:
                    # No memory, processes, threads or descriptors for the moment.
                    seat.deaths += 1
                    seat.due = now + self._delay_s(seat)
                    logger.error("a worker process cannot be started; it is tried again: %s", error)

    def kill(self, process: WorkerProcess, for_good: bool = False) -> None:
        """End one with SIGKILL; the next `tend` starts another, unless it is `for_good`."""
        for seat in [seat for seat in self._seats if seat.process is process]:
            process.end(0)
            seat.process, seat.due = None, 0.0
            if for_good:
                self._seats.remove(seat)

    def stop(
        self,
        within_s: float,
        hurried: Callable[[], bool] = lambda: False,
        has_ended: Callable[[WorkerProcess], None] = lambda _: None,
    ) -> list[WorkerProcess]:
        """Tell all to end and wait; those that have not ended `within_s` seconds are killed.

        While they are `hurried` they are told again, once for each look: two signals that follow at
        once can arrive as one. `has_ended` is called with each of them. Gives the killed ones;
        whatever interrupts it, none is left.
        """
        told = False
        deadline = time.monotonic() + within_s
        try:
            while living := self._living(has_ended):
                if not told or hurried():
                    for process in living:
                        process.terminate()
                told = True
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    for process in living:
                        process.end(0)
                        has_ended(process)
                    return living
                living[0].wait_ended(min(left_s, _POLL_S))
            return []
        finally:
            self.close()

    def close(self) -> None:
        """End with SIGKILL all that is left; none is started any more."""
        with self._lock, ExitStack() as stack:
            self._closed = True
            for process in self.processes:
                stack.callback(process.end, 0)
            for seat in self._seats:
                seat.process = None

    def _fill(self, seat: _Seat) -> None:
        # One that is started beside `close` would be forgotten.
        with self._lock:
            if not self._closed:
                seat.process = self._start()

    def _replace(self, seat: _Seat, process: WorkerProcess, now: float) -> None:
        process.end(0)
        seat.process = None
        seat.deaths = seat.deaths + 1 if now - process.born < YOUNG_S else 0
        delay_s = self._delay_s(seat)
        seat.due = now + delay_s
        self._has_ended(process)
        logger.warning(
            "worker process %d %s; it is replaced in %.1f s",
            process.pid,
            _manner(process.exit_code or 0),
            delay_s,
        )

    def _delay_s(self, seat: _Seat) -> float:
        return _RESTART.delay_s(seat.deaths, CHANCE.random())

    def _living(self, has_ended: Callable[[WorkerProcess], None]) -> list[WorkerProcess]:
        """Those that run on, while nobody takes the places of those that have ended."""
        for seat in self._seats:
            if seat.process is not None and not seat.process.is_running():
                ended, seat.process = seat.process, None
                ended.end(0)
                has_ended(ended)
        return self.processes


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
