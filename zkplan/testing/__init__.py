"""Tools for tests that need a ZooKeeper: servers on loopback, pytest fixtures, planned crashes.

Use these only for tests and demonstrations. In production, run an ensemble.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .crashes import CrashReport, Difference, Step, crash_at_every_step
    from .java import find_zookeeper
    from .server_process import EmbeddedServerProcess, ServerDidNotStart
    from .servers import ZooKeeperEnsemble, ZooKeeperServer

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
#: The module of each name: it is loaded when the name is first used.
_HOMES = {
    "CrashReport": "crashes",
    "Difference": "crashes",
    "Step": "crashes",
    "crash_at_every_step": "crashes",
    "EmbeddedServerProcess": "server_process",
    "ServerDidNotStart": "server_process",
    "ZooKeeperEnsemble": "servers",
    "ZooKeeperServer": "servers",
    "find_zookeeper": "java",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
