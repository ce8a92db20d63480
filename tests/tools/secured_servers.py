"""Servers that are closed in the ways of a company, each with the profile that reaches it."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from zkplan.embedded import EmbeddedServer, server_tls
from zkplan.testing.server_process import LOOPBACK, ServerProcess, free_port
from zkplan.testing.servers import ZooKeeperEnsemble, ZooKeeperServer

from .available import not_available, one_server, skip_without
from .certificates import Authority, secure
from .support import wait_until

#: Must stand in no command line, environment, log or output.
PASSWORD, KEY = "hush-Kq7pd3", bytes(range(0xA0, 0xC0)).hex()
ROOT = "/team/zkplan"
_TICK_MS = 200
_MALLORY: Mapping[str, Any] = {"auth_data": [("digest", "mallory:guess")]}


class Secured(NamedTuple):
    """A server, the text of a file of profiles for it, and who is not let in, as options of kazoo.

    `outsiders` can connect, and `kept_out` cannot even do that. A server that `is_closed` refuses
    each request of theirs, any other lets them see whether a znode exists. `restart` kills it (of
    an ensemble the leader) and starts it again; None where it runs in this process.
    """

    hosts: str
    profiles: str
    outsiders: Sequence[Mapping[str, Any]] = ({}, _MALLORY)
    kept_out: Sequence[Mapping[str, Any]] = ()
    is_closed: bool = False
    restart: Callable[[], None] | None = None

    @property
    def gives_login(self) -> bool:
        """Whether the profile has a login, or a certificate in place of one."""
        return "login." in self.profiles or "tls.certificate" in self.profiles

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


def _restarting(server: ServerProcess, port: int = 0) -> Callable[[], None]:
    def restart() -> None:
        server.kill()
        server.start()
        if port:
            wait_for_port(port)

    return restart


@contextmanager
def digest(kind: str, _: Path) -> Iterator[Secured]:
    with one_server(kind, tick_time_ms=_TICK_MS) as server:
        text = profile(server.hosts, *_LOGIN)
        yield Secured(server.hosts, text, restart=_restarting(server))


@contextmanager
def closed(kind: str, _: Path) -> Iterator[Secured]:
    """What `zkplan server` is by default: its owner's programs find its login by themselves."""
    with one_server(kind, tick_time_ms=_TICK_MS, is_open=False) as server:
        text = profile(server.hosts)
        yield Secured(server.hosts, text, is_closed=True, restart=_restarting(server))


@contextmanager
def ensemble(_: str, folder: Path) -> Iterator[Secured]:
    with ZooKeeperEnsemble(tick_time_ms=_TICK_MS) as servers:

        def restart() -> None:
            leader = servers.leader()
            leader.kill()
            leader.start()

        yield Secured(servers.hosts, profile(servers.hosts, *_LOGIN), restart=restart)


class _Certificates:
    """An authority, one certificate that it has signed for `team`, and one for another client."""

    def __init__(self, folder: Path) -> None:
        if shutil.which("openssl") is None:
            not_available("there is no openssl to make a certificate with")
        self.authority = Authority(folder, "ours")
        self.trusting = {"use_ssl": True, "ca": str(self.authority.certificate)}
        other = str(self.authority.sign_for_a_client("other"))
        self.of_another = {**self.trusting, "certfile": other, "keyfile": other}
        self.ca = f"tls.ca = '{self.authority.certificate}'"
        self.own = f"tls.certificate = '{self.authority.sign_for_a_client('team')}'"


@contextmanager
def tls(_: str, folder: Path) -> Iterator[Secured]:
    """TLS, where the certificate of the client is its login."""
    made, port = _Certificates(folder), free_port()
    with tls_server(made.authority, port, "need") as server:
        hosts = f"{LOOPBACK}:{port}"
        yield Secured(
            hosts,
            profile(hosts, made.ca, made.own),
            outsiders=[made.of_another, {**made.of_another, **_MALLORY}],
            kept_out=[made.trusting, {}],
            restart=_restarting(server, port),
        )


@contextmanager
def digest_tls(_: str, folder: Path) -> Iterator[Secured]:
    """TLS, where clients need no certificate, and log in with a password."""
    made, port = _Certificates(folder), free_port()
    with tls_server(made.authority, port) as server:
        hosts = f"{LOOPBACK}:{port}"
        yield Secured(
            hosts,
            profile(hosts, made.ca, *_LOGIN),
            outsiders=[made.trusting, {**made.trusting, **_MALLORY}],
            kept_out=[{}],
            restart=_restarting(server, port),
        )


@contextmanager
def ensemble_tls(_: str, folder: Path) -> Iterator[Secured]:
    """Three servers which clients reach over TLS alone, with a certificate and a password."""
    made, ports = _Certificates(folder), [free_port() for _ in range(3)]
    config = [secure(made.authority, port, "need") for port in ports]
    with ZooKeeperEnsemble(tick_time_ms=_TICK_MS, config=lambda number: config[number - 1]):
        for port in ports:
            wait_for_port(port)
        hosts = ",".join(f"{LOOPBACK}:{port}" for port in ports)
        text = profile(hosts, made.ca, made.own, *_LOGIN)
        yield Secured(hosts, text, [made.of_another], [made.trusting, {}])


@contextmanager
def embedded_tls(_: str, folder: Path) -> Iterator[Secured]:
    """The embedded server as other machines reach it: with a certificate and a password."""
    made = _Certificates(folder)
    authority = made.authority
    authority.sign_for_the_server()
    given = server_tls(authority.server_certificate, authority.server_key, authority.certificate)
    with EmbeddedServer(folder / "data", tls=given, logins=[f"team:{PASSWORD}"]) as server:
        yield Secured(
            server.hosts,
            profile(server.hosts, made.ca, made.own, *_LOGIN),
            outsiders=[made.of_another, {**made.of_another, **_MALLORY}],
            kept_out=[made.trusting, {}],
            is_closed=True,
        )


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
    users = f'user_team="{PASSWORD}" user_other="guess"'
    jaas.write_text(f"Server {{ {module} required {users}; }};\n")
    provider = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
    server = ZooKeeperServer(
        tick_time_ms=_TICK_MS,
        config={"authProvider.1": provider},
        jvm_options=[f"-Djava.security.auth.login.config={jaas}"],
    )
    with server:
        lines = ("login.type = 'sasl-digest-md5'", *_LOGIN)
        other = {"mechanism": "DIGEST-MD5", "username": "other", "password": "guess"}
        yield Secured(
            server.hosts,
            profile(server.hosts, *lines),
            outsiders=[{}, _MALLORY, {"sasl_options": other}],
            restart=_restarting(server),
        )


#: Each with the kind of its server.
_SETUPS: dict[str, tuple[str, Callable[[str, Path], AbstractContextManager[Secured]]]] = {
    "digest": ("zookeeper", digest),
    "digest-tls": ("zookeeper", digest_tls),
    "embedded": ("embedded", digest),
    "embedded-closed": ("embedded", closed),
    "embedded-tls": ("embedded", embedded_tls),
    "ensemble": ("ensemble", ensemble),
    "ensemble-tls": ("ensemble", ensemble_tls),
    "tls": ("zookeeper", tls),
    "sasl": ("zookeeper", sasl),
}
SETUPS = list(_SETUPS)


@contextmanager
def secured(name: str, folder: Path, wanted: str = "both") -> Iterator[Secured]:
    """That set-up, where it is of the `wanted` kind of server (`--zookeeper-kind`).

    Skips the test where it is not, and where it cannot be had. In CI the latter fails it.
    """
    kind, made_by = _SETUPS[name]
    if wanted not in ("both", "marked", kind):
        pytest.skip(f"only {wanted} is wanted")
    skip_without(kind)
    with made_by(kind, folder) as made:
        yield made
