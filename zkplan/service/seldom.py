"""Lines of the log that strangers can cause: each kind at most once in ten seconds, and counted."""

from __future__ import annotations

import time

from ..log import get_logger

#: Seconds between two lines of one kind.
APART_S = 10.0
log = get_logger("zkplan.service")


class Seldom:
    """Keeps who asks often from filling the disk. Used by one event loop."""

    def __init__(self) -> None:
        #: For each kind, when its last line was written, and how many were left out since.
        self._kinds: dict[str, tuple[float, int]] = {}

    def info(self, kind: str, text: str) -> None:
        """Write the line, or count it. Kinds are few: none comes from a request."""
        now = time.monotonic()
        last, left_out = self._kinds.get(kind, (float("-inf"), 0))
        if now - last < APART_S:
            self._kinds[kind] = last, left_out + 1
            return
        self._kinds[kind] = now, 0
        more = f" ({left_out} more of this kind in the last {now - last:.0f} s)" if left_out else ""
        log.info("%s%s", text, more)
