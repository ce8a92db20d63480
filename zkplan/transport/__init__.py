"""The one door to ZooKeeper. The only importer of kazoo."""

from .core import Transport
from .opening import open_transport

__all__ = ["Transport", "open_transport"]
