"""Release leases that have lapsed, without reading those that are renewed more often than needed.

Workers do this for all, and services too: a lease may outlive whoever gave it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..protocol.clearing import Cleared
from ..protocol.layout import Paths
from ..protocol.leases import due_ms, expire
from ..protocol.load import read_all
from ..protocol.requests import ReadData, Step
from ..transport.server_clock import ServerClock

#: The head start, in milliseconds, of who is preferred for a lease.
HEAD_START_MS = 500
#: A lease that could not be released is left alone for so many milliseconds.
REST_MS = 10_000


class Lapses:
    """When each lease is to be read next: a renewal costs no read before that."""

    def __init__(self, paths: Paths, clock: ServerClock) -> None:
        self._paths, self._clock = paths, clock
        #: The server's milliseconds, before which nothing can be due.
        self._at: dict[str, float] = {}

    def release(
        self, leases: Sequence[str], is_mine: Callable[[str], bool] = lambda lease: True
    ) -> Step[list[tuple[str, Cleared]]]:
        """Release those of `leases`, the names of all that stand, which have lapsed.

        Those that are not mine only after a head start. Returns what was done to each.
        """
        for gone in self._at.keys() - set(leases):
            del self._at[gone]
        if not leases:
            return []
        yield from self._clock.measure()
        if not self._clock.is_known:
            return []  # its own clock may be ahead
        now = self._now_ms()
        looked_at = [lease for lease in leases if self._at.get(lease, 0.0) <= now]
        nodes = yield from read_all(
            [ReadData(self._paths.claims_of(lease)) for lease in looked_at], strict=False
        )
        done: list[tuple[str, Cleared]] = []
        for lease, node in zip(looked_at, nodes, strict=True):
            if node is None:
                continue  # ended, or closed to us
            due = due_ms(lease, node) + (0 if is_mine(lease) else HEAD_START_MS)
            self._at[lease] = due
            if due <= now:
                ended = yield from expire(self._paths, lease, self._now_ms)
                if isinstance(ended, Cleared):
                    done.append((lease, ended))
                self._at[lease] = ended if isinstance(ended, int) else now + REST_MS
        return done

    def _now_ms(self) -> float:
        return 1000 * self._clock.now()
