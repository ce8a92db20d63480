"""This process's clock, and an estimate of the server's clock from the times on znodes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from ..protocol.requests import Applied, Multi, Node, ReadData, SetData, Step


@dataclass(frozen=True, slots=True)
class Clock:
    """The clock of this process, in seconds. A simulation passes functions of its own."""

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time


CLOCK = Clock()


class ServerClock:
    """An estimate of the server's wall clock: never ahead, and behind by less than one round trip.

    The wall clocks of workers may differ by hours, those of servers may not. So all points in time
    refer to this clock. The server writes its time on each znode that it creates or changes, after
    the request was sent and before the answer came. Several such intervals narrow the difference
    between the server's clock and the monotonic clock here. If a new interval contradicts the
    earlier ones, the server's clock was set, or another server leads: only the new one counts then.

    A worker's registration gives the first interval; its znode is read only when the time is
    needed. Thread-safe: values that threads share are replaced as a whole.
    """

    def __init__(self, clock: Clock = CLOCK) -> None:
        self._clock = clock
        #: Bounds of the server's wall-clock seconds minus the monotonic seconds here.
        self._bounds: tuple[float, float] | None = None
        #: The registration and two monotonic times around it, until its znode was read.
        self._made: tuple[str, float, float] | None = None

    def now(self) -> float:
        """The server's seconds since 1970; before the first measurement, this process's seconds."""
        bounds, clock = self._bounds, self._clock
        return clock.wall() if bounds is None else clock.monotonic() + bounds[0]

    def monotonic_at(self, wall_s: float) -> float:
        """The monotonic time here at which the server's clock shows `wall_s`."""
        return self._clock.monotonic() + wall_s - self.now()

    @property
    def is_known(self) -> bool:
        return self._bounds is not None

    def ask(self, path: str) -> Step[None]:
        """Measure: write empty data to the existing znode `path`, and read the time of the write.

        Measures nothing if the server refuses the write.
        """
        before = self._clock.monotonic()
        answer = yield Multi([SetData(path)])
        after = self._clock.monotonic()
        node = (yield ReadData(path)) if isinstance(answer, Applied) else None
        if node is not None:
            self.learn(node.modified_ms, before, after)

    def registered(self, path: str, before: float, after: float) -> None:
        """Note that the worker's registration was made between these monotonic times."""
        self._made = path, before, after

    def measure(self) -> Step[None]:
        """Read the time of the registration, unless the clock was measured before."""
        made = self._made
        if made is not None and not self.is_known:
            self.see_registration(made[0], (yield ReadData(made[0])))

    def see_registration(self, path: str, node: Node | None) -> None:
        """Learn the time of the registration from `node`, its znode."""
        made = self._made
        if made is not None and made[0] == path and node is not None:
            self._made = None
            self.learn(node.created_ms, made[1], made[2])

    def learn(self, server_ms: int, before: float, after: float) -> None:
        """Note that the server's clock showed `server_ms` between these monotonic times."""
        # The server rounds its time down to milliseconds.
        low, high = server_ms / 1000 - after, (server_ms + 1) / 1000 - before
        known = self._bounds
        if known is not None and low <= known[1] and known[0] <= high:
            low, high = max(low, known[0]), min(high, known[1])
        self._bounds = low, high
