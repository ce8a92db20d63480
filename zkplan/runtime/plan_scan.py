"""Scan for plans that are ready but not in the index, a few plans at a time."""

from __future__ import annotations

from collections.abc import Container

from ..protocol.active import Ended, Scanned, find_unindexed
from ..protocol.layout import Paths
from ..protocol.look import list_plans
from ..protocol.requests import ReadData, Step

#: Plans in one slice: about 20 ms of work for a server and a worker.
SLICE = 500


class PlanScan:
    """Reads the plans of one root in slices, newest first, round after round.

    Plans that have ended for good are read only once: 20 000 of them cost nothing later.
    """

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        #: The version of the root's children at the last listing.
        self._seen = -1
        self._plans: set[str] = set()
        #: Plans that have ended, until they are removed.
        self.ended: dict[str, Ended] = {}
        #: The plans left in this round; the next one is last.
        self._round: list[str] = []

    def next_slice(self, share: tuple[int, int], active: Container[str]) -> Step[Scanned]:
        """Put missing plans of the next slice of this share (place, number of workers) into the
        index."""
        root = yield ReadData(self._paths.root)
        if root is None:
            return Scanned([], [])
        if root.cversion != self._seen:
            listed = yield from list_plans(self._paths)
            # New plans come first, because another client may just have made them. Plans that were
            # removed meanwhile are simply missing.
            self._round += [plan for plan in listed if plan not in self._plans]
            self._plans = set(listed)
            self.ended = {plan: self.ended[plan] for plan in self.ended.keys() & self._plans}
            self._seen = root.cversion
        place, count = share
        chosen = list[str]()
        if not self._round:
            self._round = sorted(self._plans - self.ended.keys())
        while self._round and len(chosen) < SLICE:
            plan = self._round.pop()
            if int(plan) % count == place and plan not in active and plan not in self.ended:
                chosen.append(plan)
        if not chosen:
            return Scanned([], [])
        return (yield from find_unindexed(self._paths, chosen))

    def learn(self, found: Scanned) -> None:
        """Take the result of a slice."""
        self.ended.update((plan.number, plan) for plan in found.ended)
