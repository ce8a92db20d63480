"""The tasks that programs could claim now, kept current by watches: waiting costs no request."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

from ..errors import PayloadUndecodable, PlanNotFound
from ..protocol.core.plan_indexes import list_active
from ..protocol.core.plans_and_queues import PlanLook, look, plan_record
from ..protocol.layout import Paths, kind_in, parse_entry, parse_plan, queue_path
from ..protocol.records import PlanRecord
from ..transport import Transport

#: Seconds until a listing that may be outdated is read again, since urgent tasks go first, and one
#: whose remaining entries wait for something that no watch reports.
REFRESH_S = 1.0


class Offer(NamedTuple):
    """Entries of one queue of one plan, to be claimed while the plan's `ready` has `version`."""

    plan: str
    record: PlanRecord
    queue: str
    version: int
    names: list[str]


@dataclass
class _Listing:
    """The entries of one queue of a plan, by kind, as they were listed last."""

    version: int = -1
    fresh: bool = False
    listed_at: float = float("-inf")
    #: Entries that wait for a permit were left out.
    limited: bool = False
    by_kind: dict[str, deque[str]] = field(default_factory=dict)

    def update(self, found: PlanLook, now: float) -> None:
        self.version, self.listed_at, self.limited = found.version, now, False
        self.by_kind = {}
        for name in sorted((found.names or ()) if found.state == "running" else ()):
            kind = kind_in(name)
            if kind and parse_entry(name) is not None:
                self.by_kind.setdefault(kind, deque()).append(name)

    def wanted(self, kinds: Collection[str] | None) -> list[deque[str]]:
        names = self.by_kind if kinds is None else [kind for kind in kinds if kind in self.by_kind]
        return [entries for kind in names if (entries := self.by_kind[kind])]

    def is_old(self, kinds: Collection[str] | None, now: float) -> bool:
        used_up = not self.limited and not self.wanted(kinds)
        return (not self.fresh and used_up) or (
            (not self.fresh or self.limited) and now - self.listed_at >= REFRESH_S
        )

    def first(self, kinds: Collection[str] | None) -> str:
        return min((entries[0] for entries in self.wanted(kinds)), default="")

    def take(self, kinds: Collection[str] | None, most: int) -> list[str]:
        taken: list[str] = []
        while len(taken) < most and (wanted := self.wanted(kinds)):
            taken.append(min(wanted, key=lambda entries: entries[0]).popleft())
        return taken


class Candidates:
    """The active plans, and their entries that have a kind. Thread-safe."""

    def __init__(self, transport: Transport, paths: Paths, now_s: Callable[[], float]) -> None:
        """`now_s` is the wall clock of the server."""
        self._transport, self._paths, self._now_s = transport, paths, now_s
        self._lock = threading.Lock()
        self._fired: deque[str | None] = deque([None])
        self._active: list[str] | None = None
        self._listings: dict[tuple[str, str], _Listing] = {}
        self._records: dict[str, PlanRecord | None] = {}
        #: When each plan was served last: among plans of equal rank, the one that has waited
        #: longest goes first.
        self._served: dict[str, int] = {}
        self._turns = count(1)
        #: Entries wait for something that no watch reports: call `take` again after REFRESH_S.
        self.must_look_again = False
        #: Called on a thread of kazoo after each change.
        self.listeners: list[Callable[[], None]] = []
        transport.listen(self._touched)

    def close(self) -> None:
        self._transport.unlisten(self._touched)

    def _touched(self, path: str | None) -> None:
        """A watch fired. Called on a thread of kazoo."""
        is_plan = path is not None and path.startswith(f"{self._paths.root}/plan-")
        if path is None or path == self._paths.active or is_plan:
            self._fired.append(path)
            for notify in self.listeners:
                notify()

    def take(self, queues: Sequence[str], kinds: Collection[str] | None, most: int) -> Offer | None:
        """The next entries to claim, from the first of `queues` that has any."""
        with self._lock:
            self._mark_outdated()
            if self._active is None:
                self._active = self._transport.run(list_active(self._paths, watch=True))
                self._forget(set(self._active))
            self.must_look_again = False
            for queue in queues:
                firsts = [
                    (first[:4], self._served.get(plan, 0), plan)
                    for plan in self._active
                    if (first := self._listing(plan, queue, kinds).first(kinds))
                ]
                if firsts:
                    _, _, plan = min(firsts)
                    self._served[plan] = next(self._turns)
                    listing, record = self._listings[plan, queue], self._records[plan]
                    if record is None:
                        return None
                    names = listing.take(kinds, most)
                    return Offer(plan, record, queue, listing.version, names)
            return None

    def _listing(self, plan: str, queue: str, kinds: Collection[str] | None) -> _Listing:
        listing, now = self._listings.setdefault((plan, queue), _Listing()), time.monotonic()
        if not self._may_run(plan):
            return _Listing()
        if listing.is_old(kinds, now):
            listing.fresh = True  # before the read: a watch that fires from here on resets it
            path = self._paths.plan(plan)
            try:
                listing.update(self._transport.run(look(path, True, (queue,))), now)
            except BaseException:
                listing.fresh = False
                raise
        self.must_look_again = self.must_look_again or listing.limited
        return listing

    def _may_run(self, plan: str) -> bool:
        if plan not in self._records:
            try:
                self._records[plan] = self._transport.run(plan_record(self._paths.plan(plan)))
            except (PlanNotFound, PayloadUndecodable):
                self._records[plan] = None  # removed, of another format, or not ours to run
        record = self._records[plan]
        if record is None:
            return False
        if record.not_before is not None and self._now_s() < record.not_before:
            self.must_look_again = True
            return False
        return True

    def put_aside(self, offer: Offer) -> None:
        """List a queue again after REFRESH_S: some entries of `offer` wait for a permit."""
        with self._lock:
            listing = self._listings.get((offer.plan, offer.queue))
            if listing is not None:
                listing.limited = True

    def outdated(self, offer: Offer) -> None:
        """List a queue again: entries of `offer` are gone, or its plan has changed."""
        with self._lock:
            listing = self._listings.get((offer.plan, offer.queue))
            if listing is not None:
                listing.by_kind.clear()
                listing.fresh = False

    def _mark_outdated(self) -> None:
        """Mark the listings whose watches have fired."""
        while self._fired:
            path = self._fired.popleft()
            if path is None or path == self._paths.active:
                self._active = None
            if path == self._paths.active:
                continue
            name = path[len(self._paths.root) + 1 :].partition("/")[0] if path is not None else ""
            plan = parse_plan(name)
            for (number, _), listing in self._listings.items():
                if path is None or number == plan:
                    listing.fresh = False

    def _forget(self, active: set[str]) -> None:
        for plan, queue in [key for key in self._listings if key[0] not in active]:
            del self._listings[plan, queue]
            path = self._paths.plan(plan)
            # The watches of the queue would stay otherwise.
            self._transport.unwatch((f"{path}/ready", queue_path(path, queue)))
        for plan in self._records.keys() - active:
            del self._records[plan]
            self._served.pop(plan, None)
