"""Decide how many tasks a worker claims: enough for its slots, but not those others could run.

Pure. Short tasks are claimed before slots are free, so that claiming and loading overlap with
running. Three things limit that: long tasks, large values, and commits that are behind.
"""

from __future__ import annotations

import math

#: The most claims beyond a worker's slots, if its tasks are short. With the next limit this stays
#: below 1 000 ephemerals in one session, which endanger a server.
AHEAD_MAX = 160
#: How many seconds of work may wait here, which another worker could be doing meanwhile.
AHEAD_S = 0.05
#: How many bytes the arguments and results of tasks claimed ahead may take, by the average so far.
AHEAD_BYTES_MAX = 8 * 1024 * 1024
#: Results that wait for a commit or are in one. Each one above this limit means one claim less.
#: Three commits of small results are about 600 tasks.
UNCOMMITTED_MAX = 640
#: The same limit in bytes. Above it nothing is claimed.
UNCOMMITTED_BYTES_MAX = 4 * 1024 * 1024
#: Claims that wait behind long tasks are handed back after this long, so that others can run them.
STALLED_S = 0.2
#: Where little is runnable, tasks that take longer than this are not claimed ahead: publishing one,
#: and claiming it elsewhere, takes about as long.
SHARE_WORTH_S = 0.004
#: The weight of the newest task in the averages.
_NEWEST = 0.1


class Capacity:
    """Calculates with averages over the tasks that ended lately on one worker."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._task_s = 1.0
        #: The average of logarithms, so that a few tasks that waited for a processor do not make
        #: all look long.
        self._task_log_s = 0.0
        self._task_bytes = 0.0
        #: What follows from the averages, where more is runnable and where it is not: it is asked
        #: for many times between two tasks that end. None: they have changed.
        self._ahead: tuple[int, int] | None = None
        #: When a task ended, or more began: monotonic.
        self.last_end = 0.0

    def ended(self, seconds: float, size: int, now: float) -> None:
        """Note how long a task has run, and how many bytes its arguments and its result had."""
        self.last_end = now
        self._task_s += _NEWEST * (seconds - self._task_s)
        self._task_log_s += _NEWEST * (math.log(max(seconds, 1e-6)) - self._task_log_s)
        self._task_bytes += _NEWEST * (size - self._task_bytes)
        self._ahead = None

    def stalled(self, now: float) -> None:
        """Claim nothing ahead until short tasks have ended here: it would only be handed back."""
        self.last_end = now
        self._task_s = max(self._task_s, STALLED_S)
        self._ahead = None

    @property
    def are_long(self) -> bool:
        """Whether the tasks that ended lately took so long that another worker had better run some
        of them than wait for all.
        """
        return self._task_log_s >= math.log(SHARE_WORTH_S)

    def free(self, held: int, uncommitted: int, uncommitted_bytes: int, *, plenty: bool) -> int:
        """How many more tasks to claim; 0 or less: none.

        `held` claims still need a slot, `uncommitted` ones have a result that is not committed.
        `plenty` says that more is runnable than this worker takes, or that no other is there to
        run it: then claiming ahead leaves nobody idle.
        """
        if uncommitted_bytes >= UNCOMMITTED_BYTES_MAX:
            return 0
        ahead = self._ahead or self._claimed_ahead()
        free = self.threads + ahead[not plenty] - held
        return free if uncommitted <= UNCOMMITTED_MAX else free - (uncommitted - UNCOMMITTED_MAX)

    def _claimed_ahead(self) -> tuple[int, int]:
        ahead = 0
        if self._task_s < STALLED_S:
            by_time = AHEAD_S * self.threads / max(self._task_s, 1e-6)
            by_size = AHEAD_BYTES_MAX / max(self._task_bytes, 1.0)
            ahead = int(min(AHEAD_MAX, by_time, by_size))
        self._ahead = ahead, 0 if self.are_long else ahead
        return self._ahead
