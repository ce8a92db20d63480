"""Release the claims of vanished workers, and leases that have lapsed.

A hash gives each claims node a preferred worker. If that one does not act, others do. So ten
workers do not all do the same, and nothing waits for a worker that is gone.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..basics.log import get_logger
from ..basics.text import count
from ..protocol.core.end_claims import ClaimsNodes, Cleared, clear_claims, orphaned_claims
from ..protocol.core.load import read_all
from ..protocol.features.leases import due_ms, expire
from ..protocol.layout import Paths
from ..protocol.requests import ReadData, Step
from ..transport.server_clock import Clock, ServerClock
from .attempts import VanishedWorkers
from .claims import Claims
from .membership import Membership
from .statistics import Counters
from .steps import SAFETY_LOOK_S, Steps

logger = get_logger("zkplan.worker")

#: Claims nodes are looked at this often while one waits to be cleared, or leases stand, which lapse
#: without a change.
CLAIMS_PERIOD_S = 1.0
#: The preferred worker's head start.
HEAD_START_S = 0.5
#: A claims node that could not be cleared is left alone for HEAD_START_S, doubled each time up to
#: this.
CLEARING_REST_MAX_S = 60.0
_NEVER = float("inf")


@dataclass(eq=False)
class Clearing:
    """One worker's part in clearing claims nodes, one of its maintenance duties."""

    steps: Steps
    paths: Paths
    membership: Membership
    claims: Claims
    vanished: VanishedWorkers
    counters: Counters
    clock: Clock
    #: When to look next: monotonic.
    _look_at: float = 0.0
    _looked_at: float = 0.0
    _is_looking: bool = False
    _is_releasing: bool = False
    #: When each claims node was first seen without its worker.
    _first_seen: dict[str, float] = field(default_factory=dict)
    _being_cleared: set[str] = field(default_factory=set)
    #: Claims nodes that could not be cleared: until when each is left alone, and for how long it
    #: was.
    _rests: dict[str, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._lapses = Lapses(self.paths, self.membership.server_clock)

    @property
    def at(self) -> float:
        if self._is_looking:
            return _NEVER
        if self.membership.me is None:
            # An access list may keep it out of the root: then this look says so, and ends it.
            return min(self._look_at, self._looked_at + CLAIMS_PERIOD_S)
        return self._look_at

    def touched(self, path: str | None) -> None:
        """A watch fired. None: the connection changed, so any watch may have fired."""
        if path is None or path == self.paths.workers:
            self._look_at = 0.0
        elif path == self.paths.claims:
            # Services may make and end many leases a second.
            self._look_at = min(self._look_at, self._looked_at + CLAIMS_PERIOD_S)

    def run(self, now: float) -> None:
        self._looked_at, self._look_at, self._is_looking = now, _NEVER, True
        self.steps.start(orphaned_claims(self.paths, watch=True), self._seen)

    def _seen(self, seen: ClaimsNodes) -> None:
        self._is_looking = False
        now = self.clock.monotonic()
        living, vacant, leases = seen
        period_s = CLAIMS_PERIOD_S if vacant or leases else SAFETY_LOOK_S
        self._look_at = min(self._look_at, now + period_s)
        self._release(leases)
        self.membership.living = living
        place, count = self.membership.share
        # Its own claims node of an earlier registration is cleared once nothing on it still runs.
        mine = {path.split("/")[-2] for path in self.claims.jobs}
        for claims_node in vacant:
            if claims_node in mine or claims_node in self._being_cleared:
                continue
            first_seen = self._first_seen.setdefault(claims_node, now)
            preferred = zlib.crc32(claims_node.encode()) % count == place
            late = now - first_seen >= HEAD_START_S
            rests_until, _ = self._rests.get(claims_node, (0.0, 0.0))
            if (preferred or late) and now >= rests_until:
                self._clear(claims_node)
        if any(claims_node not in self._rests for claims_node in vacant):
            self._look_at = min(self._look_at, now + HEAD_START_S)
        for claims_node in set(self._first_seen) - set(vacant):
            del self._first_seen[claims_node]
            self._rests.pop(claims_node, None)

    def _release(self, leases: list[str]) -> None:
        """Release those that have lapsed."""
        if not leases or self._is_releasing:
            return
        self._is_releasing = True
        place, count = self.membership.share

        def is_mine(lease: str) -> bool:
            return zlib.crc32(lease.encode()) % count == place

        step = self._lapses.release(leases, is_mine)
        what = "leases that have lapsed cannot be released"
        self.steps.start_contained(step, self._released, what, instead=[])

    def _released(self, done: list[tuple[str, Cleared]]) -> None:
        self._is_releasing = False
        for lease, ended in done:
            self._note(lease, ended)
            if ended.released:
                many = count(len(ended.released), "task")
                logger.warning("%s has lapsed: %s runnable again", lease, many)

    def _clear(self, claims_node: str) -> None:
        self._being_cleared.add(claims_node)
        if claims_node not in self._rests:
            logger.info("worker %s is gone: clearing its claims node", claims_node)

        def cleared(done: Cleared) -> None:
            self._cleared(claims_node, done)

        step = clear_claims(self.paths, claims_node)
        what = f"the claims of worker {claims_node} cannot be cleared"
        self.steps.start_contained(step, cleared, what, instead=Cleared([]))

    def _cleared(self, claims_node: str, done: Cleared) -> None:
        self._being_cleared.discard(claims_node)
        if not done.gone:
            _, rested = self._rests.get(claims_node, (0.0, 0.0))
            rest = min(CLEARING_REST_MAX_S, max(HEAD_START_S, 2 * rested))
            self._rests[claims_node] = (self.clock.monotonic() + rest, rest)
        self._note(claims_node, done)
        if done.released:
            logger.warning(
                "took over from worker %s: %s runnable again",
                claims_node,
                count(len(done.released), "task"),
            )

    def _note(self, claims_node: str, done: Cleared) -> None:
        if done.strange:
            path = self.paths.claims_of(claims_node)
            self.steps.complaints.tell(
                f"{path} holds znodes that zkplan did not make, so it stays: delete them"
            )
        if done.shut:
            self.steps.complaints.tell(
                f"the claims of {claims_node} cannot be cleared: {done.shut[0]}"
            )
        self.counters.released += len(done.released)
        for task_path, n in done.released:
            self.vanished.note(task_path, n, claims_node)


# ---- Release leases that have lapsed, without reading those that are renewed more often than
# needed.
#
# Workers do this for all, and services too: a lease may outlive whoever gave it.


#: The head start, in milliseconds, of who is preferred for a lease.
HEAD_START_MS = 500
#: A lease that could not be released is left alone for so many milliseconds.
REST_MS = 10_000


class Lapses:
    """Remembers when to read each lease next: renewals before then cost no read."""

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
