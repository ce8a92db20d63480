"""A fault counts only if it took effect itself, and no fault undoes another of the same round."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kazoo.exceptions import ConnectionLoss

from tests.conftest import SAMPLE
from tests.tools.frames import Session
from tests.tools.support import TOP, plain_client, wait_until
from zkplan.embedded import EmbeddedServer
from zkplan.testing.server_process import ServerDidNotStart

from . import test_every_fault
from .cluster.cluster import Cluster, Role
from .cluster.link import Link, LinkState, Loss
from .cluster.servers import Servers
from .cluster.stub import StubCluster, scripted
from .faults import partitions, running
from .faults.catalogue import CATALOGUE
from .faults.fault import Entry, Fault
from .faults.partitions import View
from .faults.points import AUTHOR_POINTS, POINTS
from .faults.processes import AtStep
from .run import Run
from .scenarios.races import MUTANT_CASES
from .test_mutants_are_caught import id_of
from .traffic.workloads import SHAPES
from .validate.validator import Validator

WORKERS: list[tuple[str, Role]] = [("worker0", "worker"), ("worker1", "worker")]


class Scripted(Fault):
    """It has an effect at the looks `at`; the step `breaks` finds no server."""

    lasts = (0.0, 0.0)

    def __init__(
        self, name: str, at: range, late: bool = False, lock: str = "", breaks: str = ""
    ) -> None:
        super().__init__(name)
        self.at, self.shows_late, self.breaks = at, late, breaks
        self.locks = frozenset({lock} - {""})
        self.looks = self.healings = 0

    def inject(self, cluster: Cluster, chance: random.Random) -> None:
        if self.breaks == "inject":
            raise ServerDidNotStart("the disk is full")

    def took_effect(self, cluster: Cluster) -> bool:
        self.looks += 1
        return self.looks in self.at

    def heal(self, cluster: Cluster) -> None:
        self.healings += 1
        if self.breaks == "heal" and self.healings == 1:
            raise ServerDidNotStart("the disk is full")


def entry_of(fault: Fault) -> Entry:
    return Entry(fault.name, "", lambda name: fault)


def run_in(folder: Path) -> Run:
    cluster = StubCluster(folder)
    return Run(cluster, Validator(cluster))


# ---- how effects are counted


@pytest.mark.parametrize(
    ("fault", "counted"),
    [
        (Scripted("seen at once", range(1, 2)), True),
        (Scripted("seen late", range(10, 11), late=True), True),
        (Scripted("seen too late", range(10, 11)), False),
        (Scripted("never seen", range(0)), False),
        (Scripted("waited for in vain", range(0), late=True), False),
        (Scripted("broken off", range(9), breaks="inject"), False),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_a_fault_is_counted_with_or_without_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault, counted: bool
) -> None:
    monkeypatch.setattr(running, "LATE_S", 5.0 if counted else 0.1)
    run = run_in(tmp_path)
    run.at_once([entry_of(fault)])
    wait_until(lambda: not run.effects.still_waiting(), "it waits no more")
    assert run.effects.took_effect == ({fault.name: 1} if counted else {})
    assert run.effects.without_effect == ({} if counted else {fault.name: 1})


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (Scripted("one", range(0)), "had no effect"),
        (Scripted("one", range(9), breaks="inject"), "no other fault is in its way"),
        (Scripted("one", range(9), breaks="heal"), "no other fault is in its way"),
    ],
)
def test_the_test_of_every_fault_fails_without_an_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault, message: str
) -> None:
    monkeypatch.setitem(CATALOGUE, "one", entry_of(fault))
    with pytest.raises(AssertionError, match=message):
        test_every_fault.test_a_fault_breaks_no_promise(run_in(tmp_path), "one")


def test_every_fault_has_a_description_and_a_check_of_its_effect() -> None:
    faults = {name: entry.fault() for name, entry in CATALOGUE.items()}
    assert [name for name, entry in CATALOGUE.items() if not entry.does] == []
    assert [
        name for name, fault in faults.items() if type(fault).took_effect is Fault.took_effect
    ] == []
    sources = "".join(path.read_text() for path in (TOP / "zkplan").rglob("*.py"))
    reached = set(re.findall(r"""reach\(\s*"([\w.]+)"\s*\)""", sources))
    assert reached >= {*POINTS, *AUTHOR_POINTS}
    assert {fault.shape for fault in faults.values()} - {""} <= SHAPES.keys()


def test_every_name_of_the_sample_is_a_test() -> None:
    tests = {("test_mutants_are_caught.py", id_of(case)) for case in MUTANT_CASES}
    tests |= {("test_every_fault.py", f"embedded-{name}") for name in CATALOGUE}
    assert tests >= SAMPLE


# ---- what counts as an effect


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with scripted(tmp_path, WORKERS) as cluster:
        for process in cluster.processes:
            process.link._newest = Session(1, b"before")
        yield cluster


@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize(
    "name", ["worker expired", "all workers expired", "worker expired at claim"]
)
def test_a_session_counts_as_expired_only_if_the_fault_closed_it(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, name: str, done: bool
) -> None:
    monkeypatch.setattr(cluster, "expire", lambda process: done)
    fault = CATALOGUE[name].fault()
    fault.inject(cluster, random.Random(1))
    if isinstance(fault, AtStep):
        fault._do(cluster, fault.victims[0])
    assert not fault.took_effect(cluster)
    for process in cluster.processes:
        process.link._newest = Session(2, b"after")
    assert fault.took_effect(cluster) == done


_LEADS, _FOLLOWS, _SILENT = {"Mode": "leader"}, {"Mode": "follower"}, dict[str, str]()
_NO_LEADER, _NO_FOLLOWER = [_SILENT, _FOLLOWS, _FOLLOWS], [_LEADS, _SILENT, _FOLLOWS]
_ALL_SERVE = [_LEADS, _FOLLOWS, _FOLLOWS]


@pytest.mark.parametrize(
    ("shows", "looks", "counted"),
    [
        (partitions.leader_is_out, [_ALL_SERVE, _NO_LEADER], False),
        (partitions.leader_is_out, [_NO_LEADER, _ALL_SERVE], False),
        (partitions.leader_is_out, [_NO_LEADER, _NO_LEADER], True),
        (partitions.follower_is_out, [_ALL_SERVE, _NO_FOLLOWER], False),
        (partitions.follower_is_out, [_NO_FOLLOWER, _NO_FOLLOWER], True),
        (partitions.two_lead, [_ALL_SERVE], False),
        (partitions.two_lead, [[_LEADS, _LEADS, _FOLLOWS]], True),
    ],
)
def test_a_single_unanswered_probe_does_not_prove_a_partition(
    monkeypatch: pytest.MonkeyPatch, shows: Any, looks: list[list[dict[str, str]]], counted: bool
) -> None:
    answers = iter([status for look in looks for status in look])
    monkeypatch.setattr(partitions, "server_status", lambda hosts: next(answers))
    members = [SimpleNamespace(hosts="") for _ in range(3)]
    links = SimpleNamespace(affected={})
    view = View(cast("Servers", SimpleNamespace(links=links, members=members)), 1, 2, 3)
    monkeypatch.setattr(view, "affected", lambda *way: True)
    for _ in looks:
        view.look()
    assert shows(view) == counted


# ---- faults at once


# ---- links


@pytest.fixture
def link() -> Iterator[Link]:
    with EmbeddedServer(is_open=True) as server:
        link = Link([int(server.hosts.rpartition(":")[2])])
        yield link
        link.close()


@pytest.mark.parametrize(
    ("loss", "applied"), [("request", False), ("answer", True), ("late", True)]
)
def test_a_lost_transaction_is_applied_or_not(link: Link, loss: Loss, applied: bool) -> None:
    path = f"/lost-{loss}"
    with plain_client(link.hosts) as client:
        link.change(LinkState(lose=lambda step, number: loss if number == 1 else None))
        transaction = client.transaction()
        transaction.create(path)
        with pytest.raises(ConnectionLoss):
            transaction.commit_async().get(timeout=10)
        assert (link.lost, link.affected) == ([f"other {loss}"], 1)
        link.restore()
        wait_until(lambda: client.connected, "it is connected again")
        if applied:
            wait_until(lambda: client.exists(path), "the late copy is applied")
        assert bool(client.exists(path)) == applied
