"""What was counted of a root last, on a thread of its own: a scrape is answered within a deadline.

A slow ZooKeeper makes a count take longer than Prometheus waits. Then all metrics of the root would
be missing just when they are needed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from ..errors import ZkplanError
from ..log import get_logger
from .prometheus import Metric

logger = get_logger("zkplan.metrics")

#: Scrapes that follow so soon get what the one before has found.
FRESH_S = 1.0
#: Seconds for which a scrape waits for a count. Prometheus gives up after 10 s by default.
SCRAPE_S = 4.0


class Found(NamedTuple):
    """What a count has found, and its age in seconds; none before the first has ended."""

    families: list[Metric]
    age_s: float | None
    is_up: bool


class LastCount:
    """Counts when somebody asks, one count at a time. `count` raises ZkplanError. Thread-safe."""

    def __init__(self, name: str, count: Callable[[], list[Metric]]) -> None:
        self._name, self._count = name, count
        self._lock = threading.Lock()
        self._families: list[Metric] = []
        self._at: float | None = None
        self._ended = float("-inf")
        #: Set while no count is under way.
        self._idle = threading.Event()
        self._idle.set()
        #: Why the last count has failed.
        self.told = ""

    def start(self) -> None:
        """Begin a count, unless the last one has just ended or one is under way."""
        with self._lock:
            if not self._idle.is_set() or time.monotonic() - self._ended < FRESH_S:
                return
            self._idle.clear()
        threading.Thread(target=self._run, name="zkplan-count", daemon=True).start()

    def get(self, until: float) -> Found:
        """What was found, by the count under way if that ends before `until`, a monotonic time."""
        self._idle.wait(max(0.0, until - time.monotonic()))
        with self._lock:
            age = None if self._at is None else time.monotonic() - self._at
            return Found(self._families, age, not self.told)

    def _run(self) -> None:
        found, told, started = list[Metric](), "", time.monotonic()
        try:
            found = self._count()
        except ZkplanError as error:
            told = str(error)
            if told != self.told:  # once, not with every scrape
                logger.warning("the metrics of %s cannot be read: %s", self._name, error)
        except BaseException as error:
            told = f"a count failed: {error!r}"
            raise
        finally:
            with self._lock:
                if not told:
                    self._families, self._at = found, started
                self.told, self._ended = told, time.monotonic()
                self._idle.set()
