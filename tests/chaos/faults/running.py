"""A fault under way: how long it holds, and whether it took effect, or still may."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

from ..cluster.cluster import Cluster
from .fault import Fault

#: A process shows within this time after the healing that it has lost its session.
LATE_S = 30.0


@dataclass(eq=False)
class RunningFault:
    """A fault that holds for `hold_s` from its injection, or from its effect if it waits for it.

    `injected`: its injection was not broken off; of one that was nobody knows the effect.
    """

    fault: Fault
    hold_s: float
    began: float
    injected: bool = True
    #: Once true it stays true: an effect may be invisible after the healing.
    took_effect: bool = field(init=False, default=False)
    waiting: bool = field(init=False)

    def __post_init__(self) -> None:
        self.waiting = self.fault.waits_s > 0

    def look(self, cluster: Cluster) -> bool:
        """Whether it has taken effect by now."""
        self.took_effect |= self.injected and self.fault.took_effect(cluster)
        return self.took_effect

    def is_over(self, now: float) -> bool:
        """Whether it is to be healed; one that waits for its effect does not wait for ever."""
        if self.waiting:
            if self.took_effect:
                self.waiting, self.began = False, now
            elif now < self.began + self.fault.waits_s:
                return False
        return now >= self.began + self.hold_s


class EffectCounts:
    """Which faults took effect and which did not, by name; each fault is counted once."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.took_effect: Counter[str] = Counter()
        self.without_effect: Counter[str] = Counter()
        #: Healed faults whose effect may still show, and until when.
        self._late: dict[RunningFault, float] = {}

    def count(self, each: RunningFault) -> None:
        """Count a fault that was healed, now or when its late effect shows."""
        if each.took_effect:
            self.took_effect[each.fault.name] += 1
        elif each.fault.shows_late and each.injected:
            self._late[each] = time.monotonic() + LATE_S
        else:
            self.without_effect[each.fault.name] += 1

    def still_waiting(self) -> list[str]:
        """The healed faults whose effect may still show; the others are counted now."""
        now = time.monotonic()
        for each, until in list(self._late.items()):
            if each.look(self._cluster) or now > until:
                counts = self.took_effect if each.took_effect else self.without_effect
                counts[each.fault.name] += 1
                del self._late[each]
        return [each.fault.name for each in self._late]

    def give_up(self) -> None:
        """Count those that are still waited for as faults without an effect."""
        self.without_effect.update(each.fault.name for each in self._late)
        self._late.clear()
