"""The one door to ZooKeeper. The only importer of kazoo."""

from .core import Keeper
from .opening import open_keeper

__all__ = ["Keeper", "open_keeper"]
