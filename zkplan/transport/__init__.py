"""The one way to ZooKeeper, and the only importer of kazoo."""

from .opening import open_transport
from .transport import Transport

__all__ = ["Transport", "open_transport"]
