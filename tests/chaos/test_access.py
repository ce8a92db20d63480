"""Access lists beside faults: who may not, harms nothing and says so; who may, loses nothing.

SASL is not tested here: it needs a Kerberos service, or Java's DIGEST-MD5 login, at the server, and
a package that zkplan does not need at the client. To zkplan all of them are options of kazoo.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NoNodeError
from kazoo.security import ACL, OPEN_ACL_UNSAFE, make_digest_acl

import zkplan
from tests.integ.support import WorkerProcess, plain_client, wait_until
from zkplan.stress.history import journal_of
from zkplan.testing.server_process import ServerProcess

from .cluster.servers import one_server
from .secured import (
    BAD,
    GOOD,
    PARENT,
    ROOT,
    TICK_MS,
    WAIT_S,
    WIDTH,
    SecuredWorker,
    options_of,
    recorded,
)

#: For how long the first test goes on. It does each thing once at least.
MINUTES = float(os.environ.get("ZKPLAN_ACCESS_MINUTES", "0"))
#: Who may change the lists of all, and whom alone they let in meanwhile.
OPERATOR = "operator:other"


@pytest.fixture
def server(zookeeper_kind: str) -> Iterator[ServerProcess]:
    with one_server(zookeeper_kind, tick_time_ms=TICK_MS) as server:
        yield server


@pytest.mark.timeout(180 + 90 * MINUTES)
def test_who_lacks_the_password_harms_nothing_and_says_so(
    tmp_path: Path, server: ServerProcess
) -> None:
    runs, options = recorded(tmp_path / "runs"), options_of(GOOD)
    until = time.monotonic() + 60 * MINUTES
    with ExitStack() as stack:
        with plain_client(server.hosts, **options) as raw:
            raw.create(PARENT)
        client = stack.enter_context(zkplan.connect(server.hosts, ROOT, **options))
        client.prepare()

        def start(name: str, user: str) -> WorkerProcess:
            return stack.enter_context(SecuredWorker(server.hosts, tmp_path, name, user))

        good = [start(f"good{number}", GOOD).wait_ready() for number in range(2)]

        def turn(number: int) -> None:
            """A plan from its first task to its last, while strangers try everything."""
            before = runs.lines()
            plan = runs.author(client, number)
            strangers = [start(f"bad{number}", BAD), start(f"nobody{number}", "")]
            wait_until(lambda: runs.lines() >= before + WIDTH // 4, "tasks run", WAIT_S)
            for user in (BAD, ""):
                attack(server.hosts, options_of(user) if user else {})
            runs.kill(good.pop(0).process)
            good.append(start(f"good{number + 1}", GOOD))
            wait_until(lambda: runs.lines() >= before + WIDTH, "half of them have run", WAIT_S)
            with runs.fault("server killed"):
                server.kill()
                server.start()
            plan.wait(WAIT_S)
            assert runs.violations(client, plan, losses=2) == []
            plan.remove()
            for stranger in strangers:
                wait_until(partial(stranger.said, "does not let this client"), "it is told")
                assert not stranger.said(" ready")
                assert not journal_of(runs.folder, stranger.process.pid).exists()

        for number in itertools.count(1):
            turn(number)
            if time.monotonic() >= until:
                break


def attack(hosts: str, options: Mapping[str, Any]) -> None:
    """Try to read, change, delete and make whatever stands: nothing of it is allowed."""
    with plain_client(hosts, **options) as raw:
        attempts: list[Callable[[], object]] = [
            lambda: raw.get_children(ROOT),
            lambda: raw.get(ROOT),
            lambda: raw.set(f"{ROOT}/claims", b"x"),
            lambda: raw.create(f"{ROOT}/plan-9999999999"),
            lambda: raw.create(f"{ROOT}/workers/mine", ephemeral=True),
            lambda: raw.delete(f"{ROOT}/delayed"),
            lambda: raw.delete(ROOT, recursive=True),
            lambda: raw.set_acls(ROOT, OPEN_ACL_UNSAFE),
        ]
        for attempt in attempts:
            with pytest.raises(NoAuthError):
                attempt()


def change_lists(operator: KazooClient, path: str, acl: Sequence[ACL]) -> None:
    """Of all that stands at and below `path`, as `setAcl -R`: one after the other, from above.

    It does not wait for one answer before it asks for the next change: beside others that keep the
    machine busy a plan took over a minute, and its workers look at it only once in a minute.
    """
    level = [path]
    while level:
        asked = [
            (each, operator.set_acls_async(each, acl), operator.get_children_async(each))
            for each in level
        ]
        level = []
        for each, changed, listed in asked:
            try:
                changed.get()
                level += [f"{each}/{name}" for name in listed.get()]
            except NoNodeError:
                pass  # ended meanwhile


class Operated(NamedTuple):
    """A root that an operator shuts and opens again."""

    operator: KazooClient
    client: zkplan.Client
    start: Callable[[str], WorkerProcess]

    def shut(self, path: str) -> None:
        change_lists(self.operator, path, [make_digest_acl(*OPERATOR.split(":"), all=True)])

    def open(self, path: str) -> None:
        change_lists(self.operator, path, [make_digest_acl(*GOOD.split(":"), all=True)])


@pytest.fixture
def operated(tmp_path: Path, server: ServerProcess) -> Iterator[Operated]:
    with ExitStack() as stack:
        both = {**options_of(GOOD), "auth_data": [("digest", GOOD), ("digest", OPERATOR)]}
        operator = stack.enter_context(plain_client(server.hosts, **both))
        operator.create(PARENT)
        client = stack.enter_context(zkplan.connect(server.hosts, ROOT, **options_of(GOOD)))
        client.prepare()

        def start(name: str) -> WorkerProcess:
            return stack.enter_context(SecuredWorker(server.hosts, tmp_path, name, GOOD))

        yield Operated(operator, client, start)


@pytest.mark.timeout(240)
def test_a_plan_that_shuts_its_workers_out_for_a_while_loses_nothing(
    tmp_path: Path, operated: Operated
) -> None:
    """They go on with another plan meanwhile, and nobody has to start them anew."""
    runs = recorded(tmp_path / "runs")
    workers = [operated.start(f"good{number}").wait_ready() for number in range(2)]
    plan = runs.author(operated.client, 1)
    wait_until(lambda: runs.lines() >= WIDTH // 4, "tasks run", WAIT_S)
    with runs.fault("plan shut", refuses=True):
        operated.shut(plan.path)
        for worker in workers:
            text = f"{plan.path} is left to other workers"
            wait_until(partial(worker.said, text), "it is told", WAIT_S)
            assert worker.said("access list")
        other = runs.author(operated.client, 2)
        other.wait(WAIT_S)
        assert runs.violations(operated.client, other, losses=0) == []
        operated.open(plan.path)
    # They look at it again after a minute at the latest.
    plan.wait(60 + WAIT_S)
    # Its znodes are shut, and opened, one after the other.
    assert runs.violations(operated.client, plan, losses=2) == []
    assert all(worker.process.is_running() for worker in workers)


@pytest.mark.timeout(240)
def test_a_root_that_shuts_its_workers_out_ends_them_and_loses_nothing(
    tmp_path: Path, operated: Operated
) -> None:
    """They say why; what supervises them starts them anew."""
    runs = recorded(tmp_path / "runs")
    workers = [operated.start(f"good{number}").wait_ready() for number in range(2)]
    plan = runs.author(operated.client, 1)
    wait_until(lambda: runs.lines() >= WIDTH // 4, "tasks run", WAIT_S)
    with runs.fault("root shut", refuses=True):
        operated.shut(ROOT)
        for worker in workers:
            assert worker.process.wait_ended(WAIT_S)
            assert worker.said("an access list does not let this client read")
        operated.open(ROOT)
    for number in (2, 3):
        operated.start(f"good{number}").wait_ready()
    plan.wait(WAIT_S)
    assert runs.violations(operated.client, plan, losses=3) == []
