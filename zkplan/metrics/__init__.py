"""Metrics for Prometheus, and whether a process is well: of a worker, of a root, of a server.

    prometheus_client.REGISTRY.register(WorkerCollector(worker))

The commands serve the same: `zkplan worker --metrics`, `zkplan server --metrics`, `zkplan metrics`.
"""

from __future__ import annotations

from .endpoint import Endpoint
from .root import RootCollector
from .worker import WorkerCollector

__all__ = ["Endpoint", "RootCollector", "WorkerCollector"]
