"""Starts and stops: what a server has ready when it listens, and that it releases everything."""

from __future__ import annotations

import asyncio
import gc
import resource
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.tools import requests as ask
from tests.tools.session import Client
from tests.tools.support import wait_until
from zkplan.embedded.connection import listening_socket
from zkplan.embedded.server import Server
from zkplan.embedded.storage import Storage
from zkplan.embedded.tree import Tree

from .planting import wrap
from .servers import ServerProcess, serving

TIMEOUT_MS = 400


@pytest.mark.parametrize(("owner", "name"), [(Tree, "restore"), (Storage, "publish_address")])
def test_a_slow_start_of_the_server_expires_no_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, name: str
) -> None:
    def slowly(real: Any, *args: Any) -> None:
        began = time.monotonic()
        real(*args)
        wait_until(lambda: time.monotonic() > began + 2 * TIMEOUT_MS / 1000, "it took long")

    server = serving(tmp_path)
    with server:
        before = Client(server.hosts, timeout_ms=TIMEOUT_MS)
    wrap(monkeypatch, owner, name, slowly)
    with server:
        started = time.monotonic()
        wait_until(lambda: time.monotonic() > started + 0.1, "it has looked whose time is over")
        after = before.again(server.hosts)
        assert after.session == before.session
        after.pinged()


def test_no_garbage_collection_runs_while_a_tree_is_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collecting: list[bool] = []

    def restore(real: Any, *args: Any) -> None:
        collecting.append(gc.isenabled())
        real(*args)

    server = serving(tmp_path)
    with server, Client(server.hosts) as client:
        client.done(ask.create("/a"))
    wrap(monkeypatch, Tree, "restore", restore)
    with server:
        assert gc.isenabled()
    assert collecting == [False]


@pytest.mark.parametrize(
    ("owner", "name"), [(Storage, "publish_address"), (Server, "_schedule_sweep")]
)
def test_a_failed_start_releases_the_folder_and_the_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, name: str
) -> None:
    def fail(*_: Any) -> None:
        raise OSError("No space left on device")

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = serving(tmp_path, port=port)
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, fail)
        with pytest.raises(OSError, match="No space"):
            server.start()
    with serving(tmp_path, port=port) as other, Client(other.hosts) as client:
        client.pinged()


def test_a_failed_stop_releases_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("unforeseen")

    server = serving(tmp_path).start()
    with monkeypatch.context() as patch:
        patch.setattr(Server, "_flush", fail)
        server.stop()
    with serving(tmp_path) as other, Client(other.hosts) as client:
        client.pinged()


def test_a_host_with_several_addresses_gets_one_listener(monkeypatch: pytest.MonkeyPatch) -> None:
    def two(*_: Any, **__: Any) -> list[Any]:
        kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
        return [(*kind, ("192.0.2.1", 0)), (*kind, ("127.0.0.2", 0)), (*kind, ("127.0.0.1", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", two)
    server = serving(host="several")
    with server:
        assert server._server is not None
        assert server._server._listener is not None
        assert len(server._server._listener.sockets) == 1
        assert server._server.host == "127.0.0.2"  # the first that this machine has


def test_answers_are_sent_without_delay() -> None:
    with serving() as server, Client(server.hosts) as client:
        client.pinged()
        assert server._server is not None
        (one,) = server._server._connections.values()
        accepted = one.transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


def test_an_address_in_use_is_refused_and_not_replaced_by_another() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="in use"):
            asyncio.run(listening_socket("127.0.0.1", port, 8))


def test_a_lack_of_file_descriptors_is_logged_rarely_and_survived() -> None:
    with ServerProcess() as server, Client(server.hosts) as client:
        client.pinged()
        pid = server.pid
        assert pid is not None
        hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]
        open_now = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (open_now + 8, hard))
        host, _, port = server.hosts.rpartition(":")
        waiting = [socket.create_connection((host, int(port))) for _ in range(12)]
        wait_until(lambda: "Too many open files" in server.errors(), "it is told")
        began = time.monotonic()
        wait_until(lambda: time.monotonic() > began + 1.5, "it could be told often")
        client.pinged()
        told = server.errors()
        assert "ulimit -n" in told
        assert 1 <= told.count("Too many open files") <= 4
        for each in waiting:
            each.close()
        with Client(server.hosts) as after:
            after.pinged()


def test_the_descriptor_limit_is_raised_to_fit_the_allowed_connections() -> None:
    code = (
        "import resource as r; from zkplan.embedded.connection import allow_descriptors as allow\n"
        "hard = r.getrlimit(r.RLIMIT_NOFILE)[1]\n"
        "r.setrlimit(r.RLIMIT_NOFILE, (100, hard))\n"
        "allow(200); assert r.getrlimit(r.RLIMIT_NOFILE) == (264, hard)\n"
        "allow(20); assert r.getrlimit(r.RLIMIT_NOFILE) == (264, hard)\n"
        "r.setrlimit(r.RLIMIT_NOFILE, (264, 300))\n"
        "allow(5000); assert r.getrlimit(r.RLIMIT_NOFILE) == (300, 300)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
