"""The server's time for who changes schedules, and how often a change is tried again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ..connection import Connection
from ..errors import TransactionRejected
from ..protocol.schedules import ensure_schedules
from ..protocol.shared import REFUSALS_MAX
from ..transport.server_clock import ServerClock

T = TypeVar("T")


def server_time(client: Connection) -> float:
    """Wall-clock seconds of the server, from a write: the clock here may be wrong by hours."""
    path = client.paths.schedules
    client.transport.run(ensure_schedules(client.paths))
    clock = ServerClock()
    client.transport.run(clock.ask(path))
    return clock.now()


def retried(name: str, attempt: Callable[[], T | None]) -> T:
    """What `attempt` gives, tried again where somebody else has changed the schedule meanwhile.

    Raises TransactionRejected.
    """
    for _ in range(REFUSALS_MAX):
        found = attempt()
        if found:
            return found
    raise TransactionRejected(f"the schedule {name} is changed by others all the time; try again")
