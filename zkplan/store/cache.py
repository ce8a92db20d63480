"""A cache of blobs that were read or written here last, bounded in bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict

from .blob import Bytes

CACHE_BYTES_MAX = 128 * 1024 * 1024


class Cache:
    """Blobs by name. It is thread-safe. What it returns must not be changed."""

    def __init__(self, bytes_max: int = CACHE_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        #: A larger blob is not kept: it would push out too many others.
        self.entry_bytes_max = bytes_max // 2
        self._lock = threading.Lock()
        self._blobs: OrderedDict[str, Bytes] = OrderedDict()
        self._bytes = 0

    def get(self, name: str) -> Bytes | None:
        with self._lock:
            found = self._blobs.get(name)
            if found is not None:
                self._blobs.move_to_end(name)
            return found

    def put(self, name: str, blob: Bytes) -> None:
        """Keep a blob, unless it is larger than `entry_bytes_max`."""
        if len(blob) > self.entry_bytes_max:
            return
        with self._lock:
            if name in self._blobs:
                return
            self._blobs[name] = blob
            self._bytes += len(blob)
            while self._bytes > self._bytes_max:
                _, oldest = self._blobs.popitem(last=False)
                self._bytes -= len(oldest)
