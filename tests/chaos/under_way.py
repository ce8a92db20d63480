"""A fault from its injection on: how long it holds, whether it was felt, and whether it may yet."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

from .faults.fault import Fault
from .world.arena import Arena

#: A process that has lost its session shows it within this time after the healing.
LATE_S = 30.0


@dataclass(eq=False)
class UnderWay:
    """A fault that holds for `hold_s`: from its injection, or from when it was felt.

    Once felt it stays so: what is felt while it lasts may not show any more when it is healed.
    """

    fault: Fault
    hold_s: float
    began: float
    #: Whether its injection came to its end: of one that broke off nobody knows what was felt.
    whole: bool = True
    felt: bool = field(init=False, default=False)
    waiting: bool = field(init=False)

    def __post_init__(self) -> None:
        self.waiting = self.fault.waits_s > 0

    def look(self, arena: Arena) -> bool:
        """Whether somebody has felt it by now."""
        self.felt = self.felt or (self.whole and self.fault.felt(arena))
        return self.felt

    def is_over(self, now: float, felt: bool) -> bool:
        """Whether it is to be healed; `felt` counts where it waits for that, and not for ever."""
        if self.waiting:
            if felt:
                self.waiting, self.began = False, now
            elif now < self.began + self.fault.waits_s:
                return False
        return now >= self.began + self.hold_s


class Felt:
    """Which faults were felt, and which by nobody: each is counted once."""

    def __init__(self, arena: Arena, felt: Counter[str], unfelt: Counter[str]) -> None:
        self._arena, self._felt, self._unfelt = arena, felt, unfelt
        #: Those that are healed and may still show that they were felt, and until when.
        self._late: dict[UnderWay, float] = {}

    def count(self, each: UnderWay) -> None:
        """It is healed: it was felt, or shows that later, or nobody has felt it."""
        if each.felt:
            self._felt[each.fault.name] += 1
        elif each.fault.shows_late and each.whole:
            self._late[each] = time.monotonic() + LATE_S
        else:
            self._unfelt[each.fault.name] += 1

    def still_waiting(self) -> list[str]:
        """Those that are healed, and may still show that they were felt.

        Who waited in vain is one more that nobody felt.
        """
        now = time.monotonic()
        for each, until in list(self._late.items()):
            if each.look(self._arena):
                self._felt[each.fault.name] += 1
                del self._late[each]
            elif now > until:
                self._unfelt[each.fault.name] += 1
                del self._late[each]
        return [each.fault.name for each in self._late]

    def give_up(self) -> None:
        """Nobody is asked any more."""
        self._unfelt.update(each.fault.name for each in self._late)
        self._late.clear()
