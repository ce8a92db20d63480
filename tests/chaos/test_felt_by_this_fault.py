"""A fault is felt only by what it has done itself: not by another one, nor by a look in vain."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.integ.support import plain_client, wait_until
from zkplan.cli.worker import _ENDS_WITHIN_S
from zkplan.embedded.database import DATABASE
from zkplan.testing.embedded_process import EmbeddedServerProcess
from zkplan.testing.server_process import ServerDidNotStart

from .actors.tasks import EXIT_CODE
from .faults import network
from .faults.aim import EVERYBODY
from .faults.catalogue import CATALOGUE
from .faults.network import Clinging, Parted
from .faults.processes import AtStep, Poked
from .faults.servers import _LOGGED_BYTES, _SPARE_BYTES, LongOutage, ServerDown
from .quiet import sleeping
from .world import watch
from .world.arena import Actor, Arena, Role, Settings
from .world.frames import Session
from .world.link import Link
from .world.servers import Servers

BEFORE, AFTER = Session(1, b"before"), Session(2, b"after")
WORKERS: list[tuple[str, Role]] = [("worker0", "worker"), ("worker1", "worker")]
FOLLOWS, LEADS, SILENT = {"Mode": "follower"}, {"Mode": "leader"}, {}  # type: ignore[var-annotated]
PORTS = [1, 2, 3]


@pytest.fixture
def arena(tmp_path: Path) -> Iterator[Arena]:
    with sleeping(tmp_path, WORKERS) as arena:
        for actor in arena.actors:
            actor.link._newest = BEFORE
        yield arena


# ---- sessions


@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize(
    "name", ["worker expired", "all workers expired", "worker expired at claim"]
)
def test_a_session_that_ends_by_something_else_is_not_one_that_was_expired(
    arena: Arena, monkeypatch: pytest.MonkeyPatch, name: str, done: bool
) -> None:
    monkeypatch.setattr(arena, "expire", lambda actor: done)
    fault = CATALOGUE[name].fault()
    fault.inject(arena, random.Random(1))
    if isinstance(fault, AtStep):
        fault._do(arena, fault.victims[0])
    assert not fault.felt(arena)
    for actor in arena.actors:
        actor.link._newest = AFTER
    assert fault.felt(arena) == done


def test_a_session_is_expired_once(zk_server: object, tmp_path: Path) -> None:
    hosts = str(zk_server.hosts)  # type: ignore[attr-defined]
    arena = Arena(Settings("embedded", 1), tmp_path)
    arena.servers = cast("Servers", SimpleNamespace(hosts=hosts))
    link = Link([int(hosts.rpartition(":")[2])])
    actor = Actor("worker0", "worker", link)
    with plain_client(link.hosts) as client:
        old = link.session
        assert old is not None
        assert arena.expire(actor)
        wait_until(lambda: link.session not in (None, old) and client.connected, "it has another")
        link.forget_session()
        link._newest = old
        assert not arena.expire(actor), "there was nothing to end"
    link.close()


def test_who_is_connected_to_no_server_is_not_whole(
    arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not arena.is_whole(), "a session of before is none"
    monkeypatch.setattr(Link, "at", property(lambda link: {1}))
    assert arena.is_whole()


# ---- what happens at a step


class Slow:
    """To expire takes until it is let go."""

    def __init__(self) -> None:
        self.times, self.go_on = 0, threading.Event()

    def __call__(self, actor: Actor) -> bool:
        self.times += 1
        return self.go_on.wait(20)


def test_only_the_first_step_is_hit_and_healing_waits_until_it_was(
    arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    expire = Slow()
    monkeypatch.setattr(arena, "expire", expire)
    fault = AtStep("expired at a claim", "worker", "claim", "expire")
    fault.inject(arena, random.Random(1))
    (victim,) = fault.victims
    weather = victim.link.weather
    assert weather.lose is not None
    assert weather.seen is not None
    weather.lose("claim", 1)
    for _ in range(3):
        weather.seen("claim")
    healing = threading.Thread(target=fault.heal, args=(arena,))
    healing.start()
    healing.join(0.3)
    assert healing.is_alive()
    assert weather.hold_answers, "its client may not act on the answer before"
    assert not victim.link.is_fair
    expire.go_on.set()
    healing.join(20)
    assert [healing.is_alive(), weather.hold_answers] == [False, False]
    assert expire.times == 1


def test_no_step_is_hit_after_the_healing(arena: Arena) -> None:
    fault = AtStep("killed at a claim", "worker", "claim", "kill")
    fault.inject(arena, random.Random(1))
    (victim,) = fault.victims
    weather, pid = victim.link.weather, victim.pid
    assert weather.lose is not None
    assert weather.seen is not None
    weather.lose("claim", 1)
    fault.heal(arena)
    weather.seen("claim")
    assert victim.pid == pid


@pytest.mark.timeout(20)
def test_a_server_that_does_not_serve_is_healed_again(arena: Arena) -> None:
    """Nobody was hit, and the first healing breaks off: the second one must not wait for a hit."""
    answers = iter([ServerDidNotStart("not yet"), None])

    def make_serve() -> None:
        if error := next(answers):
            raise error

    leader = SimpleNamespace(pid=None)
    arena.servers = cast(
        "Servers",
        SimpleNamespace(leader=lambda: leader, make_serve=make_serve, ensemble=object()),
    )
    arena.actors = [actor for actor in arena.actors if actor.role == "worker"]
    fault = CATALOGUE["server killed at commit"].fault()
    fault.inject(arena, random.Random(1))
    with pytest.raises(ServerDidNotStart):
        fault.heal(arena)
    fault.heal(arena)
    assert not fault.felt(arena)
    assert fault.aim() == EVERYBODY, "its victim is the server"


# ---- tasks


@pytest.mark.parametrize(
    ("code", "felt"),
    [
        (-signal.SIGABRT, True),
        (-signal.SIGSEGV, True),
        (1, True),
        (None, False),
        (-signal.SIGKILL, False),
        (EXIT_CODE, False),
    ],
)
def test_who_survives_without_memory_has_not_felt_it(
    arena: Arena, code: int | None, felt: bool
) -> None:
    fault = Poked("task eats memory", "memory")
    fault.inject(arena, random.Random(1))
    pid = arena.workers[0].pid
    fault._poke.told.write_text(f'[{pid}, "refused", 1]\n')
    if code is not None:
        arena.endings[pid] = code
    assert fault.felt(arena) == felt


def test_the_end_without_memory_is_waited_for_as_long_as_a_worker_may_take() -> None:
    """Healed before, it counts as felt by nobody, although its worker is on its way out."""
    fault = CATALOGUE["task eats memory"].fault()
    assert fault.waits_s > Settings("ensemble", 1).session_s + _ENDS_WITHIN_S


# ---- servers


def test_where_nobody_leads_no_leader_is_broken() -> None:
    def leader(timeout_s: float) -> None:
        raise TimeoutError("nobody leads")

    servers = object.__new__(Servers)
    servers.ensemble = SimpleNamespace(leader=leader)  # type: ignore[assignment]
    with pytest.raises(ServerDidNotStart, match="nobody leads"):
        servers.leader()
    arena = cast("Arena", SimpleNamespace(servers=servers))
    for name in ("leader killed", "leader's peers unheard", "quorum lost"):
        with pytest.raises(ServerDidNotStart, match="nobody leads"):
            CATALOGUE[name].fault().inject(arena, random.Random(1))


def test_a_partition_that_never_began_can_be_healed(arena: Arena) -> None:
    arena.servers = cast("Servers", SimpleNamespace(make_serve=lambda: None))
    CATALOGUE["leader's peers unheard"].fault().heal(arena)


def test_a_long_outage_is_felt_when_it_was_long_and_healed_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ServerDown, "inject", lambda *_: None)
    monkeypatch.setattr(ServerDown, "felt", lambda *_: True)
    arena = cast("Arena", SimpleNamespace(servers=SimpleNamespace(make_serve=lambda: None)))
    fault = LongOutage("all servers down for 20 s", "kill", "all")
    fault.inject(arena, random.Random(1))
    assert not fault.felt(arena)
    began = time.monotonic()
    fault.heal(arena)
    assert time.monotonic() - began < fault.DOWN_S / 2, "nobody else is looked after meanwhile"
    fault._since -= fault.DOWN_S
    assert fault.felt(arena)
    assert fault.waits_s > fault.DOWN_S


def test_a_disk_is_full_though_the_server_was_killed_before(arena: Arena, tmp_path: Path) -> None:
    """Its log has room that would be written again: the disk would not be met."""
    with EmbeddedServerProcess(data=tmp_path / "server") as server:
        with plain_client(server.hosts) as client:
            for number in range(20):
                client.create(f"/znode{number}", bytes(50_000))
        server.kill()
        server.start()
        log = server.data / "data" / f"{DATABASE}-wal"
        assert size_of(log) > 1_000_000
        disk = Writes(log)
        arena.servers = cast("Servers", SimpleNamespace(members=[server], disk=disk))
        CATALOGUE["disk full"].fault().inject(arena, random.Random(1))
    assert disk.filled == (_SPARE_BYTES, 0), "as much is left, and the log has no room in it"
    assert disk.written >= _LOGGED_BYTES, "it has been written to since"


class Writes:
    """A disk to which somebody writes; with what it was filled, and how long the log was then."""

    def __init__(self, log: Path) -> None:
        self.log, self.written, self.filled = log, 0, (-1, -1)

    @property
    def used_bytes(self) -> int:
        self.written += 90_000
        return self.written

    def fill(self, spare_bytes: int) -> None:
        self.filled = spare_bytes, size_of(self.log)


def size_of(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


# ---- partitions


def clinging(arena: Arena, monkeypatch: pytest.MonkeyPatch, ports: list[int]) -> Clinging:
    """Some that are let in there when the members are parted."""
    monkeypatch.setattr(network, "wait_a_while", lambda ready: None)
    monkeypatch.setattr(network, "Parted", SimpleNamespace)
    fault = Clinging("clinging", lambda *_: None, lambda seen: True, whom=1)
    fault.ports = PORTS
    monkeypatch.setattr(Link, "at", property(lambda link: set(ports)))
    fault.before_parting(arena, random.Random(1))
    fault.parted = cast("Parted", SimpleNamespace(watch=SimpleNamespace(look=lambda: None)))
    return fault


@pytest.mark.parametrize(("at", "later"), [([], [2]), ([1, 2], [2])])
def test_who_comes_to_a_member_after_it_was_parted_did_not_cling_to_it(
    arena: Arena, monkeypatch: pytest.MonkeyPatch, at: list[int], later: list[int]
) -> None:
    fault = clinging(arena, monkeypatch, at)
    monkeypatch.setattr(Link, "at", property(lambda link: set(later)))
    assert not fault.felt(arena)


def test_who_clung_to_a_member_may_be_let_in_nowhere_afterwards(
    arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = clinging(arena, monkeypatch, [2])
    monkeypatch.setattr(Link, "at", property(lambda link: set()))
    assert fault.felt(arena)


class Members:
    """What three members say at each look."""

    def __init__(self, *looks: list[dict[str, str]]) -> None:
        self.said = [status for look in looks for status in look]

    def status(self, hosts: str) -> dict[str, str]:
        return self.said.pop(0)


@pytest.mark.parametrize(
    ("looks", "felt"),
    [
        ([[SILENT, FOLLOWS, FOLLOWS]], False),
        ([[LEADS, FOLLOWS, FOLLOWS], [SILENT, FOLLOWS, FOLLOWS]], False),
        ([[SILENT, FOLLOWS, FOLLOWS], [LEADS, FOLLOWS, FOLLOWS]], False),
        ([[SILENT, FOLLOWS, FOLLOWS]] * 2, True),
    ],
)
def test_a_look_in_vain_is_no_leader_that_was_cut_off(
    monkeypatch: pytest.MonkeyPatch, looks: list[list[dict[str, str]]], felt: bool
) -> None:
    assert network._is_leader_cut(seen(monkeypatch, looks)) == felt


@pytest.mark.parametrize(
    ("looks", "felt"),
    [
        ([[LEADS, SILENT, FOLLOWS]], False),
        ([[LEADS, FOLLOWS, FOLLOWS], [LEADS, SILENT, FOLLOWS]], False),
        ([[LEADS, SILENT, FOLLOWS]] * 2, True),
    ],
)
def test_a_look_in_vain_is_no_follower_that_is_out(
    monkeypatch: pytest.MonkeyPatch, looks: list[list[dict[str, str]]], felt: bool
) -> None:
    assert network._is_one_out(seen(monkeypatch, looks)) == felt


def seen(monkeypatch: pytest.MonkeyPatch, looks: list[list[dict[str, str]]]) -> Parted:
    """Something was struck between all of them, and that is what they say."""
    monkeypatch.setattr(watch, "server_status", Members(*looks).status)
    peers = SimpleNamespace(struck={})
    members = [SimpleNamespace(hosts=f"member {number}") for number in (1, 2, 3)]
    parted = Parted(cast("Servers", SimpleNamespace(peers=peers, members=members)), 1, 2, 3)
    monkeypatch.setattr(parted, "struck", lambda *way: True)
    for _ in looks:
        parted.watch.look()
    return parted
