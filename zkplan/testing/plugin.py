"""The pytest plugin: fixtures that give a test a real ZooKeeper, a root of its own and a client.

pytest loads it in every run of an environment that has zkplan, so each fixture imports what it
needs, and a ZooKeeper is started by the first test that asks for one. Where there is none, tests
that need it are skipped; where CI is set they fail, so that a green run means they ran.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, NoReturn

import pytest

if TYPE_CHECKING:
    from kazoo.client import KazooClient

    import zkplan
    from zkplan.testing.servers import ZooKeeperEnsemble, ZooKeeperServer

_used = pytest.StashKey[list[str]]()

# Short: a session ends at the first tick after its timeout, and tests of that end wait for it.
_TICK_TIME_MS = 200


@pytest.fixture(scope="session")
def zookeeper_hosts(pytestconfig: pytest.Config) -> Iterator[str]:
    """`host:port` of a ZooKeeper for the whole session.

    The one ZKPLAN_TEST_HOSTS names, else one started here (Java and the jars of Debian's package or
    of ZOOKEEPER_HOME), else a container. It is shared: a test must not stop it.
    """
    from zkplan.testing.provide import NoZooKeeper, provided_zookeeper

    with ExitStack() as stack:
        try:
            provided = stack.enter_context(provided_zookeeper())
        except NoZooKeeper as error:
            _not_available(str(error))
        _note(pytestconfig, str(provided))
        yield provided.hosts


@pytest.fixture
def zookeeper_server(pytestconfig: pytest.Config) -> Iterator[ZooKeeperServer]:
    """A fresh server of this test alone, started: it may be killed, paused and restarted.

    Sessions may be as short as 1 s.
    """
    _require_java()
    from zkplan.testing.servers import ZooKeeperServer

    with ZooKeeperServer(tick_time_ms=_TICK_TIME_MS) as server:
        _note(
            pytestconfig, f"ZooKeeper {server.version}, a fresh server for each test that kills it"
        )
        yield server


@pytest.fixture
def zookeeper_ensemble(_session_ensemble: ZooKeeperEnsemble) -> Iterator[ZooKeeperEnsemble]:
    """Three servers that form one ensemble: members may be killed, paused and restarted.

    The ensemble lives as long as the session; before and after each test every member serves.
    """
    yield _session_ensemble.start()
    _session_ensemble.start()


@pytest.fixture(scope="session")
def _session_ensemble(pytestconfig: pytest.Config) -> Iterator[ZooKeeperEnsemble]:
    _require_java()
    from zkplan.testing.servers import ZooKeeperEnsemble

    with ZooKeeperEnsemble(tick_time_ms=_TICK_TIME_MS) as ensemble:
        _note(pytestconfig, f"ZooKeeper {ensemble.version}, three servers at {ensemble.hosts}")
        yield ensemble


@pytest.fixture(scope="session")
def _root_remover(zookeeper_hosts: str) -> Iterator[KazooClient]:
    from kazoo.client import KazooClient

    client = KazooClient(hosts=zookeeper_hosts)
    client.start()
    yield client
    client.stop()
    client.close()


@pytest.fixture
def zkplan_root(request: pytest.FixtureRequest, _root_remover: KazooClient) -> Iterator[str]:
    """A root path of this test alone (`/t-my_test-3f2a91bc`): not created, removed afterwards."""
    from zkplan.testing.znodes import remove_tree

    name = re.sub(r"[^A-Za-z0-9_]+", "-", request.node.name)[:60].strip("-")
    root = f"/t-{name}-{uuid.uuid4().hex[:8]}"
    yield root
    remove_tree(_root_remover, root)


@pytest.fixture
def zkplan_client(zookeeper_hosts: str, zkplan_root: str) -> Iterator[zkplan.Client]:
    """A `zkplan.Client` on `zkplan_root`, closed afterwards."""
    import zkplan

    with zkplan.connect(zookeeper_hosts, root=zkplan_root) as client:
        yield client


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say which ZooKeeper the tests ran on; silent in runs that used none."""
    for line in config.stash.get(_used, []):
        terminalreporter.write_line(f"zkplan: ran on {line}")


def _note(config: pytest.Config, line: str) -> None:
    used = config.stash.setdefault(_used, [])
    if line not in used:
        used.append(line)


def _require_java() -> None:
    from zkplan.testing.java import find_zookeeper
    from zkplan.testing.provide import NO_JAVA

    if find_zookeeper() is None:
        _not_available(NO_JAVA)


def _not_available(reason: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(f"{reason} (a failure, not a skip, because CI is set)", pytrace=False)
    pytest.skip(reason)
