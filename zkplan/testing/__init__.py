"""Tools for tests that need a ZooKeeper: servers on loopback and pytest fixtures.

All of it is for tests and demonstrations; plans in production live in an ensemble of their own.
This package itself imports neither kazoo nor pytest.
"""

from zkplan.testing.java import find_zookeeper
from zkplan.testing.servers import ServerDidNotStart, ZooKeeperEnsemble, ZooKeeperServer

__all__ = ["ServerDidNotStart", "ZooKeeperEnsemble", "ZooKeeperServer", "find_zookeeper"]
