"""Servers that are closed in the ways of a company, each with the profile that reaches it."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.chaos.certificates import Authority, secure
from tests.chaos.cluster.servers import one_server, skip_without
from tests.crash.server import not_available
from zkplan.testing.loopback import LOOPBACK, free_port
from zkplan.testing.server_process import ServerProcess
from zkplan.testing.servers import ZooKeeperEnsemble, ZooKeeperServer

from .support import wait_until

#: Must stand in no command line, environment, log or output.
PASSWORD, KEY = "hush-Kq7pd3", bytes(range(0xA0, 0xC0)).hex()
ROOT = "/team/zkplan"
_TICK_MS = 200


class Secured(NamedTuple):
    """A server, the text of a file of profiles for it, and options of kazoo for an outsider."""

    hosts: str
    profiles: str
    outsider: Mapping[str, Any] = {}

    def write(self, folder: Path) -> Path:
        """Write the file, as its owner would."""
        for name, text in (("password", PASSWORD), ("key", KEY), ("zkplan.toml", self.profiles)):
            (folder / name).touch(0o600)
            (folder / name).write_text(f"{text}\n")
        return folder / "zkplan.toml"


def profile(hosts: str, *lines: str) -> str:
    head = ["[profiles.team]", f'hosts = "{hosts}"', f'root = "{ROOT}"', 'secret-files = ["key"]']
    return "\n".join(['default = "team"', "", *head, *lines])


_LOGIN = ("login.user = 'team'", "login.file = 'password'")


@contextmanager
def digest(kind: str, _: Path) -> Iterator[Secured]:
    with one_server(kind, tick_time_ms=_TICK_MS) as server:
        yield Secured(server.hosts, profile(server.hosts, *_LOGIN))


@contextmanager
def ensemble(_: str, folder: Path) -> Iterator[Secured]:
    with ZooKeeperEnsemble(tick_time_ms=_TICK_MS) as servers:
        yield Secured(servers.hosts, profile(servers.hosts, *_LOGIN))


@contextmanager
def tls(_: str, folder: Path) -> Iterator[Secured]:
    """TLS, where the certificate of the client is its login."""
    if shutil.which("openssl") is None:
        not_available("there is no openssl to make a certificate with")
    port, authority = free_port(), Authority(folder, "ours")
    with tls_server(authority, port, "need"):
        lines = (f"tls.ca = '{authority.certificate}'",)
        own = f"tls.certificate = '{authority.sign_for_a_client('team')}'"
        other = str(authority.sign_for_a_client("other"))
        outsider = {"use_ssl": True, "ca": str(authority.certificate), "certfile": other}
        hosts = f"{LOOPBACK}:{port}"
        yield Secured(hosts, profile(hosts, *lines, own), outsider | {"keyfile": other})


@contextmanager
def tls_server(
    authority: Authority, port: int, client_auth: str = "none"
) -> Iterator[ServerProcess]:
    config = secure(authority, port, client_auth)
    with ZooKeeperServer(tick_time_ms=_TICK_MS, config=config) as server:
        wait_for_port(port)
        yield server


def wait_for_port(port: int) -> None:
    """Wait until that port takes connections: ZooKeeper opens the one for TLS after the other."""

    def takes_connections() -> bool:
        try:
            socket.create_connection((LOOPBACK, port), timeout=1.0).close()
        except OSError:
            return False
        return True

    wait_until(takes_connections, f"port {port} takes connections")


@contextmanager
def sasl(_: str, folder: Path) -> Iterator[Secured]:
    jaas = folder / "jaas.conf"
    module = "org.apache.zookeeper.server.auth.DigestLoginModule"
    jaas.write_text(f'Server {{ {module} required user_team="{PASSWORD}"; }};\n')
    provider = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
    server = ZooKeeperServer(
        tick_time_ms=_TICK_MS,
        config={"authProvider.1": provider},
        jvm_options=[f"-Djava.security.auth.login.config={jaas}"],
    )
    with server:
        lines = ("login.type = 'sasl-digest-md5'", *_LOGIN)
        yield Secured(server.hosts, profile(server.hosts, *lines))


_SETUPS: dict[str, Callable[[str, Path], Any]] = {
    "digest": digest,
    "embedded": digest,
    "ensemble": ensemble,
    "tls": tls,
    "sasl": sasl,
}
SETUPS = list(_SETUPS)


@contextmanager
def secured(name: str, folder: Path) -> Iterator[Secured]:
    """That set-up. Skips the test, or in CI fails it, where it cannot be had."""
    kind = "embedded" if name == "embedded" else "zookeeper"
    skip_without(kind)
    with _SETUPS[name](kind, folder) as made:
        yield made
