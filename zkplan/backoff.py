"""Compute retry delays: exponential, capped and jittered.

The caller passes the random number, drawn from CHANCE, so that a test can fix it.
"""

from __future__ import annotations

import math
import os
import random
from dataclasses import dataclass

#: Not the shared generator of `random`: tasks may seed that generator alike, and then their workers
#: would retry at the same time. Not `SystemRandom` either: kazoo draws six times for a task of a
#: chain, each time with a system call.
CHANCE = random.Random()
if hasattr(os, "register_at_fork"):  # else a child would draw the same numbers as its parent
    os.register_at_fork(after_in_child=CHANCE.seed)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays that grow by `factor` from `initial_s` to `max_s` seconds.

    `jitter` is the share of each delay that is random (0 to 1): with 0.5 a delay d becomes a time
    between d/2 and d, so that workers that failed together do not return together.

    >>> [Backoff(initial_s=1, factor=2, max_s=5, jitter=0).delay_s(n, 0.5) for n in range(4)]
    [1.0, 2.0, 4.0, 5.0]
    """

    initial_s: float = 0.1
    factor: float = 2.0
    max_s: float = 30.0
    jitter: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.initial_s <= self.max_s:
            raise ValueError(f"0 < initial_s <= max_s must hold: {self.initial_s}, {self.max_s}")
        if self.factor < 1:
            raise ValueError(f"factor must be at least 1, not {self.factor}")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"jitter must lie between 0 and 1, not {self.jitter}")

    def delay_s(self, failures: int, chance: float) -> float:
        """Seconds to wait after `failures` earlier tries failed; `chance` is drawn from [0, 1)."""
        if failures < 0:
            raise ValueError(f"failures must not be negative: {failures}")
        # Compare logarithms, because factor ** failures overflows after very many failures.
        if failures * math.log(self.factor) >= math.log(self.max_s / self.initial_s):
            full = self.max_s
        else:
            full = self.initial_s * self.factor**failures
        return float(full * (1 - self.jitter * chance))
