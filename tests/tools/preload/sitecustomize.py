"""Loaded by Python under libfaketime: a sleep waits at a lock instead.

libfaketime 0.9.10 breaks the absolute sleep on the monotonic clock by which Python 3.11 sleeps
(EINVAL); its waits at locks are sound.
"""

import threading
import time
from typing import SupportsIndex


def _sleep(seconds: float | SupportsIndex, /) -> None:
    threading.Event().wait(float(seconds))


time.sleep = _sleep
