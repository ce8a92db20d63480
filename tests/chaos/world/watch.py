"""What the members of an ensemble say of themselves: who leads, who serves, who is behind."""

from __future__ import annotations

import time
from collections.abc import Sequence

from zkplan.testing.loopback import server_status
from zkplan.testing.server_process import ServerProcess


class Watch:
    """Looks at the members, by their numbers from 1; remembers when which writes were known."""

    def __init__(self, members: Sequence[ServerProcess]) -> None:
        self._members = members
        self._status: dict[int, dict[str, str]] = {}
        self._before: dict[int, dict[str, str]] = {}
        #: When the last look began.
        self._began = 0.0
        #: By time, the number of the newest transaction that any member had applied.
        self._newest: list[tuple[float, int]] = []

    def look(self) -> None:
        """Ask all of them."""
        self._began, self._before = time.monotonic(), self._status
        self._status = {
            number: server_status(member.hosts) for number, member in enumerate(self._members, 1)
        }
        self._newest.append((time.monotonic(), max(map(self.applied, self._status))))

    def mode(self, number: int) -> str | None:
        """`leader` or `follower`; None where it serves nobody."""
        return self._status[number].get("Mode")

    def is_out(self, number: int) -> bool:
        """Whether it serves nobody, at two looks in a row: on a busy machine one may be in vain."""
        modes = [looked[number].get("Mode") for looked in (self._before, self._status) if looked]
        return modes == [None, None]

    def applied(self, number: int) -> int:
        """The number of the last transaction that it has applied; -1 where it does not say."""
        return int(self._status[number].get("Zxid", "-1"), 16)

    def stands_still(self, number: int) -> bool:
        """Whether requests wait at it, and since the last look it has applied nothing."""
        outstanding = int(self._status[number].get("Outstanding", "0"))
        same = self._status[number].get("Zxid") == self._before.get(number, {}).get("Zxid")
        return outstanding > 0 and same

    def is_behind(self, number: int, seconds: float) -> bool:
        """Whether it serves, and lacks what another member had applied so long ago."""
        known = [newest for at, newest in self._newest if at <= self._began - seconds]
        return self.mode(number) is not None and self.applied(number) < max(known, default=-1)
