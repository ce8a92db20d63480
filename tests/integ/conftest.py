"""Fixtures of the integration tests: a worker on the root of the test, a plain client beside it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

import zkplan

from .support import plain_client, working


@pytest.fixture
def worker(zookeeper_hosts: str, zkplan_root: str) -> Iterator[zkplan.Worker]:
    """A worker with four threads on the root of this test."""
    with working(zookeeper_hosts, zkplan_root) as running:
        yield running


@pytest.fixture
def znodes(zookeeper_hosts: str) -> Iterator[KazooClient]:
    """A plain KazooClient: what any other program sees of the tree."""
    with plain_client(zookeeper_hosts) as client:
        yield client
