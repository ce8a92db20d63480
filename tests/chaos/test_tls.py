"""Plans run over TLS while servers and workers are killed, and while a certificate has expired."""

from __future__ import annotations

import gc
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import zkplan
from tests.tools.available import not_available, skip_without
from tests.tools.certificates import Authority, secure
from tests.tools.support import wait_until
from zkplan.testing.server_process import LOOPBACK, free_port
from zkplan.testing.servers import ZooKeeperServer

from .secured import GOOD, ROOT, TICK_MS, WAIT_S, WIDTH, SecuredWorker, options_of, recorded


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
    skip_without("zookeeper")
    if shutil.which("openssl") is None:
        not_available("there is no openssl to make a certificate with")
    port, runs = free_port(), recorded(tmp_path / "runs")
    ours, theirs = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    options: dict[str, Any] = {"use_ssl": True, "ca": str(ours.certificate), "verify_certs": True}
    hosts = f"{LOOPBACK}:{port}"
    config = secure(ours, port)
    with ExitStack() as stack:
        server = stack.enter_context(ZooKeeperServer(tick_time_ms=TICK_MS, config=config))
        # A process of its own: kazoo leaves sockets open whose handshake fails.
        other = {**options, "ca": str(theirs.certificate), "connect_timeout": 15.0}
        stranger = stack.enter_context(SecuredWorker(hosts, tmp_path, "stranger", GOOD, **other))
        client = stack.enter_context(
            zkplan.connect(hosts, ROOT, connect_timeout=WAIT_S, **options_of(GOOD), **options)
        )
        client.prepare()
        with pytest.raises(zkplan.ZooKeeperUnavailable, match=f"is for {LOOPBACK}, not for local"):
            zkplan.connect(f"localhost:{port}", ROOT, connect_timeout=2.0, **options)
        workers = [
            stack.enter_context(SecuredWorker(hosts, tmp_path, f"good{n}", GOOD, **options))
            for n in range(2)
        ]
        for worker in workers:
            worker.wait_ready()
        plan = runs.author(client, 1)
        wait_until(lambda: runs.lines() >= WIDTH // 4, "tasks run", WAIT_S)
        # Before the server is killed: a dead server refuses connections, which would be reported.
        wait_until(
            lambda: stranger.said("ZooKeeperUnavailable"), "who trusts another is told", WAIT_S
        )
        assert stranger.said("certificate verify failed")
        assert not stranger.said(" ready")
        with runs.fault("certificate expired"):
            server.kill()
            ours.sign_for_the_server(days=-1)
            server.start()
            for worker in workers:
                wait_until(partial(worker.said, "certificate has expired"), "it is told", WAIT_S)
            server.kill()
            ours.sign_for_the_server()
            server.start()
        wait_until(lambda: runs.lines() >= WIDTH, "tasks run again", WAIT_S)
        runs.kill(workers[0].process)
        stack.enter_context(SecuredWorker(hosts, tmp_path, "good2", GOOD, **options))
        plan.wait(WAIT_S)
        assert runs.violations(client, plan, losses=2) == []
