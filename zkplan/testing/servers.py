"""ZooKeeper servers for tests: from Java on this machine, from a container, or a given one."""

from __future__ import annotations

import os
import secrets
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError, NotEmptyError

from ..basics.log import get_logger
from ..basics.settings import Settings, with_password
from ..client import Client, connect_with
from . import NO_JAVA, find_java, find_zookeeper
from .server_process import (
    LOOPBACK,
    EmbeddedServerProcess,
    ServerDidNotStart,
    ServerProcess,
    free_port,
    server_status,
    server_version,
)

_LEADER_DEADLINE_S = 60.0
# ZooKeeper's default is 20 ticks, which with short ticks would cut ordinary session time-outs.
_MAX_SESSION_TIMEOUT_MS = 60_000
_POLL_S = 0.02

#: A test's server ends before Java's best compilation, which took twice the processor time, pays
#: off. Benchmarks do not use this option.
SHORT_LIVED = ("-XX:TieredStopAtLevel=1",)


class ZooKeeperServer(ServerProcess):
    """A ZooKeeper server in Java, which writes its log with fsync and has no admin server."""

    def __init__(
        self,
        *,
        tick_time_ms: int = 2000,
        min_session_timeout_ms: int = 1000,
        heap: str = "512m",
        jvm_options: Sequence[str] = SHORT_LIVED,
        config: Mapping[str, str] | None = None,
        server_id: int | None = None,
        port: int | None = None,
        data: Path | None = None,
    ) -> None:
        """Prepare a server; nothing is started yet.

        A session expires at the first multiple of `tick_time_ms` after its time-out, so tests of
        expiry make both short. `config` adds lines to zoo.cfg, and `server_id` makes the server a
        member of an ensemble. `data` is a folder that outlives the server; without it `close`
        removes the data. Raises ServerDidNotStart if no ZooKeeper is installed.
        """
        java, class_path = find_java(), find_zookeeper()
        if java is None or class_path is None:
            raise ServerDidNotStart(NO_JAVA)
        super().__init__(port, data)
        settings = {
            "tickTime": str(tick_time_ms),
            "minSessionTimeout": str(min_session_timeout_ms),
            "maxSessionTimeout": str(_MAX_SESSION_TIMEOUT_MS),
            "dataDir": str(self.data / "data"),
            "clientPort": str(self.port),
            "clientPortAddress": LOOPBACK,
            "maxClientCnxns": "0",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "ruok,srvr",
            **(config or {}),
        }
        (self.data / "data").mkdir(parents=True, exist_ok=True)
        if server_id is not None:
            (self.data / "data" / "myid").write_text(f"{server_id}\n")
        cfg = self.data / "zoo.cfg"
        cfg.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self._command = [
            java,
            f"-Xmx{heap}",
            "-XX:+UseSerialGC",
            "-Dzookeeper.jmx.log4j.disable=true",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            *jvm_options,
            "-cp",
            os.pathsep.join(class_path),
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            str(cfg),
        ]


class PeerPorts(NamedTuple):
    """The ports on loopback at which the other members of an ensemble reach a member."""

    quorum: int
    election: int


#: `detour(member, other, ports)` returns the ports at which `member` reaches `other`, whose own
#: ports are `ports`.
Detour = Callable[[int, int, PeerPorts], PeerPorts]


class ZooKeeperEnsemble:
    """Three (or more) servers on loopback that form one ensemble.

    `servers` has the members, each with the methods of ZooKeeperServer.
    """

    def __init__(
        self,
        size: int = 3,
        *,
        tick_time_ms: int = 2000,
        min_session_timeout_ms: int = 1000,
        detour: Detour | None = None,
        jvm_options: Sequence[str] = (),
        config: Callable[[int], Mapping[str, str]] | None = None,
    ) -> None:
        """Prepare the members; nothing is started yet. Raises ServerDidNotStart as servers do.

        With `detour` the members reach each other at the ports that it returns, for example those
        of proxies. `config` gets the number of a member, from 1, and returns more lines of its
        zoo.cfg.
        """
        numbers = range(1, size + 1)
        ports = {number: PeerPorts(free_port(), free_port()) for number in numbers}
        # The limits are in ticks: at least 5, and at least 10 s, so that a busy machine can form a
        # quorum even with short ticks.
        ticks = str(max(5, 10_000 // tick_time_ms))
        self.servers = []
        for number in numbers:
            lines = {"initLimit": ticks, "syncLimit": ticks, **(config(number) if config else {})}
            for other, own in ports.items():
                way = detour(number, other, own) if detour and other != number else own
                lines[f"server.{other}"] = f"{LOOPBACK}:{way.quorum}:{way.election}"
            self.servers.append(
                ZooKeeperServer(
                    tick_time_ms=tick_time_ms,
                    min_session_timeout_ms=min_session_timeout_ms,
                    heap="256m",
                    jvm_options=jvm_options,
                    config=lines,
                    server_id=number,
                )
            )

    @property
    def hosts(self) -> str:
        """The connection string with every member."""
        return ",".join(server.hosts for server in self.servers)

    @property
    def version(self) -> str:
        """The version of the first member that answers; `unknown` if none does."""
        return server_version(self.hosts)

    def start(self) -> ZooKeeperEnsemble:
        """Start or resume every member that does not serve, and wait until all do."""
        for server in self.servers:
            server.resume()
            server.start(wait=False)
        for server in self.servers:
            server.wait_serving()
        return self

    def leader(self, timeout_s: float = _LEADER_DEADLINE_S) -> ZooKeeperServer:
        """Wait for the member that leads, and return it. Raises TimeoutError."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            for server in self.servers:
                if server.is_running() and server.mode == "leader":
                    return server
            time.sleep(_POLL_S)
        raise TimeoutError(f"no member of {self.hosts} led within {timeout_s} s")

    def close(self) -> None:
        """End every member and remove the data."""
        with ExitStack() as stack:
            for server in self.servers:
                stack.callback(server.close)

    def __enter__(self) -> ZooKeeperEnsemble:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()


# ---- Remove a whole tree of znodes, with many requests at a time.


_IN_FLIGHT_MAX = 500
_ANSWER_TIMEOUT_S = 30.0
# A worker that a test left running may create znodes meanwhile, so there are several passes.
_PASSES_MAX = 5


def remove_tree(client: KazooClient, root: str) -> None:
    """Delete `root` and everything below it. Does nothing if it does not exist.

    Raises kazoo's NotEmptyError if others keep creating znodes, and kazoo's connection errors.
    """
    for _ in range(_PASSES_MAX):
        if client.exists(root) is None:
            return
        tree = level = [root]
        while level:
            listed = _ask_each(client.get_children_async, level)
            level = [f"{parent}/{name}" for parent, names in listed for name in names]
            tree = tree + level
        # Delete the children first: the writes of one client are applied in their order.
        list(_ask_each(client.delete_async, tree[::-1]))
    if client.exists(root) is not None:
        client.delete(root)


def _ask_each(ask: Callable[[str], Any], paths: list[str]) -> Iterator[tuple[str, Any]]:
    """Yield each path with its answer, with many requests under way; skip refused ones."""
    for start in range(0, len(paths), _IN_FLIGHT_MAX):
        asked = [(path, ask(path)) for path in paths[start : start + _IN_FLIGHT_MAX]]
        for path, answer in asked:
            with suppress(NoNodeError, NotEmptyError):
                yield path, answer.get(timeout=_ANSWER_TIMEOUT_S)


# ---- Provide a ZooKeeper for tests and runs: a given one, one started here, or a container.


HOSTS_VARIABLE = "ZKPLAN_TEST_HOSTS"
CONTAINER_IMAGE = "zookeeper:3.9"
NO_ZOOKEEPER = (
    f"{NO_JAVA}; or set {HOSTS_VARIABLE}=host:port to a ZooKeeper for tests, or start Docker "
    "with the Python package testcontainers installed"
)
_CONTAINER_DEADLINE_S = 60.0

logger = get_logger("zkplan.testing")


class Provided(NamedTuple):
    """A ZooKeeper that serves requests, and how it was found."""

    hosts: str
    version: str
    how: str
    #: For people: "ZooKeeper", or "Server" if it is zkplan's own.
    what: str = "ZooKeeper"

    def __str__(self) -> str:
        return f"{self.what} {self.version} at {self.hosts} ({self.how})"


def of_our_own(hosts: str, how: str) -> Provided:
    """zkplan's own server, without the version that it reports, which is that of the protocol."""
    return Provided(hosts, "of zkplan's own,", how, "Server")


@contextmanager
def client_on_own_root(settings: Settings, name: str) -> Iterator[tuple[Client, Settings]]:
    """A client on a new root, `name` with a suffix, and its settings. The root is removed at the
    end.

    So no other worker takes its tasks, and its workers take no tasks of others. Without a secret in
    `settings` they get a new one.
    """
    root = f"{name}-{uuid.uuid4().hex[:8]}"
    settings = replace(with_password(settings), root=root)
    if not (settings.secret or settings.secret_files):
        settings = replace(settings, secret=secrets.token_hex(32).encode())
    with connect_with(settings) as client:
        try:
            yield client, settings
        finally:
            try:
                remove_tree(client.transport.client, root)
            except Exception as error:  # must not hide the error that ended the run
                logger.warning("could not remove %s from ZooKeeper: %s", root, error)


class NoZooKeeper(RuntimeError):
    """There is no ZooKeeper for tests. The message explains how to get one."""


@contextmanager
def provided_zookeeper(tick_time_ms: int = 2000) -> Iterator[Provided]:
    """A ZooKeeper for the block: ZKPLAN_TEST_HOSTS, else Java and jars, else Docker.

    A server started for the block ends after it. `tick_time_ms` applies to a server in Java, where
    a session ends at the first tick after its time-out. Raises NoZooKeeper if there is none, and
    ServerDidNotStart if one is installed but does not serve.
    """
    hosts = os.environ.get(HOSTS_VARIABLE)
    if hosts:
        yield Provided(hosts, server_version(hosts), f"given in {HOSTS_VARIABLE}")
    elif find_zookeeper() is not None:
        with ZooKeeperServer(tick_time_ms=tick_time_ms) as server:
            yield Provided(server.hosts, server.version, "started here, with Java")
    elif docker_answers():
        with _container() as hosts:
            yield Provided(hosts, server_version(hosts), f"container {CONTAINER_IMAGE}")
    else:
        raise NoZooKeeper(NO_ZOOKEEPER)


@contextmanager
def provided_embedded(tick_time_ms: int = 500) -> Iterator[Provided]:
    """zkplan's own server in a process of its own, for the block.

    Acknowledged writes survive kill -9, but not a power cut, because the server never waits for the
    disk.
    """
    with EmbeddedServerProcess(tick_time_ms=tick_time_ms, durability="fast") as server:
        yield of_our_own(server.hosts, "started here, with Python")


def docker_answers() -> bool:
    """Whether testcontainers is installed and a Docker engine answers."""
    try:
        import docker
        import testcontainers.core.container  # noqa: F401
    except ImportError:
        return False
    try:
        client = docker.from_env()
        try:
            return bool(client.ping())
        finally:
            client.close()
    except docker.errors.DockerException:
        return False


@contextmanager
def _container() -> Iterator[str]:
    from testcontainers.core.container import DockerContainer

    container = (
        DockerContainer(CONTAINER_IMAGE)
        .with_env("ZOO_4LW_COMMANDS_WHITELIST", "srvr")
        .with_env("ZOO_MAX_CLIENT_CNXNS", "0")
        .with_env("ZOO_CFG_EXTRA", "minSessionTimeout=1000")
        .with_exposed_ports(2181)
    )
    with container:
        hosts = f"{container.get_container_host_ip()}:{container.get_exposed_port(2181)}"
        deadline = time.monotonic() + _CONTAINER_DEADLINE_S
        while "Mode" not in server_status(hosts):
            if time.monotonic() > deadline:
                raise ServerDidNotStart(f"{CONTAINER_IMAGE} at {hosts} served no request in time")
            time.sleep(0.1)
        yield hosts
