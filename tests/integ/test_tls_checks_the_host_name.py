"""Over TLS a client talks only to a server whose certificate names the requested host and is signed
by a trusted authority.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import shutil
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkplan
from tests.tools.available import not_available
from tests.tools.certificates import Authority
from tests.tools.support import WAIT_S, Here, wait_until
from zkplan import ZooKeeperUnavailable
from zkplan import transport as rollback

pytestmark = [
    # kazoo leaves a TLS socket open whenever a handshake fails.
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.usefixtures("no_socket_is_left"),
]


@pytest.fixture
def no_socket_is_left() -> Iterator[None]:
    yield
    gc.collect()


class TlsProxy:
    """Speaks TLS at a port of its own, and forwards to `hosts` in plain text."""

    def __init__(self, hosts: str, authority: Authority, address: str = "127.0.0.1") -> None:
        self._target = ("127.0.0.1", int(hosts.partition("/")[0].rpartition(":")[2]))
        self._authority = authority
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._listener = socket.create_server((address, 0), family=family)
        self.port = self._listener.getsockname()[1]
        self.connections: list[socket.socket] = []
        #: Bytes that were received in plain text, over all connections.
        self.received = 0

    def __enter__(self) -> TlsProxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """Break all connections."""
        while self.connections:
            with contextlib.suppress(OSError):
                self.connections.pop().shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the end
            while True:
                plain, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=[plain], daemon=True).start()

    def _serve(self, plain: socket.socket) -> None:
        # With each connection: the certificate may be another one by now. Key and certificate are
        # one file: read from two, they may belong to different ones.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._authority.server_identity)
        with plain, contextlib.suppress(OSError):
            plain.settimeout(WAIT_S)
            with (
                context.wrap_socket(plain, server_side=True) as client,
                socket.create_connection(self._target) as server,
            ):
                self.connections += [client, server]
                back = threading.Thread(target=self._copy, args=[server, client], daemon=True)
                back.start()
                self._copy(client, server)
                back.join(WAIT_S)

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if isinstance(source, ssl.SSLSocket):
                    self.received += len(data)
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    if shutil.which("openssl") is None:
        not_available("there is no openssl to make a certificate with")
    return Authority(tmp_path_factory.mktemp("tls"), "ours")


@pytest.fixture
def proxy(zookeeper_hosts: str, authority: Authority) -> Iterator[TlsProxy]:
    with TlsProxy(zookeeper_hosts, authority) as proxy:
        yield proxy


@pytest.fixture
def options(zkplan_root: str, authority: Authority) -> dict[str, Any]:
    return {"root": zkplan_root, "use_ssl": True, "ca": str(authority.certificate)}


@pytest.mark.parametrize(
    ("host", "names"),
    [
        ("127.0.0.1", "IP:127.0.0.1"),
        ("localhost", "DNS:localhost"),
        ("localhost", "DNS:zk1,DNS:localhost,IP:10.0.0.1"),
    ],
)
def test_a_server_whose_certificate_names_the_host_is_used(
    host: str, names: str, proxy: TlsProxy, authority: Authority, options: dict[str, Any]
) -> None:
    authority.sign_for_the_server(names=names)
    with zkplan.connect(f"{host}:{proxy.port}", **options) as client:
        assert client.plans() == []
    assert proxy.received > 0


def test_an_ipv6_address_is_checked_like_a_host_name(
    zookeeper_hosts: str, authority: Authority, options: dict[str, Any]
) -> None:
    authority.sign_for_the_server(names="IP:::1")
    try:
        proxy = TlsProxy(zookeeper_hosts, authority, "::1")
    except OSError:
        pytest.skip("this machine has no IPv6 on loopback")
    with proxy:
        with zkplan.connect(f"[::1]:{proxy.port}", **options) as client:
            assert client.plans() == []
            assert client.transport.hosts == f"[::1]:{proxy.port}"
        authority.sign_for_the_server(names="IP:::2")
        with pytest.raises(ZooKeeperUnavailable, match="not for ::1"):
            zkplan.connect(f"[::1]:{proxy.port}", connect_timeout=1.0, **options)


@pytest.mark.parametrize(
    ("host", "names", "told"),
    [
        ("localhost", "DNS:zk1,IP:127.0.0.1", r"is for zk1, 127\.0\.0\.1, not for localhost"),
        ("127.0.0.1", "DNS:localhost", r"is for localhost, not for 127\.0\.0\.1"),
        ("127.0.0.1", "IP:127.0.0.2", r"is for 127\.0\.0\.2, not for 127\.0\.0\.1"),
        (
            "127.0.0.1",
            "",
            r"is for 127\.0\.0\.1 \(the common name, without a subjectAlt.*\), not for",
        ),
    ],
)
def test_a_server_whose_certificate_names_other_hosts_gets_no_data(
    host: str, names: str, told: str, proxy: TlsProxy, authority: Authority, options: dict[str, Any]
) -> None:
    authority.sign_for_the_server(names=names)
    with pytest.raises(ZooKeeperUnavailable, match=f"{told}.*subjectAltName.*verify_hostname"):
        zkplan.connect(f"{host}:{proxy.port}", connect_timeout=1.0, **options)
    assert proxy.received == 0
    with zkplan.connect(f"{host}:{proxy.port}", verify_hostname=False, **options) as client:
        assert client.plans() == []


def test_later_connections_and_later_sessions_are_also_checked(
    proxy: TlsProxy,
    authority: Authority,
    options: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who is cut off for a session time-out asks in a second session whether history was lost."""
    caplog.set_level(logging.DEBUG, "zkplan.transport")
    monkeypatch.setattr(rollback, "_CONNECT_S", 1.0)
    authority.sign_for_the_server()
    options |= {"session_timeout": 2.0, "patience": WAIT_S}
    with zkplan.connect(f"127.0.0.1:{proxy.port}", **options) as client:
        assert client.plans() == []
        authority.sign_for_the_server(names="DNS:zk1")
        before = proxy.received
        proxy.cut()
        wait_until(lambda: "is for zk1" in client.transport.client.logger.complaint, "it is told")
        wait_until(lambda: "no answer to a new session" in caplog.text, "it has asked")
        assert proxy.received == before
        authority.sign_for_the_server()
        assert client.plans() == []


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"check_hostname": False}, "verify_hostname=False"),
        ({"verify_certs": False}, "verify_hostname=False too"),
    ],
)
def test_no_other_option_turns_the_check_off(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(TypeError, match=told):
        zkplan.connect("127.0.0.1:1", use_ssl=True, connect_timeout=0.1, **wrong)


@pytest.mark.parametrize(
    ("lines", "trusts"),
    [
        (["tls.ca = '{ours}'"], False),
        (["tls.system-ca = true"], True),
        (["tls.ca = '{ours}'", "tls.system-ca = true"], True),
        (["tls.ca = '{theirs}'"], True),
    ],
)
def test_system_authorities_are_trusted_only_if_a_profile_says_so(
    lines: list[str],
    trusts: bool,
    proxy: TlsProxy,
    authority: Authority,
    here: Here,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """kazoo alone would trust them beside `ca`. Here the system trusts who signs for the server."""
    authority.sign_for_the_server()
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))
    ours = Authority(tmp_path, "another").certificate
    text = "\n".join(lines).format(ours=ours, theirs=authority.certificate)
    (tmp_path / "zkplan.toml").write_text(
        f"[profiles.p]\nhosts = '127.0.0.1:{proxy.port}'\nroot = '{here[1]}'\n{text}\n"
    )
    monkeypatch.setenv("ZKPLAN_CONFIG", str(tmp_path / "zkplan.toml"))
    if trusts:
        with zkplan.connect(profile="p", connect_timeout=WAIT_S) as client:
            assert client.plans() == []
        return
    with pytest.raises(ZooKeeperUnavailable, match="certificate verify failed"):
        zkplan.connect(profile="p", connect_timeout=1.0)
    assert proxy.received == 0


def test_the_system_does_not_trust_every_authority(
    proxy: TlsProxy, authority: Authority, zkplan_root: str
) -> None:
    authority.sign_for_the_server()
    options: dict[str, Any] = {"use_ssl": True, "system_ca": True, "connect_timeout": 1.0}
    with pytest.raises(ZooKeeperUnavailable, match="certificate verify failed"):
        zkplan.connect(f"127.0.0.1:{proxy.port}", zkplan_root, **options)
    assert proxy.received == 0


def test_without_verification_a_server_signed_by_any_authority_is_used(
    proxy: TlsProxy, authority: Authority, zkplan_root: str, tmp_path: Path
) -> None:
    authority.sign_for_the_server(names="DNS:zk1")
    options: dict[str, Any] = {"use_ssl": True, "verify_certs": False, "verify_hostname": False}
    with zkplan.connect(f"127.0.0.1:{proxy.port}", zkplan_root, **options) as client:
        assert client.plans() == []


def test_the_host_name_check_of_a_given_client_is_set_on_that_client(znodes: KazooClient) -> None:
    with pytest.raises(TypeError, match="verify_hostname: set this on the KazooClient"):
        zkplan.connect(znodes, verify_hostname=False)
