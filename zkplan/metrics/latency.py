"""How long ZooKeeper takes to answer: one small read, for which nobody waits longer than asked."""

from __future__ import annotations

import threading
import time
from typing import Any

from ..errors import ZkplanError
from ..protocol.requests import ReadData
from ..transport import Transport

#: A scrape waits no longer, so that it has an answer before Prometheus gives up (10 s by default).
WITHIN_S = 2.0


def latency_s(transport: Transport, path: str, within_s: float = WITHIN_S) -> float | None:
    """Seconds until the answer to a read of `path`; None if there was none in time.

    It counts what the client itself takes, and its requests that wait before this one.
    """
    answered = threading.Event()
    times: list[float] = []

    def done(answer: Any, error: BaseException | None) -> None:
        # A refusal by an access list is an answer, too.
        times.append(time.monotonic())
        answered.set()

    started = time.monotonic()
    try:
        call = transport.submit(ReadData(path), done)
    except ZkplanError:
        return None  # closed, or given up
    if not answered.wait(within_s):
        call.abandoned = True
        return None
    return times[0] - started
