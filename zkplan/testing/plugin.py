"""The pytest plugin: fixtures that give a test a server, a root of its own, and a client.

`zkplan_client` has a worker and uses zkplan's own server, which needs only Python, or the ZooKeeper
that ZKPLAN_TEST_HOSTS names. The fixtures named `zookeeper_…` are for tests with a real ZooKeeper.
Without one, such a test is skipped; if CI is set, it fails, so that a green run means that the test
ran. pytest loads this module in every run of an environment that has zkplan. So each fixture
imports its own modules, and a server starts only with the first test that needs it.
"""

from __future__ import annotations

import os
import re
import secrets
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, NoReturn

import pytest

if TYPE_CHECKING:
    from kazoo.client import KazooClient

    from zkplan.client import Client
    from zkplan.embedded import EmbeddedServer
    from zkplan.testing.server_process import ServerProcess
    from zkplan.testing.servers import ZooKeeperEnsemble

_used = pytest.StashKey[list[str]]()

# Short, because tests wait for the end of sessions, at the first tick after their time-out.
_TICK_TIME_MS = 200
_GRACE_S = 5.0


@pytest.fixture(scope="session")
def zk_server(pytestconfig: pytest.Config) -> Iterator[EmbeddedServer]:
    """zkplan's own ZooKeeper server, in memory, for the whole session, at `zk_server.hosts`.

    The server runs in a thread of this process. Tests share it, so they must not stop it. It is
    closed to other users of the machine. `zkplan.connect(zk_server.hosts)` logs in by itself; any
    other ZooKeeper client needs `auth_data=[("digest", zk_server.login)]`.
    """
    from zkplan.embedded import EmbeddedServer

    with EmbeddedServer(tick_time_ms=_TICK_TIME_MS) as server:
        _note(pytestconfig, f"zkplan's embedded server at {server.hosts}, in memory")
        yield server


@pytest.fixture(scope="session")
def zkplan_hosts(request: pytest.FixtureRequest) -> str:
    """The server of `zkplan_client`: ZKPLAN_TEST_HOSTS, else `zk_server`.

    A project may override this fixture to use another server.
    """
    from .servers import HOSTS_VARIABLE

    given = os.environ.get(HOSTS_VARIABLE)
    if given:
        _note(request.config, f"ZooKeeper at {given} (given in {HOSTS_VARIABLE})")
        return given
    server: EmbeddedServer = request.getfixturevalue("zk_server")
    return server.hosts


@pytest.fixture(scope="session")
def zookeeper_kind() -> str:
    """The server of the next two fixtures: `zookeeper`, the real one, or `embedded`, zkplan's own.

    A project that tests on both kinds can parametrise this fixture.
    """
    return "zookeeper"


@pytest.fixture(scope="session")
def zookeeper_hosts(pytestconfig: pytest.Config, zookeeper_kind: str) -> Iterator[str]:
    """`host:port` of a ZooKeeper in a process of its own, for the whole session.

    This is the ZooKeeper that ZKPLAN_TEST_HOSTS names, or else one started here (with Java and the
    jars of Debian's package or of ZOOKEEPER_HOME), or else a container. Tests share the server, so
    they must not stop it.
    """
    from .servers import NoZooKeeper, provided_embedded, provided_zookeeper

    provide = provided_embedded if zookeeper_kind == "embedded" else provided_zookeeper
    try:
        with provide(_TICK_TIME_MS) as provided:
            _note(pytestconfig, str(provided))
            yield provided.hosts
    except NoZooKeeper as error:
        _not_available(str(error))


@pytest.fixture
def zookeeper_server(pytestconfig: pytest.Config, zookeeper_kind: str) -> Iterator[ServerProcess]:
    """A new server for this test alone, which may kill, pause and restart it.

    Sessions may be as short as 1 s.
    """
    from zkplan.testing.servers import ZooKeeperServer

    from .server_process import EmbeddedServerProcess

    made: ServerProcess
    if zookeeper_kind == "embedded":
        made = EmbeddedServerProcess(tick_time_ms=_TICK_TIME_MS)
    else:
        _require_java()
        made = ZooKeeperServer(tick_time_ms=_TICK_TIME_MS)
    with made as server:
        name = f"{zookeeper_kind} {server.version}"
        _note(pytestconfig, f"{name}, a fresh server for each test that kills it")
        yield server


@pytest.fixture
def zookeeper_ensemble(_session_ensemble: ZooKeeperEnsemble) -> Iterator[ZooKeeperEnsemble]:
    """Three servers that form one ensemble. A test may kill, pause and restart members.

    Tests share the ensemble; before and after each test every member serves.
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
def _root_remover(zkplan_hosts: str) -> Iterator[KazooClient]:
    from zkplan.client import connect

    with connect(zkplan_hosts) as client:
        yield client.transport.client


@pytest.fixture
def zkplan_root(request: pytest.FixtureRequest, _root_remover: KazooClient) -> Iterator[str]:
    """A root path for this test alone (`/t-my_test-3f2a91bc`). The fixture does not create the
    root, but removes it after the test."""
    from .servers import remove_tree

    name = re.sub(r"[^A-Za-z0-9_]+", "-", request.node.name)[:60].strip("-")
    root = f"/t-{name}-{uuid.uuid4().hex[:8]}"
    yield root
    remove_tree(_root_remover, root)


@pytest.fixture
def zkplan_threads() -> int:
    """How many tasks the worker of `zkplan_client` runs at a time. With 0 there is no worker.

    A project or a test may override this fixture.
    """
    return 4


@pytest.fixture
def zkplan_secret() -> str:
    """The secret of `zkplan_client` and its worker, because other users may also reach the server.

    Further clients and workers of a test need this secret (`secret=`). A project may override this
    fixture.
    """
    return secrets.token_hex(32)


@pytest.fixture
def zkplan_client(
    zkplan_hosts: str, zkplan_root: str, zkplan_secret: str, zkplan_threads: int
) -> Iterator[Client]:
    """A `zkplan.Client` on `zkplan_root`, with a worker on threads of this process.

    Both end after the test; running tasks have a few seconds to end.
    """
    from zkplan.client import connect_with
    from zkplan.worker import Worker

    from ..basics.settings import Settings, one_setting

    settings = Settings(
        hosts=zkplan_hosts,
        root=zkplan_root,
        secret=zkplan_secret.encode(),
        store=os.environ.get("ZKPLAN_STORE", ""),
        inline_limit=one_setting("inline_limit"),
    )

    def connected() -> Client:
        return stack.enter_context(connect_with(settings))

    with ExitStack() as stack:
        if zkplan_threads:
            worker = Worker(connected(), zkplan_threads).start()
            stack.callback(worker.stop, _GRACE_S)
        yield connected()


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print which servers the tests ran on, if they used any."""
    for line in config.stash.get(_used, []):
        terminalreporter.write_line(f"zkplan: ran on {line}")


def _note(config: pytest.Config, line: str) -> None:
    used = config.stash.setdefault(_used, [])
    if line not in used:
        used.append(line)


def _require_java() -> None:
    from zkplan.testing import NO_JAVA, find_zookeeper

    if find_zookeeper() is None:
        _not_available(NO_JAVA)


def _not_available(reason: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(f"{reason} (a failure, not a skip, because CI is set)", pytrace=False)
    pytest.skip(reason)
