"""Keep results that a full server refuses, and commit them as soon as there is room.

This uses up no attempt. Room comes from tasks whose commit deletes more than it adds. Dependents
are added after their dependencies, and their commits delete their arguments. So meanwhile this
worker prefers the newest tasks.
"""

from __future__ import annotations

from ..errors import ZkplanError
from ..log import get_logger
from ..protocol.shared import Claim

#: The most results that are kept here, and the most bytes. Beyond that a task is handed back and
#: runs again later.
KEPT_MAX = 400
KEPT_BYTES_MAX = 64 * 1024 * 1024
#: Seconds before a result is tried again: the first delay, doubled each time up to the second.
REST_FIRST_S, REST_MAX_S = 0.5, 10.0

logger = get_logger("zkplan.worker")


class KeptResults:
    """Which results one worker keeps; only the loop's thread calls it."""

    def __init__(self) -> None:
        #: By the path of the claim: the size of the result, and for how long it rested last.
        self._kept: dict[str, tuple[int, float]] = {}
        #: Whether the server has refused a result that is not committed yet. No property: the loop
        #: asks ten times for each task of a chain.
        self.is_met = False

    def keep(self, claim: Claim, size: int, error: ZkplanError) -> float | None:
        """Keep a result of `size` bytes that ZooKeeper had no room for.

        Returns after how many seconds to try again, or None if too many are kept already.
        """
        if not self._kept:
            logger.warning("this worker keeps results until ZooKeeper has room for them: %s", error)
        if claim.path not in self._kept and self._is_full(size):
            return None
        _, rested_s = self._kept.get(claim.path, (0, 0.0))
        rest_s = min(REST_MAX_S, max(REST_FIRST_S, 2 * rested_s))
        self._kept[claim.path] = size, rest_s
        self.is_met = True
        return rest_s

    def settled(self, claim: Claim) -> None:
        """Forget `claim`: it was committed, lost, or handed back."""
        if self._kept.pop(claim.path, None) is not None and not self._kept:
            self.is_met = False
            logger.warning("this worker keeps no results any more: all of them are settled")

    def _is_full(self, size: int) -> bool:
        kept = sum(other for other, _ in self._kept.values())
        return len(self._kept) >= KEPT_MAX or kept + size > KEPT_BYTES_MAX
