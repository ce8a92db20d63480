"""Provide a ZooKeeper for tests and runs: a given one, one started here, or a container."""

from __future__ import annotations

import os
import secrets
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from zkplan.client import Client, connect_with
from zkplan.settings import Settings
from zkplan.settings.login import with_password
from zkplan.testing.embedded_process import EmbeddedServerProcess
from zkplan.testing.java import NO_JAVA, find_zookeeper
from zkplan.testing.loopback import server_status, server_version
from zkplan.testing.server_process import ServerDidNotStart
from zkplan.testing.servers import ZooKeeperServer
from zkplan.testing.znodes import remove_tree

from ..log import get_logger

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
    #: For people: "ZooKeeper", or "Server" where it is zkplan's own.
    what: str = "ZooKeeper"

    def __str__(self) -> str:
        return f"{self.what} {self.version} at {self.hosts} ({self.how})"


def of_our_own(hosts: str, how: str) -> Provided:
    """A server of zkplan's own: the version that it tells is only that of its protocol."""
    return Provided(hosts, "of zkplan's own,", how, "Server")


@contextmanager
def client_on_own_root(settings: Settings, name: str) -> Iterator[tuple[Client, Settings]]:
    """A client on a new root, `name` with an ending, which is removed at the end; and its settings.

    No other worker takes its tasks, and its workers take those of no other user of the machine.
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
            except Exception as error:  # Whatever the error is, it must not hide how the run ended.
                logger.warning("could not remove %s from ZooKeeper: %s", root, error)


class NoZooKeeper(RuntimeError):
    """There is no ZooKeeper for tests. The message says how to get one."""


@contextmanager
def provided_zookeeper(tick_time_ms: int = 2000) -> Iterator[Provided]:
    """A ZooKeeper for the length of the block: ZKPLAN_TEST_HOSTS, else Java and jars, else Docker.

    One that was started for the block is ended after it; one of Java has ticks of that length, and
    a session ends at the first tick after its time-out. Raises NoZooKeeper where there is none and
    ServerDidNotStart where one is installed but does not serve.
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
    """zkplan's own server in a process of its own, for the length of the block.

    What it has answered survives kill -9, but no power cut: it never waits for the disk.
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
