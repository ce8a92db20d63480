"""Access lists under faults: a refused process harms nothing and says so; others lose nothing."""

from __future__ import annotations

import gc
import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.security import ACL, make_digest_acl

import zkplan
from tests.tools import secured_servers
from tests.tools.available import one_server
from tests.tools.every_znode import every_kind, kinds_of, require_every_kind
from tests.tools.outsiders import TRIES, TRIES_ON_A_CLOSED_SERVER, allowed
from tests.tools.secured_servers import Secured, secured
from tests.tools.support import WorkerProcess, plain_client, wait_until
from zkplan.protocol.requests import ReadChildren, ReadMany
from zkplan.protocol.transactions import READS_PER_REQUEST
from zkplan.testing.server_process import ServerProcess
from zkplan.testing.stress_tasks import journal_of

from .secured import GOOD, PARENT, ROOT, TICK_MS, WAIT_S, WIDTH, SecuredWorker, options_of, recorded

#: For how long the first test goes on. It does each thing once at least.
MINUTES = float(os.environ.get("ZKPLAN_ACCESS_MINUTES", "0"))
#: How many znodes of each kind are tried at a time.
SOME = 3
#: `digest` and `embedded` let everybody connect, and the access lists alone refuse.
ACCESS_SETUPS = ("embedded", "embedded-closed", "digest", "tls", "sasl", "ensemble")
#: The login that may change all access lists, and the only one admitted while they are closed.
OPERATOR = "operator:other"


@pytest.fixture
def server(zookeeper_kind: str) -> Iterator[ServerProcess]:
    with one_server(zookeeper_kind, tick_time_ms=TICK_MS) as server:
        yield server


@pytest.fixture(params=ACCESS_SETUPS)
def secured_server(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Secured]:
    """Closed in one of the ways of a company. The profile that reaches it is in the environment."""
    wanted = request.config.getoption("--zookeeper-kind")
    with secured(request.param, tmp_path, wanted) as server:
        monkeypatch.setenv("ZKPLAN_CONFIG", str(server.write(tmp_path)))
        yield server


@pytest.fixture
def no_socket_is_left() -> Iterator[None]:
    """kazoo leaves a socket open whenever a connection over TLS fails: it goes before the end."""
    yield
    gc.collect()


@pytest.mark.timeout(180 + 90 * MINUTES)
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.usefixtures("no_socket_is_left")
def test_a_process_without_the_password_harms_nothing_and_reports_it(
    tmp_path: Path, secured_server: Secured
) -> None:
    runs, server = recorded(tmp_path / "runs"), secured_server
    until = time.monotonic() + 60 * MINUTES
    with ExitStack() as stack:
        client = stack.enter_context(zkplan.connect(profile="team"))
        client.prepare()
        # In a root of its own: workers of the other root would find the znodes put there by hand.
        kinds = stack.enter_context(
            zkplan.connect(profile="team", root=f"{secured_servers.ROOT}-kinds")
        )
        stack.enter_context(every_kind(kinds, tmp_path, server.hosts, {"profile": "team"}))
        require_every_kind(standing(kinds))

        def start(name: str, **options: Any) -> WorkerProcess:
            options["root"] = secured_servers.ROOT
            return stack.enter_context(SecuredWorker(server.hosts, tmp_path, name, "", **options))

        # Programs of this user find the login of a closed server. A stranger has no such files.
        nothing = {"XDG_STATE_HOME": str(tmp_path / "nothing")}
        good = [start(f"good{number}", profile="team").wait_ready() for number in range(2)]

        def turn(number: int) -> None:
            """A plan from its first task to its last, while strangers try everything."""
            before = runs.lines()
            plan = runs.author(client, number)
            strangers = [
                start(f"bad{number}-{which}", variables=nothing, **options)
                for which, options in enumerate(server.outsiders)
            ]
            wait_until(lambda: runs.lines() >= before + WIDTH // 4, "tasks run", WAIT_S)
            with ThreadPoolExecutor(1) as pool:
                attacked = pool.submit(attack, server, [client, kinds])
                runs.kill(good.pop(0).process)
                good.append(start(f"good{number + 1}", profile="team"))
                wait_until(lambda: runs.lines() >= before + WIDTH, "half of them have run", WAIT_S)
                with runs.fault("server killed"):
                    assert server.restart is not None
                    server.restart()
                attacked.result()
            attack(server, [client, kinds])
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


def attack(server: Secured, clients: Sequence[zkplan.Client]) -> None:
    """Try everything on each kind of znode that stands now, as each of those who may not."""
    paths = []
    for client in clients:
        found = kinds_of(standing(client))
        paths += [f"{client.root}{path}" for some in found.values() for path in some[:SOME]]
    tries = TRIES_ON_A_CLOSED_SERVER if server.is_closed else TRIES
    for options in server.outsiders:
        with plain_client(server.hosts, **options) as other:
            assert allowed(other, paths, tries) == []


def standing(client: zkplan.Client) -> list[str]:
    """The paths below the root, as far as they stand while workers make and delete them."""
    found, level = [""], [client.root]
    while level:
        batch, level = level[-READS_PER_REQUEST:], level[:-READS_PER_REQUEST]
        listed = client.transport.ask(ReadMany([ReadChildren(path) for path in batch]))
        for path, names in zip(batch, listed, strict=True):
            level += [f"{path}/{name}" for name in names or ()]
            found += [f"{path}/{name}".removeprefix(client.root) for name in names or ()]
    return found


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
def test_a_plan_that_locks_out_its_workers_for_a_while_loses_nothing(
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
def test_a_root_that_locks_out_its_workers_ends_them_and_loses_nothing(
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
