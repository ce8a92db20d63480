"""The last of what one attempt has printed: how much of it is told, and when."""

from __future__ import annotations

import threading

from ..protocol.requests import Printed

#: A running task is told of after so many seconds; then each time that it has run a tenth longer,
#: within these bounds.
FIRST_S, EVERY_MIN_S, EVERY_MAX_S, EVERY_SHARE = 2.0, 2.0, 15.0, 0.1
#: While it runs, besides what is kept of an attempt anyway: so many bytes for each second.
BYTES_PER_S = 16
#: Less room than that is not worth a request.
LIVE_BYTES_MIN = 64
#: Characters that are encoded at a time: a text of 100 MB is not copied as a whole.
_CHARS = 64 * 1024


class Tail:
    """The last bytes of what one attempt has printed, at most `most`. Thread-safe."""

    def __init__(self, most: int) -> None:
        self._most, self._kept, self._lock = most, bytearray(), threading.Lock()
        #: How many bytes were printed.
        self._end = 0
        #: Up to this byte they are told.
        self._told = 0
        #: From this byte on they are told without a gap.
        self._whole_from = 0
        #: How many bytes were told while the task ran.
        self._live_bytes = 0
        #: After so many seconds of its run it is told of again.
        self._due_s = FIRST_S
        #: Whether that is under way.
        self._is_under_way = False

    def add(self, text: str) -> None:
        """What was just printed."""
        for start in range(0, len(text), _CHARS):
            data = text[start : start + _CHARS].encode(errors="backslashreplace")
            with self._lock:
                self._end += len(data)
                self._kept += data
                if len(self._kept) > 2 * self._most + len(data):
                    del self._kept[: -self._most]

    def rest(self, room: int) -> Printed | None:
        """What the end of the attempt tells, at most `room` bytes: the last of it, as far as that
        was not told; None if there is nothing."""
        with self._lock:
            start = max(0, self._end - min(room, self._most))
            if self._whole_from <= start:
                start = max(start, self._told)
            return self._from(start)

    def live(self, ran_s: float) -> Printed | None:
        """What is told now that the task has run for so long; None if nothing is. `told` says what
        came of it, and until then nothing more is."""
        with self._lock:
            room = int(self._most + BYTES_PER_S * ran_s) - self._live_bytes
            is_due = ran_s >= self._due_s and not self._is_under_way
            if not is_due or self._told == self._end or room < LIVE_BYTES_MIN:
                return None
            self._due_s = ran_s + min(EVERY_MAX_S, max(EVERY_MIN_S, EVERY_SHARE * ran_s))
            printed = self._from(max(self._told, self._end - min(room, self._most)))
            self._is_under_way = printed is not None
            return printed

    def told(self, printed: Printed, is_told: bool | None) -> None:
        """Whether what `live` gave is in the history."""
        with self._lock:
            self._is_under_way = False
            if is_told:
                if printed.at > self._told:
                    self._whole_from = printed.at
                self._told = printed.end
                self._live_bytes += self._told - printed.at

    def _from(self, start: int) -> Printed | None:
        data = self._kept[len(self._kept) - (self._end - start) :] if start < self._end else b""
        cut = 0
        while cut < len(data) and data[cut] & 0xC0 == 0x80:
            cut += 1  # the rest of a character
        return Printed(start + cut, data[cut:].decode()) if data[cut:] else None
