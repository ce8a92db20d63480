"""Claim tasks as a program does, and wait for them as the service does."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Sequence

from zkplan.service.lease_candidates import REFRESH_S
from zkplan.service.lease_records import LeasedOut
from zkplan.service.leases import Leases


def claim(
    leases: Leases,
    queues: Sequence[str] = ("default",),
    kinds: Collection[str] | None = None,
    count: int = 1,
    wait: float = 0.0,
    lease: float = 30.0,
) -> list[LeasedOut]:
    """Claim up to `count` tasks, and wait up to `wait` seconds for the first one."""
    changed, deadline = threading.Event(), time.monotonic() + wait
    leases.candidates.listeners.append(changed.set)
    try:
        while True:
            changed.clear()
            found = leases.claim(queues, kinds, count, lease)
            left = deadline - time.monotonic()
            if found or left <= 0:
                return found
            changed.wait(min(left, REFRESH_S) if leases.candidates.must_look_again else left)
    finally:
        leases.candidates.listeners.remove(changed.set)
