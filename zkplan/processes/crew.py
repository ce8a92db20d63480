"""Keep a fixed number of worker processes running, and sign off the workers of dead ones."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import wait

from ..backoff import CHANCE, Backoff
from ..basics.log import get_logger
from ..client import Client
from ..errors import WaitTimeout, ZkplanError
from ..protocol.core.workers import sign_off
from .worker import WorkerProcess

logger = get_logger("zkplan.processes")

#: A process that lived for fewer seconds than this has died young.
YOUNG_S = 10.0
#: The delay before a replacement, which grows while replacements die young.
_RESTART_REST = Backoff(initial_s=0.2, max_s=10.0, jitter=0.3)
_POLL_S = 0.2


@dataclass(eq=False)
class _Seat:
    """The place of one worker process and its replacements. `due` is the time to start the next."""

    process: WorkerProcess | None = None
    deaths: int = 0
    due: float = 0.0
    #: The process was asked to end, and this seat goes with it.
    leaves: bool = False
    #: The time of the first look that found the process stopped; infinite while it runs.
    stopped: float = math.inf


@dataclass(eq=False)
class _Renewal:
    """The replacement of all processes, one by one: at present of `old` by `new`."""

    seats: deque[_Seat]
    old: _Seat | None = None
    new: _Seat | None = None


class Crew:
    """Keeps `size` worker processes running; each call of `start` starts one.

    The crew calls `has_ended` with each process that ended by itself, before it replaces the
    process; `tend` raises what `has_ended` raises. A process that was stopped (SIGSTOP) for
    `session_s` seconds has lost its session: the crew kills it, and treats it as ended by itself.
    Only one thread at a time may use a crew, but any thread may call `close`.
    """

    def __init__(
        self,
        start: Callable[[], WorkerProcess],
        size: int,
        has_ended: Callable[[WorkerProcess], None] = lambda _: None,
        session_s: float = math.inf,
    ) -> None:
        self._start, self._has_ended, self._session_s = start, has_ended, session_s
        self._seats = [_Seat() for _ in range(size)]
        self._lock = threading.Lock()
        self._closed = False
        self._renewal: _Renewal | None = None

    @property
    def is_empty(self) -> bool:
        """Whether operators have drained all workers: no process is left, and none will start."""
        return not self._seats

    @property
    def processes(self) -> list[WorkerProcess]:
        """The processes that are not known to have ended."""
        return [seat.process for seat in self._seats if seat.process is not None]

    def start(self) -> None:
        """Start all processes. If one cannot start, end the others and raise its error."""
        try:
            for seat in self._seats:
                self._fill(seat)
        except BaseException:
            self.close()
            raise

    def wait_ready(self, timeout_s: float) -> None:
        """Wait until each process has registered its worker.

        Raises ZkplanError if a process ends before that, or WaitTimeout. Both show the last lines
        of the process's output.
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
        """Look at each process once; start the replacements that are due."""
        for seat in list(self._seats):
            now, process = time.monotonic(), seat.process
            if process is not None:
                if not process.is_running() or self._is_stopped_for_good(seat, process, now):
                    self._replace(seat, process, now)
            elif now >= seat.due:
                self._start_in(seat, now)
        if self._renewal is not None:
            self._renew(self._renewal)

    def _is_stopped_for_good(self, seat: _Seat, process: WorkerProcess, now: float) -> bool:
        seat.stopped = min(seat.stopped, now) if process.is_stopped() else math.inf
        if now < seat.stopped + self._session_s:
            return False
        logger.warning(
            "worker process %d has been stopped (SIGSTOP) for %g s, so its session has ended and "
            "others have its tasks: it is killed",
            *(process.pid, self._session_s),
        )
        return True

    def _start_in(self, seat: _Seat, now: float) -> None:
        try:
            self._fill(seat)
        except (OSError, RuntimeError) as error:
            # The system has no memory, processes, threads or descriptors left at the moment.
            seat.deaths += 1
            seat.due = now + self._delay_s(seat)
            logger.error("cannot start a worker process, and will try again: %s", error)

    def renew(self) -> None:
        """Let `tend` replace the processes one by one by new ones, which load the code again.

        Each process is asked to end once its successor has registered a worker. If a successor
        ends before that, the processes that are left stay.
        """
        self._renewal = _Renewal(deque(self._seats))

    def _renew(self, renewal: _Renewal) -> None:
        """One turn of `tend` while the processes are replaced."""
        old, new = renewal.old, renewal.new
        if new is not None and (new.process is None or new.deaths):
            logger.error("a new worker process has ended at its start: the others are not replaced")
            self._seats.remove(new)
            self._renewal = None
        elif new is not None and old is not None and new.process and new.process.worker:
            renewal.new, old.leaves = None, True
            if old.process is None:
                self._seats.remove(old)
            else:
                old.process.terminate()
        elif new is None and old not in self._seats:
            renewal.old = next((seat for seat in renewal.seats if seat in self._seats), None)
            if renewal.old is None:
                logger.info("all worker processes have been replaced by new ones")
                self._renewal = None
                return
            renewal.seats.remove(renewal.old)
            renewal.new = _Seat()
            self._seats.append(renewal.new)
            self._start_in(renewal.new, time.monotonic())

    def kill(self, process: WorkerProcess, for_good: bool = False) -> None:
        """Kill `process` with SIGKILL. Unless `for_good` is True, the next `tend` replaces it."""
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
        """Ask all processes to end, and kill those that have not ended after `within_s` seconds.

        While `hurried()` is True, asks them again at each look, because two signals in a row can
        arrive as one. Calls `has_ended` with each process. Returns the killed ones. Leaves no
        process, even if an exception interrupts `stop`.
        """
        was_asked = False
        deadline = time.monotonic() + within_s
        try:
            while living := self._living(has_ended):
                if not was_asked or hurried():
                    for process in living:
                        process.terminate()
                was_asked = True
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
        """Kill all processes that are left (SIGKILL), and start no more."""
        with self._lock, ExitStack() as stack:
            self._closed = True
            for process in self.processes:
                stack.callback(process.end, 0)
            for seat in self._seats:
                seat.process = None

    def _fill(self, seat: _Seat) -> None:
        # Without the lock, `close` would miss a process that starts meanwhile.
        with self._lock:
            if not self._closed:
                seat.process = self._start()

    def _replace(self, seat: _Seat, process: WorkerProcess, now: float) -> None:
        process.end(0)
        seat.process, seat.stopped = None, math.inf
        if process.drained and process.exit_code == 0:
            logger.info("worker process %d was drained, and is not replaced", process.pid)
            self._seats.remove(seat)
            return
        if seat.leaves:
            self._seats.remove(seat)
            self._has_ended(process)
            return
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
        return _RESTART_REST.delay_s(seat.deaths, CHANCE.random())

    def _living(self, has_ended: Callable[[WorkerProcess], None]) -> list[WorkerProcess]:
        """The processes that still run. Processes that have ended get no replacement."""
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


# ---- Sign off workers whose processes have died: no task then waits until their sessions end.


_SIGN_OFF_REST = Backoff(initial_s=0.2, max_s=5.0)
#: Try for this many session time-outs: a server that was away starts the time-outs again.
_SIGN_OFF_TIME_OUTS = 2


class SigningOff:
    """Signs off workers on a thread of its own, over a connection that is open only while needed.

    If ZooKeeper does not answer, the thread tries again until the sessions have ended. A worker
    that is not signed off only costs time: ZooKeeper ends its session anyway, after the time-out.
    """

    def __init__(self, opened: Callable[[], Client], session_timeout_s: float) -> None:
        self._opened = opened
        self._matters_s = _SIGN_OFF_TIME_OUTS * session_timeout_s
        self._over = False
        self._changed = threading.Condition()
        #: By worker to sign off: when its process died. Oldest first.
        self._dead: dict[str, float] = {}
        # A daemon thread, so that this process can end without waiting for ZooKeeper.
        threading.Thread(target=self._serve, daemon=True).start()

    def has_ended(self, process: WorkerProcess) -> None:
        """Note that `process` has ended. With exit code 0, its worker has tried to sign off."""
        if process.exit_code and process.worker:
            self.has_died(process.worker)

    def has_died(self, worker: str) -> None:
        """Note that the process of `worker` is dead. Returns at once."""
        with self._changed:
            self._dead[worker] = time.monotonic()
            self._changed.notify_all()

    def finish(self, timeout_s: float) -> None:
        """Wait up to `timeout_s` seconds until all dead workers are signed off or given up."""
        with self._changed:
            self._changed.wait_for(lambda: not self._dead, timeout_s)

    def close(self) -> None:
        """Stop signing off, for example because the server ends."""
        with self._changed:
            self._over = True
            self._dead.clear()
            self._changed.notify_all()

    def _serve(self) -> None:
        failures = 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._dead or self._over)
                if self._over:
                    return
            try:
                with self._opened() as client:
                    while worker := self._oldest():
                        if client.transport.run(sign_off(client.paths, worker)):
                            logger.info(
                                "worker %s is signed off: others take over its tasks", worker
                            )
                        self._forget(worker)
                failures = 0
            except Exception as error:
                # This thread must survive any error, such as a lack of memory or threads.
                if not failures and not self._over:
                    logger.warning(
                        "worker %s cannot be signed off yet; its tasks wait until it is signed off "
                        "or its session ends: %s",
                        self._oldest(),
                        error,
                    )
                time.sleep(_SIGN_OFF_REST.delay_s(failures, CHANCE.random()))
                failures += 1
                self._give_up_the_ended()

    def _oldest(self) -> str:
        with self._changed:
            return next(iter(self._dead), "")

    def _forget(self, worker: str) -> None:
        with self._changed:
            self._dead.pop(worker, None)
            self._changed.notify_all()

    def _give_up_the_ended(self) -> None:
        """Give up the workers whose sessions have ended."""
        began = time.monotonic() - self._matters_s
        with self._changed:
            self._dead = {worker: at for worker, at in self._dead.items() if at >= began}
            self._changed.notify_all()
