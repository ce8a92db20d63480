"""The slots of a worker: what its loop asks of them, and how they report what has ended.

`threads.ThreadPool` has the slots of a worker. The simulation has others, in which functions run
for a drawn time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from .job import Ended, Job


class Slots(Protocol):
    """Runs the jobs of one worker, `count` at once. Only the loop calls it."""

    #: How many slots there are.
    count: int
    #: How many jobs were given up whose functions have not returned: each holds a thread.
    abandoned: int
    #: Why a slot ended by itself. Its task would never end, so the worker must.
    broken: BaseException | None
    #: The jobs that have started and not ended, in the order of their start.
    running: dict[Job, None]

    def waiting(self) -> int:
        """How many jobs wait for a slot."""

    @property
    def slots(self) -> int:
        """How many jobs run at once now: abandoned functions may have taken some slots."""

    def put(self, job: Job) -> None:
        """Queue `job` for the next free slot."""

    def take_waiting(self) -> list[Job]:
        """Take back the jobs that have not started."""

    def write_off(self, job: Job) -> None:
        """Stop waiting for the function of `job`: what it returns is dropped."""

    def next_deadline(self) -> float:
        """The monotonic time at which the first running job times out, has had its grace, or is
        not held back any longer."""

    def since(self) -> list[tuple[str, float]]:
        """The plan of each running job, and its monotonic start; 0 if it has just started."""

    def close(self) -> None:
        """Start nothing more."""


class EndedJobs:
    """The ends of attempts, on their way from the slots to the loop. Any thread may call `put` and
    `wake`, the loop alone calls `take`."""

    def __init__(self, post: Callable[[Callable[[], None]], None]) -> None:
        """`post` has the loop call a function."""
        self._post, self._ended = post, deque[Ended]()
        self._is_awake = False

    def put(self, ended: Ended) -> None:
        """An attempt has ended."""
        self._ended.append(ended)
        self.wake()

    def wake(self) -> None:
        """Make the loop turn soon."""
        # Set before the queue is read, so that an end which finds True here is seen by that read.
        if not self._is_awake:
            self._is_awake = True
            self._post(self._woken)

    def _woken(self) -> None:
        self._is_awake = False

    def take(self) -> Ended | None:
        """The next end; None if there is none."""
        return self._ended.popleft() if self._ended else None
