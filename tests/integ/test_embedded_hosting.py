"""An embedded server in a thread: interrupted at its start, ending, started again."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.tools.support import plain_client, wait_until
from zkplan import embedded
from zkplan.embedded import EmbeddedServer, address_of
from zkplan.embedded.server import Server
from zkplan.embedded.storage import Storage


def serving_threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "zkplan-embedded"]


def owner_of(server: EmbeddedServer) -> AbstractContextManager[KazooClient]:
    return plain_client(server.hosts, auth_data=[("digest", server.login)])


@pytest.mark.usefixtures("ctrl_c")
def test_a_start_interrupted_by_ctrl_c_leaves_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loading, go_on = threading.Event(), threading.Event()
    others = set(serving_threads())

    class Slow(Server):
        async def start(self, *arguments: Any) -> None:
            loading.set()
            assert go_on.wait(30)
            await super().start(*arguments)

    def interrupt() -> None:
        assert loading.wait(30)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(embedded, "Server", Slow)
    server = EmbeddedServer(tmp_path)
    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            server.start()
    finally:
        go_on.set()
        interrupter.join()
    wait_until(lambda: set(serving_threads()) <= others, "it has ended by itself")
    assert address_of(tmp_path) is None
    with server, owner_of(server) as client:
        assert client.exists("/zookeeper")


def test_a_server_that_is_stopping_is_not_running_and_can_start_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closing, go_on = threading.Event(), threading.Event()
    close = Storage.close

    def close_slowly(storage: Storage) -> None:
        closing.set()
        assert go_on.wait(30)
        close(storage)

    server = EmbeddedServer(tmp_path).start()
    monkeypatch.setattr(Storage, "close", close_slowly)
    # As at a failure of the disk: it ends without being told to.
    server._stop_soon()
    assert closing.wait(30)
    assert not server.is_running()
    with ThreadPoolExecutor() as pool:
        again = pool.submit(server.start)
        assert not again.done()
        go_on.set()
        again.result(30)
    with server, owner_of(server) as client:
        assert client.exists("/zookeeper")
    assert server.fatal is None
    assert not server.is_running()


def test_a_server_whose_stop_failed_can_start_again_on_its_folder(tmp_path: Path) -> None:
    server = EmbeddedServer(tmp_path).start()
    address = tmp_path / "address"
    address.unlink()
    address.mkdir()  # so that it cannot be removed as a file
    server.stop()
    address.rmdir()
    with server:
        assert address_of(tmp_path) == server.hosts


def test_clients_find_a_server_on_ipv6(tmp_path: Path) -> None:
    try:
        server = EmbeddedServer(tmp_path, host="::1").start()
    except OSError:
        pytest.skip("this machine has no IPv6")
    with server:
        assert address_of(tmp_path) == server.hosts
        with owner_of(server) as client:
            assert client.exists("/zookeeper")


def test_start_may_be_called_from_several_threads(tmp_path: Path) -> None:
    server = EmbeddedServer(tmp_path)
    with ThreadPoolExecutor() as pool:
        started = [pool.submit(server.start) for _ in range(4)]
        assert {one.result(30).hosts for one in started} == {server.hosts}
    server.stop()
    assert not server.is_running()
