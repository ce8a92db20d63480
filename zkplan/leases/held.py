"""The claims that this process has given out, as far as it remembers; others are read again."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import NamedTuple

from ..runtime.job import Job
from .leased import ClaimId

#: What is remembered at most; what goes first was given out first.
HELD_MAX, HELD_BYTES_MAX = 20_000, 64 * 1024 * 1024


class _Held(NamedTuple):
    job: Job
    size: int


class Held:
    """By claim, what was read of its task. Thread-safe; it may forget anything at any time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: dict[ClaimId, _Held] = {}
        self._of_lease: dict[str, set[str]] = {}
        self._bytes = 0

    def put(self, claim: ClaimId, job: Job) -> None:
        loaded = job.loaded
        size = len(loaded.record) + sum(map(len, loaded.arguments)) + 1000
        with self._lock:
            self._drop(claim)
            self._jobs[claim] = _Held(job, size)
            self._of_lease.setdefault(claim.lease, set()).add(claim.name)
            self._bytes += size
            while len(self._jobs) > HELD_MAX or self._bytes > HELD_BYTES_MAX:
                self._drop(next(iter(self._jobs)))

    def take(self, claim: ClaimId) -> Job | None:
        """What is known, and forgotten now: two calls must not settle one claim at a time."""
        with self._lock:
            return self._drop(claim)

    def find(self, claim: ClaimId) -> Job | None:
        held = self._jobs.get(claim)
        return None if held is None else held.job

    def emptied(self, leases: Iterable[str]) -> list[str]:
        """Those of these leases of which this process knows no claim any more."""
        with self._lock:
            return sorted({lease for lease in leases if not self._of_lease.get(lease)})

    def _drop(self, claim: ClaimId) -> Job | None:
        held = self._jobs.pop(claim, None)
        if held is None:
            return None
        self._bytes -= held.size
        names = self._of_lease.get(claim.lease)
        if names is not None:
            names.discard(claim.name)
            if not names:
                del self._of_lease[claim.lease]
        return held.job
