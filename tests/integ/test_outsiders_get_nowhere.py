"""A client without a login, or with another, can list, read, write, create and delete nothing."""

from __future__ import annotations

import gc
import multiprocessing
import os
import re
import socket
import threading
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE

import zkplan
from tests.tools.every_znode import every_kind, kinds_of, require_every_kind
from tests.tools.outsiders import (
    TRIES,
    TRIES_ON_A_CLOSED_SERVER,
    allowed,
    run_of_a_command,
    strangers,
)
from tests.tools.secured_servers import SETUPS, secured
from tests.tools.support import WAIT_S, plain_client, tree, wait_until, working
from zkplan.embedded import EmbeddedServer, announced
from zkplan.errors import ZkplanError
from zkplan.integrations.prometheus import Endpoint, RootCollector, WorkerCollector
from zkplan.testing.server_process import EmbeddedServerProcess
from zkplan.testing.servers import remove_tree
from zkplan.transport.access import owner_of_peer
from zkplan.views.root_access import close_root, root_access, workers_without_login

ALICE: dict[str, Any] = {"auth_data": [("digest", "alice:wonder")]}
NOBODY = 65_534
#: Set-ups that a test of their own, which runs with every change, tries here.
HERE_TOO = ("digest", "embedded", "embedded-closed")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")


@pytest.fixture
def zkplan_root(zookeeper_hosts: str) -> Iterator[str]:
    """As the plugin's, but its znodes may be ALICE's alone."""
    root = f"/t-{uuid.uuid4().hex}"
    yield root
    with plain_client(zookeeper_hosts, **ALICE) as owner:
        remove_tree(owner, root)


def test_a_znode_that_the_protocol_does_not_name_fails_these_tests() -> None:
    """So a new kind of znode fails the tests below, until they make one and try it."""
    paths = ["/claims/lease-30000.7f", "/claims/host-1-7f", "/plan-0000000004/new"]
    kinds = ("/claims/lease-MILLISECONDS.RANDOM", "/claims/ID", "?")
    assert kinds_of(paths) == {kind: [path] for kind, path in zip(kinds, paths, strict=True)}
    with pytest.raises(AssertionError):
        require_every_kind(paths[:2])


@pytest.mark.timeout(120)
def test_a_login_closes_every_kind_of_znode_to_others(
    zookeeper_hosts: str, zkplan_root: str, tmp_path: Path
) -> None:
    """On a server that lets everybody in: the access lists alone refuse."""
    with (
        zkplan.connect(zookeeper_hosts, zkplan_root, **ALICE) as client,
        every_kind(client, tmp_path, zookeeper_hosts, ALICE) as root,
        plain_client(zookeeper_hosts, **ALICE) as owner,
        strangers(zookeeper_hosts) as others,
    ):
        below = tree(owner, root)
        require_every_kind(below)
        paths = sorted(f"{root}{path}" for path in below)
        for other in others:
            assert allowed(other, paths, TRIES) == []
        assert not root_access(client).is_open
        mallory: dict[str, Any] = {"auth_data": [("digest", "mallory:guess")]}
        for options in ({}, mallory):
            with (
                zkplan.connect(zookeeper_hosts, root, **options) as other_client,
                pytest.raises(ZkplanError),
            ):
                other_client.create_plan("of another")


@pytest.mark.timeout(120)
def test_a_closed_server_refuses_every_request_without_its_login(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with EmbeddedServer(tmp_path / "data") as server:
        with (
            zkplan.connect(server.hosts) as client,
            every_kind(client, tmp_path, server.hosts, {}) as root,
            plain_client(server.hosts, auth_data=[("digest", server.login)]) as owner,
            strangers(server.hosts) as others,
        ):
            below = tree(owner, root)
            require_every_kind(below)
            paths = ["/", "/zookeeper", *sorted(f"{root}{path}" for path in below)]
            for other in others:
                assert allowed(other, paths, TRIES_ON_A_CLOSED_SERVER) == []
            assert [znode for znode in tree(owner, "/zkplan") if "other" in znode] == []
        assert "which has not logged in: GetChildren '/'" in caplog.text
        for word in ("stat", "cons", "dump", "mntr", "conf", "wchs"):
            assert b"not in the whitelist" in ask(server, word)
        assert ask(server, "ruok") == b"imok"


def test_a_closed_server_shows_strangers_only_its_version(tmp_path: Path) -> None:
    with (
        EmbeddedServer(tmp_path / "data") as server,
        plain_client(server.hosts, auth_data=[("digest", server.login)]) as client,
    ):
        assert client.server_version() == (3, 8, 0)
        assert re.fullmatch(rb"Zookeeper version: 3\.8\.0-zkplan, [^\n]+\n", ask(server, "srvr"))
        envi = ask(server, "envi")
        assert re.fullmatch(rb"Environment:\nzookeeper\.version=3\.8\.0-zkplan, [^\n]+\n", envi)


@pytest.fixture
def no_socket_is_left() -> Iterator[None]:
    """kazoo leaves a socket open whenever a connection over TLS fails: it goes before the end."""
    yield
    gc.collect()


@pytest.mark.chaos  # each takes six seconds to half a minute
@pytest.mark.timeout(120)
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.usefixtures("no_socket_is_left")
@pytest.mark.parametrize("name", [each for each in SETUPS if each not in HERE_TOO])
def test_outsiders_of_a_secured_server_get_nowhere(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    """With TLS and client certificates, SASL, an ensemble: set up by a profile alone."""
    with secured(name, tmp_path, pytestconfig.getoption("--zookeeper-kind")) as server:
        monkeypatch.setenv("ZKPLAN_CONFIG", str(server.write(tmp_path)))
        tries = TRIES_ON_A_CLOSED_SERVER if server.is_closed else TRIES
        with (
            zkplan.connect(profile="team") as client,
            every_kind(client, tmp_path, server.hosts, {"profile": "team"}) as root,
        ):
            below = tree(client.transport.client, root)
            require_every_kind(below)
            paths = ["/team", *sorted(f"{root}{path}" for path in below)]
            for options in server.outsiders:
                with plain_client(server.hosts, **options) as other:
                    assert allowed(other, paths, tries) == []
            for options in server.kept_out:
                other = KazooClient(server.hosts, **options)
                with pytest.raises(other.handler.timeout_exception):
                    other.start(timeout=3)
                other.close()
            assert not root_access(client).is_open


def ask(server: EmbeddedServer, word: str) -> bytes:
    with socket.create_connection((server.host, server.port), 5) as connection:
        connection.sendall(word.encode())
        return b"".join(iter(lambda: connection.recv(4096), b""))


def as_nobody(attempt: Callable[..., str], *arguments: object) -> str:
    """What `attempt` returned in a process of another user of this machine."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    def run() -> None:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        theirs.send(attempt(*arguments))

    process = context.Process(target=run, daemon=True)
    process.start()
    try:
        assert ours.poll(30), "the other user got no answer"
        answer: str = ours.recv()
        return answer
    finally:
        process.kill()
        process.join()


def add_a_task(hosts: str, root: str, file: str) -> str:
    try:
        with zkplan.connect(hosts, root) as client, client.create_plan() as plan:
            plan.add_task(Path.touch, (Path(file),))
    except ZkplanError as error:
        return str(error)
    return "added"


@needs_root
def test_another_user_can_read_metrics_but_no_name_of_a_task(tmp_path: Path) -> None:
    """Whoever reaches the address may: the page on security says so."""
    with zkplan.local(workers=1) as client:
        worker = Endpoint(("127.0.0.1", 0), WorkerCollector(zkplan.Worker(client))).start()
        root = Endpoint(("127.0.0.1", 0), RootCollector(client)).start()
        with client.create_plan("a secret plan") as plan:
            plan.add_task(str, ("a secret value",), name="a secret task")
        plan.wait(timeout=WAIT_S)
        texts = [as_nobody(read_url, f"http://{each.address}/metrics") for each in (worker, root)]
        worker.close()
        root.close()
    assert "zkplan_worker" in texts[0]
    assert f'zkplan_root_up{{root="{client.paths.root}"}} 1.0' in texts[1]
    assert "secret" not in "".join(texts)


def read_url(url: str) -> str:
    with urllib.request.urlopen(url, timeout=20) as answer:
        return str(answer.read().decode())


@contextmanager
def served(by: str, folder: Path, request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """Hosts and root of a server of this user, closed as it is by default."""
    if by == "local":
        here = zkplan.local(workers=0)
        with here:
            yield here.hosts, here.root
    elif by == "embedded:":
        with zkplan.connect(f"embedded:{folder}/data") as client:
            client.prepare()
            yield client.transport.hosts, client.root
    elif by == "zkplan server":
        with EmbeddedServerProcess(data=folder, is_open=False) as server:
            yield server.hosts, "/zkplan"
    elif by == "pytest plugin":
        yield request.getfixturevalue("zk_server").hosts, "/of-this-test"
    else:
        with run_of_a_command(*by.split()) as (hosts, root, _):
            yield hosts, root


@pytest.mark.parametrize(
    "by",
    [
        *("local", "embedded:", "zkplan server", "pytest plugin"),
        pytest.param("demo --workers 1 --threads 1", marks=pytest.mark.slow),
        pytest.param("stress --workers 1 --tasks 60 --deps 1 --sleep 1", marks=pytest.mark.slow),
    ],
)
def test_a_stranger_gets_nowhere_on_any_server_of_this_machine(
    by: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Without a login, with another one, and, where the tests run as root, as another user."""
    foreign = tmp_path / "foreign"
    tmp_path.chmod(0o777)
    with (
        served(by, tmp_path, request) as (hosts, root),
        zkplan.connect(hosts, root) as client,
        strangers(hosts) as others,
    ):
        client.prepare()
        paths = ["/", root, *(f"{root}/{name}" for name in ("workers", "claims", "active"))]
        for other in others:
            assert allowed(other, paths, TRIES_ON_A_CLOSED_SERVER) == []
        if os.geteuid() == 0:
            host, _, port = hosts.rpartition(":")
            told = as_nobody(add_a_task, hosts, root, str(foreign))
            assert "an access list does not let this client read it" in told
            assert as_nobody(lambda: repr(announced(host, int(port)))) == "None"
        assert client.transport.client.exists(f"{root}/workers")
    assert not foreign.exists()


@needs_root
def test_a_process_that_takes_the_port_of_an_ended_server_gets_no_login(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = EmbeddedServerProcess(data=tmp_path, is_open=False)
    with server, zkplan.connect(server.hosts, session_timeout=4) as client:
        server.kill()
        assert as_nobody(listen, server.port) == "b''"
        wait_until(lambda: "listens at" in caplog.text, "who listens there is told")
        server.start()
        wait_until(lambda: client.transport.client.connected, "it goes on with its own server")
        assert client.plans() == []


def listen(port: int) -> str:
    """All that a client says to who answers no handshake, over two connections of its."""
    heard = b""
    with socket.create_server(("127.0.0.1", port)) as listener:
        listener.settimeout(WAIT_S)
        for _ in range(2):
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(2.0)
                try:
                    heard += connection.recv(4096)
                except (TimeoutError, ConnectionError):
                    pass  # it said nothing, or has gone
    return repr(heard)


@pytest.mark.skipif(not os.path.exists("/proc/net/tcp"), reason="only Linux tells")
def test_the_user_at_the_other_end_of_a_loopback_connection_is_known() -> None:
    for host in ("127.0.0.1", "::1"):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            listener = socket.create_server((host, 0), family=family)
        except OSError:
            continue  # this machine has no IPv6
        with listener, socket.create_connection(listener.getsockname()[:2]) as ours:
            theirs, _ = listener.accept()
            with theirs:
                assert owner_of_peer(ours, listens=True) == os.geteuid()
                assert owner_of_peer(ours, listens=False) == os.geteuid()


CLOSED = threading.Event()


def until_closed() -> None:
    """A task that runs until the root is closed: its plan cannot end before."""
    assert CLOSED.wait(WAIT_S)


@pytest.mark.timeout(120)
@pytest.mark.slow
def test_an_open_root_can_be_closed_while_its_plans_run(
    zookeeper_hosts: str, zkplan_root: str, caplog: pytest.LogCaptureFixture
) -> None:
    CLOSED.clear()
    with zkplan.connect(zookeeper_hosts, zkplan_root) as author:
        plan = author.create_plan("open")
        tasks = [plan.add_task(until_closed) for _ in range(300)]
        plan.add_task(lambda *done: len(done), tuple(tasks), keep=True, name="last")
        plan.mark_ready()
    with zkplan.connect(zookeeper_hosts, zkplan_root, **ALICE) as client:
        assert f"{zkplan_root} is open: whoever reaches ZooKeeper may read+write" in caplog.text
        assert root_access(client).outsiders["delete"].znodes > 300
        with working(zookeeper_hosts, zkplan_root, **ALICE):
            assert workers_without_login(client) == []
            assert close_root(client).znodes > 300
            CLOSED.set()
            found = client.plan("open")
            found.wait(60)
        assert found.task("last").result(timeout=10) == 300
        assert not root_access(client).is_open
        assert close_root(client).znodes == 0
    with plain_client(zookeeper_hosts) as nobody, plain_client(zookeeper_hosts, **ALICE) as owner:
        paths = [f"{zkplan_root}{path}" for path in tree(owner, zkplan_root)]
        assert allowed(nobody, paths, TRIES) == []


def test_a_worker_without_a_login_is_named_before_its_root_is_closed(
    zookeeper_hosts: str, zkplan_root: str
) -> None:
    with (
        working(zookeeper_hosts, zkplan_root),
        zkplan.connect(zookeeper_hosts, zkplan_root, **ALICE) as client,
    ):
        assert len(workers_without_login(client)) == 1
    with (
        zkplan.connect(zookeeper_hosts, zkplan_root) as client,
        pytest.raises(ZkplanError, match="needs a login"),
    ):
        close_root(client)


def test_an_explicit_access_list_wins_and_causes_no_warning(
    zookeeper_hosts: str, zkplan_root: str, caplog: pytest.LogCaptureFixture
) -> None:
    options = ALICE | {"default_acl": OPEN_ACL_UNSAFE}
    for _ in range(2):
        with zkplan.connect(zookeeper_hosts, zkplan_root, **options) as client:
            client.prepare()
            assert root_access(client).is_open
    assert "is open" not in caplog.text
