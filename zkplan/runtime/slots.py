"""The slots of a worker: how its loop uses them, and how they report ended attempts.

`threads.ThreadPool` implements them. In the slots of the simulation, functions run for a drawn
time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from .job import Ended, Job


class Slots(Protocol):
    """Runs the jobs of one worker, `count` at once. Only the loop calls it."""

    #: The number of slots.
    count: int
    #: How many abandoned jobs have functions that have not returned: each holds a thread.
    abandoned: int
    #: Why a slot ended unexpectedly. Its task would never end, so the worker must end.
    broken: BaseException | None
    #: The jobs that have started and neither ended nor been written off, in the order of their
    #: start.
    running: dict[Job, None]

    def waiting(self) -> int:
        """How many jobs wait for a slot."""

    @property
    def slots(self) -> int:
        """How many jobs may run at once now: abandoned functions may have taken some slots."""

    def put(self, job: Job) -> None:
        """Queue `job` for the next free slot."""

    def take_waiting(self) -> list[Job]:
        """Take back the jobs that have not started."""

    def write_off(self, job: Job) -> None:
        """Stop waiting for the function of `job`, and drop what it returns."""

    def next_deadline(self) -> float:
        """The earliest monotonic time at which a running job times out, its grace ends, or its
        result may no longer be held back."""

    def since(self) -> list[tuple[str, float]]:
        """The plan of each running job, and its start (monotonic; 0 if it has just started)."""

    def close(self) -> None:
        """Start nothing more."""


class EndedJobs:
    """The ends of attempts, on their way from the slots to the loop. Any thread may call `put` and
    `wake`; only the loop calls `take_all`."""

    def __init__(self, post: Callable[[Callable[[], None]], None]) -> None:
        """`post(function)` makes the loop call `function`."""
        self._post, self._ended = post, deque[Ended]()
        self._is_awake = False

    def put(self, ended: Ended) -> None:
        """Report the end of an attempt."""
        self._ended.append(ended)
        self.wake()

    def wake(self) -> None:
        """Make the loop turn soon."""
        # `_woken` clears this before the loop reads the queue. So if it is True here, that read
        # will find the new end.
        if not self._is_awake:
            self._is_awake = True
            self._post(self._woken)

    def _woken(self) -> None:
        self._is_awake = False

    def take_all(self) -> list[Ended]:
        """The ends that have come since the last call, in order."""
        ended = self._ended
        return [ended.popleft() for _ in range(len(ended))]
