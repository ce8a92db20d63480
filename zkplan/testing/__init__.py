"""Tools for tests that need a ZooKeeper: servers on loopback, pytest fixtures, planned crashes.

Use these only for tests and demonstrations. In production, run an ensemble.
"""

from __future__ import annotations

from zkplan.testing.crashes import CrashReport, Difference, Step, crash_at_every_step
from zkplan.testing.embedded_process import EmbeddedServerProcess
from zkplan.testing.java import find_zookeeper
from zkplan.testing.server_process import ServerDidNotStart
from zkplan.testing.servers import ZooKeeperEnsemble, ZooKeeperServer

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
