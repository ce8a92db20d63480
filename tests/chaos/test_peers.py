"""The proxies between the members of an ensemble part them as they say."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.crash.server import not_available
from tests.integ.support import plain_client, wait_until
from zkplan.testing.java import find_java, find_zookeeper

from .world.servers import Servers

WAIT_S = 40.0


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    if find_java() is None or find_zookeeper() is None:
        not_available("no ZooKeeper is installed here")
    with ExitStack() as stack:
        yield Servers("ensemble", stack, 250)


@pytest.fixture
def numbers(servers: Servers) -> Iterator[list[int]]:
    """The leader's number and those of the followers; afterwards all serve again."""
    servers.make_serve()
    leader = servers.number_of(servers.leader())
    yield [leader, *({1, 2, 3} - {leader})]
    servers.make_serve()


def modes(servers: Servers) -> list[str | None]:
    return [member.mode for member in servers.members]


def test_a_leader_left_behind_leads_on_beside_the_new_one(
    servers: Servers, numbers: list[int]
) -> None:
    leader, *others = numbers
    servers.peers.leave(leader, others)
    wait_until(lambda: modes(servers).count("leader") == 2, "two members say they lead", WAIT_S)
    assert servers.members[leader - 1].mode == "leader"
    servers.peers.heal()
    all_in_order = ["follower", "follower", "leader"]
    wait_until(lambda: sorted(map(str, modes(servers))) == all_in_order, "one leads", WAIT_S)


def test_a_leader_cut_off_stops_serving_and_another_leads(
    servers: Servers, numbers: list[int]
) -> None:
    leader, *others = numbers
    for other in others:
        servers.peers.cut(leader, other)
    wait_until(
        lambda: (
            servers.members[leader - 1].mode is None
            and sorted(str(servers.members[other - 1].mode) for other in others)
            == ["follower", "leader"]
        ),
        "the other two go on",
        WAIT_S,
    )


def test_a_follower_cut_off_stops_serving_and_the_leader_leads_on(
    servers: Servers, numbers: list[int]
) -> None:
    leader, one, other = numbers
    servers.peers.cut(one, leader)
    servers.peers.cut(one, other)
    wait_until(lambda: servers.members[one - 1].mode is None, "the follower stops", WAIT_S)
    assert servers.members[leader - 1].mode == "leader"
    assert servers.members[other - 1].mode == "follower"


def test_a_slow_link_makes_reads_old(servers: Servers, numbers: list[int]) -> None:
    """A znode that was made through the leader is not yet seen at the follower."""
    leader, one, _ = numbers
    servers.peers.delay(leader, one, 1.0)
    count = itertools.count()
    with (
        plain_client(servers.members[leader - 1].hosts) as at_leader,
        plain_client(servers.members[one - 1].hosts) as at_follower,
    ):

        def lags() -> bool:
            path = at_leader.create(f"/lag-{next(count)}")
            return at_follower.exists(path) is None

        wait_until(lags, "the follower has not seen what the leader has", WAIT_S)
        servers.peers.heal()
        wait_until(lambda: not lags(), "the follower has caught up", WAIT_S)
