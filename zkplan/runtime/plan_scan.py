"""The scan for plans that are ready and not in the index: which plans a worker asks for next."""

from __future__ import annotations

from collections.abc import Container

from ..protocol.active import Scanned, find_unindexed
from ..protocol.layout import Paths
from ..protocol.look import list_plans
from ..protocol.requests import ReadData, Step

#: Plans asked for at once: some 20 ms of the time of a server and a worker.
SLICE = 500


class PlanScan:
    """Walks the plans of one root in slices, the newest first, round after round.

    Plans that have ended for good are asked for once: 20 000 of them cost nothing later.
    """

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        #: Changes of the root's children that the last listing has seen.
        self._seen = -1
        self._plans: set[str] = set()
        self._ended: set[str] = set()
        #: What is left of this round, the next one last.
        self._round: list[str] = []

    def next_slice(self, share: tuple[int, int], active: Container[str]) -> Step[Scanned]:
        """Index what is found among the next plans of this share: (place, number of workers)."""
        root = yield ReadData(self._paths.root)
        if root is None:
            return Scanned([], [])
        if root.cversion != self._seen:
            listed = yield from list_plans(self._paths)
            # New ones come first: another client may just have made them. Those removed meanwhile
            # are found missing.
            self._round += [plan for plan in listed if plan not in self._plans]
            self._plans = set(listed)
            self._ended &= self._plans
            self._seen = root.cversion
        place, count = share
        chosen = list[str]()
        if not self._round:
            self._round = sorted(self._plans - self._ended)
        while self._round and len(chosen) < SLICE:
            plan = self._round.pop()
            if int(plan) % count == place and plan not in active and plan not in self._ended:
                chosen.append(plan)
        if not chosen:
            return Scanned([], [])
        return (yield from find_unindexed(self._paths, chosen))

    def learn(self, found: Scanned) -> None:
        """Take up what a slice has found."""
        self._ended.update(found.ended)
