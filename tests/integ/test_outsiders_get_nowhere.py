"""Who has no login, or another one, can list, read, write, create and delete nothing."""

from __future__ import annotations

import multiprocessing
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from kazoo.security import OPEN_ACL_UNSAFE

import zkplan
from zkplan.embedded import EmbeddedServer, announced
from zkplan.errors import ZkplanError
from zkplan.inspection.access import close_root, root_access, workers_without_login
from zkplan.protocol.requests import Create, Multi
from zkplan.testing.embedded_process import EmbeddedServerProcess
from zkplan.testing.znodes import remove_tree
from zkplan.transport.own_login import owner_of_peer

from .outsiders import TRIES, TRIES_ON_A_CLOSED_SERVER, allowed, kind_of, strangers
from .support import WAIT_S, plain_client, tree, wait_until, working

ALICE: dict[str, Any] = {"auth_data": [("digest", "alice:wonder")]}
NOBODY = 65_534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")

#: Each kind of znode of docs/internals/protocol.md, as `kind_of` tells it.
OF_A_TASK = (
    *("ready", "dep-0", "arg-0", "prov-UID", "owner", "log-N", "result", "delivered"),
    *("incomplete", "started-1", "retry-1"),
)
KINDS = {
    *("", "/workers", "/workers/ID", "/claims", "/claims/ID", "/claims/ID/CLAIM"),
    *("/claims/ID/pending-UID", "/delayed", "/delayed/N", "/active", "/active/N", "/plan-N"),
    *(f"/plan-N/{name}" for name in ("ready", "add-count", "add-ids", "runnable", "dead")),
    *("/plan-N/results", "/plan-N/results/N", "/plan-N/dead/N", "/plan-N/runnable/ENTRY"),
    *("/plan-N/done", "/plan-N/task-N"),
    *(f"/plan-N/task-N/{name}" for name in OF_A_TASK),
}


def fail() -> None:
    raise ValueError("as planned")


def wait_for(file: str) -> None:
    wait_until(Path(file).exists, "the test lets it go on", 60)


@pytest.fixture
def zkplan_root(zookeeper_hosts: str) -> Iterator[str]:
    """As the plugin's, but its znodes may be ALICE's alone."""
    root = f"/t-{uuid.uuid4().hex}"
    yield root
    with plain_client(zookeeper_hosts, **ALICE) as owner:
        remove_tree(owner, root)


@contextmanager
def every_kind(client: zkplan.Client, folder: Path, hosts: str, **options: Any) -> Iterator[str]:
    """A root with a znode of each kind, while a worker runs a task."""
    go_on = folder / "go on"
    with ExitStack() as stack:
        stack.enter_context(working(hosts, client.root, **options))
        stack.callback(go_on.touch)
        with client.create_plan("done") as plan:
            plan.add_task(len, ("kept",))
        plan.wait(30)
        with client.create_plan("fails", retry_delay=1000.0, attempts=2) as plan:
            plan.add_task(fail)
            plan.add_task(fail, attempts=1)
        with client.create_plan("runs") as plan:
            first = plan.add_task(wait_for, (str(go_on),))
            plan.add_task(len, (first,))
        waiting = client.create_plan("waits")
        waiting.add_task(len, ("x",))
        made, number = f"{waiting.path}/task-0000000006", f"{client.paths.claims}/"
        raw = client.transport.client
        # Kinds that last for a moment only. The same code makes every znode.
        for name in ("dep-0", "arg-0", "log-", "result", "delivered", "incomplete", "started-1"):
            client.transport.run(_create(f"{made}/{name}", sequence=name.endswith("-")))
        client.transport.run(_create(f"{made}/retry-1"))
        client.transport.run(_create(f"{waiting.path}/dead/0000000006"))
        (worker,) = raw.get_children(client.paths.claims)
        wait_until(lambda: raw.get_children(f"{number}{worker}"), "a task runs")
        client.transport.run(_create(f"{number}{worker}/pending-ff"))
        wait_until(lambda: raw.get_children(client.paths.delayed), "a failed task waits")
        yield client.root


def _create(path: str, *, sequence: bool = False) -> Any:
    answer = yield Multi([Create(path, sequence=sequence)])
    return answer


@pytest.mark.timeout(120)
def test_a_login_of_its_own_closes_every_kind_of_znode(
    zookeeper_hosts: str, zkplan_root: str, tmp_path: Path
) -> None:
    """On a server that lets everybody in: the access lists alone refuse."""
    with (
        zkplan.connect(zookeeper_hosts, zkplan_root, **ALICE) as client,
        every_kind(client, tmp_path, zookeeper_hosts, **ALICE) as root,
        plain_client(zookeeper_hosts, **ALICE) as owner,
        strangers(zookeeper_hosts) as others,
    ):
        paths = sorted(f"{root}{path}" for path in tree(owner, root))
        assert {kind_of(path[len(root) :]) for path in paths} >= KINDS
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
            every_kind(client, tmp_path, server.hosts) as root,
            plain_client(server.hosts, auth_data=[("digest", server.login)]) as owner,
            strangers(server.hosts) as others,
        ):
            paths = ["/", "/zookeeper", *sorted(f"{root}{path}" for path in tree(owner, root))]
            assert {kind_of(path[len(root) :]) for path in paths[2:]} >= KINDS
            for other in others:
                assert allowed(other, paths, TRIES_ON_A_CLOSED_SERVER) == []
            assert [znode for znode in tree(owner, "/zkplan") if "other" in znode] == []
        assert "which has not logged in: GetChildren '/'" in caplog.text
        for word in ("srvr", "stat", "cons", "dump", "mntr", "conf", "envi", "wchs"):
            assert b"not in the whitelist" in ask(server, word)
        assert ask(server, "ruok") == b"imok"


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
def test_another_user_of_the_machine_adds_no_task_and_finds_no_login(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    tmp_path.chmod(0o777)
    here = zkplan.local(workers=1, data=tmp_path / "data")
    with here as client:
        told = as_nobody(add_a_task, here.hosts, here.root, str(foreign))
        assert "an access list does not let this client read it" in told
        host, _, port = here.hosts.rpartition(":")
        assert announced(host, int(port)) is not None
        assert as_nobody(lambda: repr(announced(host, int(port)))) == "None"
        assert "Permission" in as_nobody(read_error, str(tmp_path / "data" / "login"))
        assert client.plans() == []
    assert not foreign.exists()
    assert announced(host, int(port)) is None


def read_error(file: str) -> str:
    try:
        return Path(file).read_text()
    except OSError as error:
        return str(error)


@needs_root
def test_who_takes_the_port_of_an_ended_server_hears_no_login(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = EmbeddedServerProcess(data=tmp_path, is_open=False)
    with server, zkplan.connect(server.hosts, session_timeout=4) as client:
        server.kill()
        heard = as_nobody(listen, server.port, 3.0)
        assert heard == "b''"
        server.start()
        wait_until(lambda: client.transport.client.connected, "it goes on with its own server")
        assert client.plans() == []
    assert "listens at" in caplog.text


def listen(port: int, for_s: float) -> str:
    """All that clients say to who answers no handshake."""
    heard, end = b"", time.monotonic() + for_s
    with socket.create_server(("127.0.0.1", port)) as listener:
        listener.settimeout(0.5)
        while time.monotonic() < end:
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            with connection:
                connection.settimeout(0.5)
                try:
                    heard += connection.recv(4096)
                except (TimeoutError, ConnectionError):
                    pass
    return repr(heard)


@pytest.mark.skipif(not os.path.exists("/proc/net/tcp"), reason="only Linux tells")
def test_the_owner_of_the_other_end_is_known() -> None:
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
def test_an_open_root_is_closed_while_its_plans_run(
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


def test_a_worker_without_a_login_is_told_before_a_root_is_closed(
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


def test_an_explicit_access_list_wins_and_is_not_called_open(
    zookeeper_hosts: str, zkplan_root: str, caplog: pytest.LogCaptureFixture
) -> None:
    options = ALICE | {"default_acl": OPEN_ACL_UNSAFE}
    for _ in range(2):
        with zkplan.connect(zookeeper_hosts, zkplan_root, **options) as client:
            client.prepare()
            assert root_access(client).is_open
    assert "is open" not in caplog.text
