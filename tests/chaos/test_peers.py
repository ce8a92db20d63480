"""Each partition parts what it says, and when it is healed the members are one again."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss

from tests.crash.server import not_available
from tests.integ.support import plain_client, wait_until
from zkplan.testing.java import find_java, find_zookeeper

from .faults.catalogue import CATALOGUE
from .faults.network import Partition
from .world.arena import Arena, Settings
from .world.peers import Port
from .world.watch import Watch

WAIT_S = 40.0
#: Where a transaction's number counts the leaders, and not their transactions.
TERM = 32
names = (f"/written-{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    """An ensemble, and the link of a worker that is not there: its place is a plain client's."""
    if find_java() is None or find_zookeeper() is None:
        not_available("no ZooKeeper is installed here")
    settings = Settings("ensemble", 1, workers=1, staged=True)
    with Arena(settings, tmp_path_factory.mktemp("peers")) as arena:
        yield arena


@pytest.fixture(scope="module")
def worker(arena: Arena) -> Iterator[KazooClient]:
    """A client over the link that faults restrict where workers are to cling to one member."""
    with plain_client(arena.workers[0].link.hosts) as client:
        yield client


@pytest.fixture
def part(
    arena: Arena, worker: KazooClient, request: pytest.FixtureRequest
) -> Iterator[Callable[[str], Partition]]:
    """Inject the partition of that name; afterwards it is healed, whatever the test has found."""
    arena.servers.make_serve()
    wait_until(lambda: worker.connected and arena.workers[0].link.at, "it is connected", WAIT_S)
    injected = []

    def part(name: str) -> Partition:
        fault = CATALOGUE[name].fault()
        assert isinstance(fault, Partition)
        fault.inject(arena, random.Random(4))
        injected.append(fault)
        return fault

    yield part
    for fault in injected:
        fault.heal(arena)


def writes(client: KazooClient) -> bool:
    """A write is acknowledged by whom this client is at."""
    client.create(next(names))
    return True


def one_knows(fault: Partition, client: KazooClient, arena: Arena) -> bool:
    """The fault is felt, while somebody writes where writes are possible."""
    return writes(client) and fault.felt(arena)


def joins(fault: Partition, arena: Arena) -> None:
    """Healed, they have one leader, and what is written comes to each of them."""
    fault.heal(arena)
    watch = Watch(arena.servers.members)
    with plain_client(arena.servers.hosts) as client:
        path = next(names)
        client.create(path)
        written = client.exists(path).czxid

    def is_one() -> bool:
        watch.look()
        modes = sorted(str(watch.mode(number)) for number in (1, 2, 3))
        known = all(watch.applied(number) >= written for number in (1, 2, 3))
        return known and modes == ["follower", "follower", "leader"]

    wait_until(is_one, "one leads, and all three know what was written", WAIT_S)


def hosts(arena: Arena, number: int) -> str:
    return arena.servers.members[number - 1].hosts


def modes(fault: Partition) -> list[str | None]:
    """Of the one that led when it was injected, of one follower, and of the other."""
    fault.parted.watch.look()
    return [fault.parted.watch.mode(number) for number in fault.numbers]


def shows(fault: Partition, expected: list[str | None]) -> None:
    """They have these modes; whom a busy machine keeps from an answer in time is asked again."""
    wait_until(lambda: modes(fault) == expected, f"their modes are {expected}", WAIT_S)


class Ways:
    """What passes between members from now on."""

    def __init__(self, arena: Arena) -> None:
        self._passed = arena.servers.peers.passed
        self._before = dict(self._passed)

    def pass_(self, sender: int, receiver: int, port: Port = "quorum") -> bool:
        way = sender, receiver, port
        return self._passed[way] > self._before.get(way, 0)


Part = Callable[[str], Partition]


def test_a_leader_left_behind_leads_on_beside_the_new_one(arena: Arena, part: Part) -> None:
    fault = part("leader left behind")
    wait_until(lambda: fault.felt(arena), "two members lead", WAIT_S)
    two_and_one = [["leader", "leader", "follower"], ["leader", "follower", "leader"]]
    wait_until(lambda: modes(fault) in two_and_one, "the old one leads, and one other", WAIT_S)
    assert arena.workers[0].link.at == {fault.ports[0]}
    joins(fault, arena)


def test_a_leader_cut_off_stops_serving_and_another_leads(arena: Arena, part: Part) -> None:
    fault = part("leader cut off")
    wait_until(lambda: fault.felt(arena), "the leader leads no more", WAIT_S)
    others = {"leader", "follower"}
    wait_until(lambda: set(modes(fault)[1:]) == others, "the other two go on", WAIT_S)
    assert modes(fault)[0] is None
    joins(fault, arena)


def test_what_a_leader_without_answers_proposed_is_committed_by_the_next(
    arena: Arena, worker: KazooClient, part: Part
) -> None:
    fault = part("leader's peers unheard")
    leader, one, other = fault.numbers
    ways, path, watch = Ways(arena), next(names), Watch(arena.servers.members)
    watch.look()
    known = watch.applied(leader)
    answer = worker.create_async(path)
    wait_until(lambda: fault.felt(arena), "the leader commits nothing", WAIT_S)
    wait_until(
        lambda: ways.pass_(leader, one) and ways.pass_(leader, other), "followers hear it", WAIT_S
    )
    assert not answer.ready()
    watch.look()
    assert max(map(watch.applied, fault.numbers)) == known
    joins(fault, arena)
    with pytest.raises(ConnectionLoss):
        answer.get(timeout=WAIT_S)
    with plain_client(arena.servers.hosts) as reader:
        written = reader.exists(path)
    assert written is not None, "its followers had written it down"
    assert written.czxid >> TERM == known >> TERM
    watch.look()
    assert max(map(watch.applied, fault.numbers)) >> TERM > known >> TERM


def test_a_follower_cut_off_stops_serving_and_the_leader_leads_on(arena: Arena, part: Part) -> None:
    fault = part("follower cut off")
    _, one, other = fault.numbers
    wait_until(lambda: fault.felt(arena), "the follower stops", WAIT_S)
    wait_until(lambda: fault.parted.struck(one, other, "election"), "it asks the other", WAIT_S)
    with plain_client(hosts(arena, other)) as client:
        assert writes(client)
    joins(fault, arena)


def test_a_follower_left_behind_serves_on_and_knows_nothing(
    arena: Arena, worker: KazooClient, part: Part
) -> None:
    fault = part("follower left behind")
    leader, one, other = fault.numbers
    with plain_client(hosts(arena, other)) as client:
        wait_until(lambda: one_knows(fault, client, arena), "it is behind", WAIT_S)
        ways, path = Ways(arena), next(names)
        client.create(path)
    shows(fault, ["leader", "follower", "follower"])
    assert worker.exists(path) is None, "who reads there reads what was"
    assert not any(ways.pass_(*way) for way in [(leader, one), (one, leader)])
    joins(fault, arena)
    wait_until(lambda: worker.retry(worker.exists, path), "now it is known there too", WAIT_S)


def test_in_a_partial_partition_the_third_member_hears_both(arena: Arena, part: Part) -> None:
    fault = part("partial partition")
    leader, one, other = fault.numbers
    wait_until(lambda: fault.felt(arena), "the follower stops, the others go on", WAIT_S)
    ways = Ways(arena)
    wait_until(
        lambda: ways.pass_(one, other, "election") and ways.pass_(other, one, "election"),
        "it votes, and is answered",
        WAIT_S,
    )
    with plain_client(hosts(arena, other)) as client:
        assert writes(client)
    shows(fault, ["leader", None, "follower"])
    for port in ("quorum", "election"):
        assert not ways.pass_(leader, one, port)
        assert not ways.pass_(one, leader, port)
    joins(fault, arena)


def test_in_a_partial_partition_of_data_a_member_votes_for_whom_it_cannot_follow(
    arena: Arena, part: Part
) -> None:
    fault = part("partial partition of data")
    leader, one, _ = fault.numbers
    wait_until(lambda: fault.felt(arena), "the follower stops, the others go on", WAIT_S)
    ways, struck = Ways(arena), arena.servers.peers.struck
    refused = struck[one, leader, "quorum"]
    wait_until(
        lambda: ways.pass_(one, leader, "election") and ways.pass_(leader, one, "election"),
        "it votes, and the leader answers",
        WAIT_S,
    )
    # Only who has found a leader calls it there.
    wait_until(
        lambda: struck[one, leader, "quorum"] > refused, "the leader's data refuse it", WAIT_S
    )
    shows(fault, ["leader", None, "follower"])
    assert not ways.pass_(leader, one)
    assert not ways.pass_(one, leader)
    joins(fault, arena)


def test_a_deaf_follower_is_heard_and_hears_nothing(
    arena: Arena, worker: KazooClient, part: Part
) -> None:
    fault = part("follower deaf")
    leader, one, _ = fault.numbers
    with plain_client(hosts(arena, leader)) as client:
        wait_until(lambda: one_knows(fault, client, arena), "it is behind", WAIT_S)
        ways, path = Ways(arena), next(names)
        answer = worker.create_async(path)
        wait_until(lambda: client.exists(path), "the leader has heard it", WAIT_S)
    assert ways.pass_(one, leader)
    assert not ways.pass_(leader, one)
    assert not answer.ready()
    shows(fault, ["leader", "follower", "follower"])
    joins(fault, arena)


def test_broken_quorum_links_are_made_again_by_themselves(arena: Arena, part: Part) -> None:
    """Whether the leader keeps its quorum meanwhile is a race between its followers."""
    peers = arena.servers.peers
    pairs = list(itertools.combinations((1, 2, 3), 2))
    before = {pair: peers.standing(*pair, "quorum") for pair in pairs}
    assert sum(map(len, before.values())) == 2
    fault = part("quorum links break")
    wait_until(lambda: fault.felt(arena), "the links are broken", WAIT_S)

    def are_new() -> bool:
        new = {pair: peers.standing(*pair, "quorum") for pair in pairs}
        kept = any(new[pair] & before[pair] for pair in pairs)
        return not kept and sum(map(len, new.values())) == 2 and None not in modes(fault)

    wait_until(are_new, "there are others, and nothing was healed", WAIT_S)
    joins(fault, arena)


def test_a_slow_link_makes_reads_old(arena: Arena, worker: KazooClient, part: Part) -> None:
    """What was made through the leader is not yet seen at the follower, and comes by itself."""
    fault = part("follower stale")
    with plain_client(hosts(arena, fault.numbers[0])) as client:
        wait_until(lambda: one_knows(fault, client, arena), "it is behind", WAIT_S)

        def lags() -> bool:
            path = next(names)
            client.create(path)
            late = worker.exists(path) is None
            wait_until(lambda: worker.exists(path), "it comes, nothing was healed", WAIT_S)
            return late

        wait_until(lags, "the follower has not seen what the leader has", WAIT_S)
    shows(fault, ["leader", "follower", "follower"])
    joins(fault, arena)


def test_workers_that_reach_one_follower_come_back_to_it_alone(
    arena: Arena, worker: KazooClient, part: Part
) -> None:
    link = arena.workers[0].link
    fault = part("workers reach one follower")
    wait_until(lambda: fault.felt(arena), "they are there", WAIT_S)
    # Elsewhere they are refused: it is killed, and they are nowhere.
    arena.servers.members[fault.numbers[1] - 1].kill()
    struck = link.struck
    wait_until(lambda: link.struck >= struck + 2, "the others refuse it", WAIT_S)
    assert link.at == set()
    assert not worker.connected
    joins(fault, arena)
    wait_until(lambda: worker.connected, "it is let in again", WAIT_S)
