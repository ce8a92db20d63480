"""The embedded server over TLS admits a client with a trusted certificate and a login."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

import zkplan
from tests.tools.certificates import Authority
from tests.tools.support import working
from zkplan.embedded import EmbeddedServer, server_tls
from zkplan.errors import InvalidSettings, ZkplanError, ZooKeeperUnavailable

pytestmark = [
    pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make certificates"),
    # kazoo leaves a TLS socket open whenever connecting fails.
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def test_plans_run_over_tls_only_for_clients_that_the_server_accepts(tmp_path: Path) -> None:
    ours, theirs = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    for authority in (ours, theirs):
        authority.sign_for_the_server()
    tls = server_tls(ours.server_certificate, ours.server_key, ours.certificate)
    with EmbeddedServer(tls=tls, logins=["alice:wonder"]) as server:
        good: dict[str, Any] = {
            "use_ssl": True,
            "ca": str(ours.certificate),
            "certfile": str(ours.server_certificate),
            "keyfile": str(ours.server_key),
        }
        with (
            zkplan.connect(server.hosts, **good) as client,
            working(server.hosts, client.root, **good),
        ):
            with client.create_plan() as plan:
                sizes = [plan.add_task(len, ("x" * size,)) for size in (1, 30_000)]
            assert [size.result(timeout=30) for size in sizes] == [1, 30_000]
        alice = good | {"auth_data": [("digest", "alice:wonder")]}
        with zkplan.connect(server.hosts, "/alice", **alice) as client:
            client.create_plan("hers")
        for wrong in (
            {"ca": str(theirs.certificate)},
            {"certfile": str(theirs.server_certificate), "keyfile": str(theirs.server_key)},
            {"use_ssl": False},
        ):
            with pytest.raises((ZooKeeperUnavailable, ZkplanError)):
                zkplan.connect(server.hosts, connect_timeout=2, **good | wrong).close()
        with socket.create_connection((server.host, server.port), 5) as plain:
            plain.sendall(b"ruok" + b"\n" * 20)  # enough for the header of TLS
            assert b"imok" not in plain.recv(100)


@pytest.mark.parametrize("word", ["hush-1", "guess-1", ""], ids=["right", "wrong", "none"])
def test_a_profile_names_the_file_with_the_password_of_a_tls_key(
    word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = Authority(tmp_path, "ours")
    ours.sign_for_the_server()
    tls = server_tls(ours.server_certificate, ours.server_key, ours.certificate)
    own = ours.sign_for_a_client("alice", "hush-1")
    assert "ENCRYPTED" in own.read_text()
    lines = [f"tls.ca = '{ours.certificate}'", f"tls.certificate = '{own}'"]
    lines += ["login.user = 'alice'", "login.file = 'password'"]
    lines += ["tls.key-password-file = 'word'"] if word else []
    for name, text in (("password", "wonder"), ("word", word), ("zkplan.toml", "")):
        (tmp_path / name).touch(0o600)
        (tmp_path / name).write_text(f"{text}\n")
    with EmbeddedServer(tls=tls, logins=["alice:wonder"]) as server:
        text = "\n".join(["[profiles.p]", f"hosts = '{server.hosts}'", *lines])
        (tmp_path / "zkplan.toml").write_text(text)
        monkeypatch.setenv("ZKPLAN_CONFIG", str(tmp_path / "zkplan.toml"))
        if word == "hush-1":
            with zkplan.connect(profile="p") as client:
                client.create_plan("hers")
            return
        # Nobody is asked for it at a terminal: a worker may have none.
        told = "the TLS certificate or its key cannot be used"
        with pytest.raises(InvalidSettings, match=told) as caught:
            zkplan.connect(profile="p")
        assert not word or word not in str(caught.value)
