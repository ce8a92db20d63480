"""Access lists and TLS under fire: who may not, harms nothing and says so; who may, loses nothing.

SASL is not tested here: it needs a Kerberos service, or Java's DIGEST-MD5 login, at the server, and
a package that zkplan does not need at the client. To zkplan all of them are options of kazoo.
"""

from __future__ import annotations

import gc
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kazoo.exceptions import NoAuthError
from kazoo.security import OPEN_ACL_UNSAFE

import zkplan

# By its full name: workers import the function of a task by the name that it has here.
from tests.chaos.sizes import broken, fan, lines_in, read, specs
from tests.crash.server import not_available
from tests.integ.support import IN_CHECKOUT, plain_client, wait_until
from zkplan.testing.embedded_process import EmbeddedServerProcess
from zkplan.testing.java import find_java, find_zookeeper
from zkplan.testing.loopback import LOOPBACK, free_port
from zkplan.testing.process import WatchedProcess
from zkplan.testing.server_process import ServerProcess
from zkplan.testing.servers import ZooKeeperServer

from .guarded import environment, options_of

PARENT, ROOT = "/guarded", "/guarded/zkplan"
GOOD, BAD = "good:secret", "bad:guess"
WIDTH = 600
WAIT_S = 60.0
_TICK_MS = 500
_STORE_PASSWORD = "zkplan"


class Guarded:
    """A worker process, and what it says."""

    def __init__(self, hosts: str, folder: Path, name: str, user: str, **options: object) -> None:
        self.log = folder / f"{name}.log"
        command = [*IN_CHECKOUT, sys.executable, "-m", "tests.chaos.guarded", hosts, ROOT]
        self.process = WatchedProcess(command, self.log, environment(user, **options))

    def says(self, text: str) -> bool:
        return self.log.exists() and text in self.log.read_text()

    def __enter__(self) -> Guarded:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.end(0)


@pytest.fixture(params=["embedded", "zookeeper"])
def server(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    wanted = request.config.getoption("--zookeeper-kind")
    if wanted not in ("both", request.param):
        pytest.skip(f"only {wanted} is wanted")
    needs_java(request.param)
    made = (
        EmbeddedServerProcess(tick_time_ms=_TICK_MS)
        if request.param == "embedded"
        else ZooKeeperServer(tick_time_ms=_TICK_MS)
    )
    with made:
        yield made


def needs_java(kind: str = "zookeeper") -> None:
    if kind == "zookeeper" and (find_java() is None or find_zookeeper() is None):
        not_available("no ZooKeeper is installed here")


def judge(plan: zkplan.Plan, runs: Path, losses: int) -> None:
    """Every promise, for a plan that is done."""
    sized = fan(WIDTH)
    outcomes = plan.client.keeper.client.get_children(f"{plan.path}/outcomes")
    assert len(outcomes) == 1
    made = zkplan.Task(plan, outcomes[0]).result(timeout=10)
    found = list(broken(sized, read(runs)[0], {len(sized.needs) - 1: made[1]}, losses))
    assert found == []


@pytest.mark.timeout(180)
def test_who_lacks_the_password_harms_nothing_and_says_so(
    tmp_path: Path, server: ServerProcess
) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    options = options_of(GOOD)
    with ExitStack() as stack:
        with plain_client(server.hosts, **options) as raw:
            # Who may delete a znode is said at its parent: so the root's parent has the list too.
            raw.create(PARENT)
        client = stack.enter_context(zkplan.connect(server.hosts, ROOT, **options))
        client.prepare()

        def start(name: str, user: str) -> Guarded:
            return stack.enter_context(Guarded(server.hosts, tmp_path, name, user))

        good = [start(f"good{number}", GOOD) for number in range(2)]
        wait_until(lambda: all(each.says(" ready") for each in good), "workers are ready", WAIT_S)
        strangers = [start("bad", BAD), start("nobody", "")]
        plan = client.create_plan("guarded", attempts=20)
        plan.add_tasks(specs(fan(WIDTH), runs))
        plan.mark_ready()
        wait_until(lambda: lines_in(runs) >= WIDTH // 4, "tasks run", WAIT_S)
        for user in (BAD, ""):
            attack(server.hosts, options_of(user) if user else {})
        good[0].process.end(0)
        good.append(start("good2", GOOD))
        wait_until(lambda: lines_in(runs) >= WIDTH, "half of the tasks have run", WAIT_S)
        server.kill()
        server.start()
        plan.wait(WAIT_S)
        judge(plan, runs, losses=2)
        ran = {int(path.stem) for path in runs.glob("*.runs")}
        for stranger in strangers:
            wait_until(partial(stranger.says, "not allowed by the access list"), "it is told")
            assert not stranger.says(" ready")
            assert stranger.process.pid not in ran
        plan.remove()


def attack(hosts: str, options: Mapping[str, Any]) -> None:
    """Try to read, change, delete and make whatever stands: nothing of it is allowed."""
    with plain_client(hosts, **options) as raw:
        attempts: list[Callable[[], object]] = [
            lambda: raw.get_children(ROOT),
            lambda: raw.get(ROOT),
            lambda: raw.set(f"{ROOT}/desk", b"x"),
            lambda: raw.create(f"{ROOT}/plan-9999999999"),
            lambda: raw.create(f"{ROOT}/worker/mine", ephemeral=True),
            lambda: raw.delete(f"{ROOT}/later"),
            lambda: raw.delete(ROOT, recursive=True),
            lambda: raw.set_acls(ROOT, OPEN_ACL_UNSAFE),
        ]
        for attempt in attempts:
            with pytest.raises(NoAuthError):
                attempt()


@pytest.fixture
def leaky() -> Iterator[None]:
    """kazoo leaves a TLS socket open whenever connecting fails: they go before the test ends."""
    yield
    gc.collect()


@pytest.mark.timeout(180)
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.usefixtures("leaky")
def test_plans_run_over_tls_while_the_server_and_workers_are_killed(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    wanted = request.config.getoption("--zookeeper-kind")
    if wanted not in ("both", "zookeeper"):
        pytest.skip(f"only {wanted} is wanted, and this needs a ZooKeeper that speaks TLS")
    needs_java()
    if shutil.which("openssl") is None:
        not_available("there is no openssl to make a certificate with")
    port, runs = free_port(), tmp_path / "runs"
    runs.mkdir()
    options: dict[str, Any] = {
        "use_ssl": True,
        "ca": str(tmp_path / "cert.pem"),
        "verify_certs": True,
    }
    hosts = f"{LOOPBACK}:{port}"
    config = secure(tmp_path, port)
    with ExitStack() as stack:
        server = stack.enter_context(ZooKeeperServer(tick_time_ms=_TICK_MS, config=config))
        # A process of its own: kazoo leaves sockets open whose handshake fails.
        certificate(tmp_path, "other")
        other = {**options, "ca": str(tmp_path / "other.pem"), "connect_timeout": 3.0}
        stranger = stack.enter_context(Guarded(hosts, tmp_path, "stranger", GOOD, **other))
        client = stack.enter_context(
            zkplan.connect(hosts, ROOT, connect_timeout=WAIT_S, **options_of(GOOD), **options)
        )
        client.prepare()
        workers = [
            stack.enter_context(Guarded(hosts, tmp_path, f"good{n}", GOOD, **options))
            for n in range(2)
        ]
        wait_until(lambda: all(each.says(" ready") for each in workers), "workers ready", WAIT_S)
        plan = client.create_plan("tls", attempts=20)
        plan.add_tasks(specs(fan(WIDTH), runs))
        plan.mark_ready()
        wait_until(lambda: lines_in(runs) >= WIDTH // 4, "tasks run", WAIT_S)
        # Before the server is killed: of one that is gone it would be told that it refuses.
        wait_until(lambda: stranger.says("KeeperUnavailable"), "who trusts another is told", WAIT_S)
        assert stranger.says("certificate verify failed")
        assert not stranger.says(" ready")
        server.kill()
        server.start()
        wait_until(lambda: lines_in(runs) >= WIDTH, "tasks run again", WAIT_S)
        workers[0].process.end(0)
        stack.enter_context(Guarded(hosts, tmp_path, "good2", GOOD, **options))
        plan.wait(WAIT_S)
        judge(plan, runs, losses=2)


def certificate(folder: Path, name: str) -> None:
    subject = ["-subj", "/CN=localhost", "-addext", f"subjectAltName=IP:{LOOPBACK}"]
    files = ["-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.pem")]
    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject, *files)


def openssl(*words: str) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True)


def secure(folder: Path, port: int) -> Mapping[str, str]:
    """A key for the server, and the lines of zoo.cfg that make it speak TLS there."""
    certificate(folder, "cert")
    store = folder / "store.p12"
    key = ["-in", str(folder / "cert.pem"), "-inkey", str(folder / "cert.key")]
    openssl("pkcs12", "-export", *key, "-out", str(store), "-passout", f"pass:{_STORE_PASSWORD}")
    return {
        "secureClientPort": str(port),
        "secureClientPortAddress": LOOPBACK,
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.clientAuth": "none",
        "ssl.keyStore.location": str(store),
        "ssl.keyStore.password": _STORE_PASSWORD,
        "ssl.keyStore.type": "PKCS12",
        # It trusts itself: it asks no client for a certificate, but wants some trust to be set.
        "ssl.trustStore.location": str(folder / "cert.pem"),
        "ssl.trustStore.type": "PEM",
    }
