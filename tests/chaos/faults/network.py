"""Faults between the members of an ensemble: partitions, whole, partial and one-way; slow links."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from ..world.arena import Arena
from ..world.link import Weather
from ..world.peers import PORTS, Peers
from ..world.servers import Kind
from .fault import Entry, Fault, enter

#: What happens between the leader, one follower and the other one, by their numbers.
Parting = Callable[[Peers, int, int, int], None]


class Partition(Fault):
    """Links between the members are in a bad way; clients reach every member."""

    lasts = (0.5, 3.0)

    def __init__(self, name: str, parting: Parting) -> None:
        super().__init__(name)
        self.parting = parting

    def inject(self, arena: Arena, chance: random.Random) -> None:
        servers = arena.servers
        leader = servers.leader()
        one, other = chance.sample([each for each in servers.members if each is not leader], 2)
        self.numbers = tuple(servers.number_of(each) for each in (leader, one, other))
        self.ports = [each.port for each in (leader, one, other)]
        self.parting(servers.peers, *self.numbers)

    def felt(self, arena: Arena) -> bool:
        return True  # not shown yet

    def heal(self, arena: Arena) -> None:
        arena.servers.make_serve()


class Clinging(Partition):
    """The same, and some workers reach one member only: the `whom`-th of those that are parted."""

    def __init__(self, name: str, parting: Parting, whom: int) -> None:
        super().__init__(name, parting)
        self.whom = whom

    def inject(self, arena: Arena, chance: random.Random) -> None:
        workers = arena.workers
        chosen = chance.sample(workers, max(1, len(workers) // 2))
        super().inject(arena, chance)
        for actor in chosen:
            actor.link.change(Weather(only=self.ports[self.whom]))
            actor.link.cut()
        self.clinging = chosen

    def heal(self, arena: Arena) -> None:
        for actor in self.clinging:
            actor.link.change(Weather())
        super().heal(arena)


class Unacknowledged(Clinging):
    """What the leader proposes reaches the followers, which write it down; their answers do not.

    At the end all connections break: what nobody was told of is committed by the next leader.
    """

    lasts = (0.3, 1.0)

    def heal(self, arena: Arena) -> None:
        leader, *others = self.numbers
        for other in others:
            arena.servers.peers.hang_up(leader, other)
        super().heal(arena)


def _leave(peers: Peers, leader: int, one: int, other: int) -> None:
    peers.leave(leader, (one, other))


def _cut_leader(peers: Peers, leader: int, one: int, other: int) -> None:
    peers.cut(leader, one)
    peers.cut(leader, other)


def _cut_follower(peers: Peers, leader: int, one: int, other: int) -> None:
    peers.cut(leader, one)
    peers.cut(one, other)


def _follower_left(peers: Peers, leader: int, one: int, other: int) -> None:
    peers.leave(one, (leader, other))


def _partial(peers: Peers, leader: int, one: int, other: int) -> None:
    peers.cut(leader, one)


def _partial_data(peers: Peers, leader: int, one: int, other: int) -> None:
    peers.cut(leader, one, PORTS[:1])


def _unheard(peers: Peers, leader: int, one: int, other: int) -> None:
    peers.hold(one, leader)
    peers.hold(other, leader)


def _deaf(peers: Peers, leader: int, one: int, other: int) -> None:
    peers.hold(leader, one)


def _slow(peers: Peers, leader: int, one: int, other: int) -> None:
    peers.delay(leader, one, 0.4)


def _flapping(peers: Peers, leader: int, one: int, other: int) -> None:
    peers.hang_up(leader, one)
    peers.hang_up(leader, other)


def _nothing(peers: Peers, leader: int, one: int, other: int) -> None:
    """Only the clients are restricted."""


_LEADER, _ONE = 0, 1
_THREE: tuple[Kind, ...] = ("ensemble",)
enter(
    [
        Entry(name, case, does, make, _THREE, weight)
        for name, case, does, make, weight in (
            (
                "leader cut off",
                "15",
                "the leader loses both followers, and knows it",
                partial(Partition, parting=_cut_leader),
                2,
            ),
            (
                "leader left behind",
                "15",
                "the followers elect a new leader; the old one leads on, workers cling to it",
                partial(Clinging, parting=_leave, whom=_LEADER),
                2,
            ),
            (
                "leader's peers unheard",
                "15",
                "proposals reach the followers, their answers nobody; the next leader commits them",
                partial(Unacknowledged, parting=_unheard, whom=_LEADER),
                2,
            ),
            (
                "follower cut off",
                "15",
                "one follower loses the others, and knows it",
                partial(Partition, parting=_cut_follower),
                1,
            ),
            (
                "follower left behind",
                "15",
                "one follower is alone and does not know it; workers cling to it",
                partial(Clinging, parting=_follower_left, whom=_ONE),
                2,
            ),
            (
                "partial partition",
                "16",
                "leader and one follower lose each other, the third reaches both",
                partial(Partition, parting=_partial),
                2,
            ),
            (
                "partial partition of data",
                "16",
                "the same on the quorum port only: each may vote for a leader it cannot follow",
                partial(Partition, parting=_partial_data),
                1,
            ),
            (
                "follower deaf",
                "16",
                "one way: nothing of the leader reaches one follower; workers cling to it",
                partial(Clinging, parting=_deaf, whom=_ONE),
                2,
            ),
            (
                "quorum links break",
                "12",
                "the connections between leader and followers break once",
                partial(Partition, parting=_flapping),
                1,
            ),
            (
                "follower stale",
                "18",
                "the link of one follower takes 0.4 s and more; workers read there, and only there",
                partial(Clinging, parting=_slow, whom=_ONE),
                2,
            ),
            (
                "workers reach one follower",
                "16",
                "half of the workers reach one member only",
                partial(Clinging, parting=_nothing, whom=_ONE),
                1,
            ),
        )
    ]
)
