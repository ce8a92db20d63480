"""Tools for tests that need a ZooKeeper: servers on loopback, pytest fixtures, planned crashes.

Use these only for tests and demonstrations. In production, run an ensemble. This package itself
imports neither kazoo nor pytest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zkplan.testing.embedded_process import EmbeddedServerProcess
from zkplan.testing.java import find_zookeeper
from zkplan.testing.server_process import ServerDidNotStart
from zkplan.testing.servers import ZooKeeperEnsemble, ZooKeeperServer

if TYPE_CHECKING:
    from zkplan.testing.crashes import CrashReport, Difference, Step, crash_at_every_step

_OF_CRASHES = ("CrashReport", "Difference", "Step", "crash_at_every_step")

__all__ = [
    "CrashReport",
    "Difference",
    "EmbeddedServerProcess",
    "ServerDidNotStart",
    "Step",
    "ZooKeeperEnsemble",
    "ZooKeeperServer",
    "crash_at_every_step",
    "find_zookeeper",
]


def __getattr__(name: str) -> Any:
    # Imported on first use, because `crashes` imports zkplan and with it kazoo.
    if name in _OF_CRASHES:
        from zkplan.testing import crashes

        return getattr(crashes, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
