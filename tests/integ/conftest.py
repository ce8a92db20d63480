"""Fixtures of the integration tests: a worker on the root of the test, a plain client beside it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

import zkplan
from tests.crash.server import not_available
from tests.differential.servers import embedded_server, java_server
from zkplan.runtime import capacity, shutdown
from zkplan.testing.java import find_java, find_zookeeper

from .support import Here, plain_client, working


@pytest.fixture
def here(zookeeper_hosts: str, zkplan_root: str) -> Here:
    """The server and the root of this test."""
    return zookeeper_hosts, zkplan_root


@pytest.fixture
def worker(here: Here) -> Iterator[zkplan.Worker]:
    """A worker with four threads on the root of this test."""
    with working(*here) as running:
        yield running


@pytest.fixture
def nothing_stalls() -> Iterator[None]:
    """Workers in this process hand no claim back because it waits for a slot.

    For tests that tell the exact numbers of claims, or their order: where the thread of a slot is
    slow to begin, a claim that waits for it goes back, and the next one has the next number. And
    for tests of what else is handed back, and of what workers leave: they sign off, however slow
    the server is.
    """
    # Not by `monkeypatch`, which would then be there before all else, and undo what the test itself
    # replaces only after the end of all else.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(capacity, "STALLED_S", 1000.0)
        patch.setattr(shutdown, "SIGN_OFF_S", 30.0)
        yield


@pytest.fixture
def znodes(zookeeper_hosts: str) -> Iterator[KazooClient]:
    """A plain KazooClient: what any other program sees of the tree."""
    with plain_client(zookeeper_hosts) as client:
        yield client


@pytest.fixture(scope="session")
def unswept_hosts(zookeeper_kind: str) -> Iterator[str]:
    """A server that leaves empty containers alone.

    Every other one deletes them once a minute, at a moment that no program can know: a comparison
    of its answers with a tree's would fail in the runs that such a moment falls into.
    """
    if zookeeper_kind == "zookeeper" and (find_java() is None or find_zookeeper() is None):
        not_available("no ZooKeeper is installed here")
    with embedded_server() if zookeeper_kind == "embedded" else java_server() as (host, port):
        yield f"{host}:{port}"
