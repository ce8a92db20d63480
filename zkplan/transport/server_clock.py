"""The clock of the server, estimated from times that it gave."""

from __future__ import annotations

import time

from ..protocol.requests import Applied, Multi, Node, ReadData, SetData, Step


class ServerClock:
    """The server's wall clock, never ahead of it, and behind by less than an answer takes.

    The wall clocks of workers may differ by hours, and those of the servers may not: so what is
    given as a moment is judged by this. The server writes its time on each znode that it makes or
    changes. It did that after the request was sent and before the answer came, by the monotonic
    clock here. Several such brackets narrow the difference. A bracket that excludes all before
    it says that the server's clock was set, or another server leads: then it alone counts.

    A worker's registration gives the first bracket, and its znode is read only when somebody needs
    the time. Thread-safe: what threads share is replaced as a whole.
    """

    def __init__(self) -> None:
        #: The server's wall-clock seconds less the monotonic seconds here: at least, at most.
        self._bounds: tuple[float, float] | None = None
        #: The registration that was made between two monotonic times, until its znode was seen.
        self._made: tuple[str, float, float] | None = None

    def now(self) -> float:
        """Wall-clock seconds since 1970. Before anything was measured, by the clock here."""
        bounds = self._bounds
        return time.time() if bounds is None else time.monotonic() + bounds[0]

    def monotonic_at(self, wall_s: float) -> float:
        """The monotonic time here at which the server's clock shows `wall_s`."""
        return time.monotonic() + wall_s - self.now()

    @property
    def is_known(self) -> bool:
        return self._bounds is not None

    def ask(self, path: str) -> Step[None]:
        """Write a znode that exists and whose data are empty, and read when that was.

        Where that is refused nothing was measured.
        """
        before = time.monotonic()
        answer = yield Multi([SetData(path)])
        after = time.monotonic()
        node = (yield ReadData(path)) if isinstance(answer, Applied) else None
        if node is not None:
            self.learn(node.modified_ms, before, after)

    def registered(self, path: str, before: float, after: float) -> None:
        """The worker's registration was made between these monotonic times."""
        self._made = path, before, after

    def measure(self) -> Step[None]:
        """Read the time of the registration, where nothing was measured yet."""
        made = self._made
        if made is not None and not self.is_known:
            self.see_registration(made[0], (yield ReadData(made[0])))

    def see_registration(self, path: str, node: Node | None) -> None:
        """The registration was read."""
        made = self._made
        if made is not None and made[0] == path and node is not None:
            self._made = None
            self.learn(node.created_ms, made[1], made[2])

    def learn(self, server_ms: int, before: float, after: float) -> None:
        """The server's clock showed `server_ms` between these monotonic times."""
        # The server cuts its time down to milliseconds.
        low, high = server_ms / 1000 - after, (server_ms + 1) / 1000 - before
        known = self._bounds
        if known is not None and low <= known[1] and known[0] <= high:
            low, high = max(low, known[0]), min(high, known[1])
        self._bounds = low, high
