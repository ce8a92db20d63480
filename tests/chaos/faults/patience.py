"""A wait that ends: for what another fault of the same moment may keep from coming."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_READY_S = 10.0
_POLL_S = 0.05


def wait_a_while(ready: Callable[[], bool]) -> None:
    """Until it is so, and not for ever; whether it came to be shows where the fault is felt."""
    until, pause = time.monotonic() + _READY_S, threading.Event()
    while not ready() and time.monotonic() < until:
        pause.wait(_POLL_S)
