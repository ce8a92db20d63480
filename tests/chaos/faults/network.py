"""Faults between the members of an ensemble: partitions, whole, partial and one-way; slow links."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from ..world.arena import Actor, Arena
from ..world.link import Weather
from ..world.peers import PORTS, Peers, Port
from ..world.servers import Kind, Servers
from ..world.watch import Watch
from .fault import SERVERS, Entry, Fault, enter, links_of
from .patience import wait_a_while

#: What happens between the leader, one follower and the other one, by their numbers.
Parting = Callable[[Peers, int, int, int], None]
#: By how much the link of a stale follower is slower; and how much later it must know a thing.
_SLOW_S = 0.4
_BEHIND_S = 0.3


class Parted:
    """A partition as its members and their proxies tell of it, from when it began."""

    def __init__(self, servers: Servers, leader: int, one: int, other: int) -> None:
        self.leader, self.one, self.other = leader, one, other
        self.watch = Watch(servers.members)
        self._struck = servers.peers.struck
        self._before = Counter(self._struck)

    def struck(self, sender: int, receiver: int, port: Port = "quorum") -> bool:
        """Whether anything was refused, broken, held or kept back on that way."""
        way = sender, receiver, port
        return self._struck[way] > self._before[way]


#: Whether it does what it says, after a look at the members.
Shown = Callable[[Parted], bool]


class Partition(Fault):
    """Links between the members are in a bad way; clients reach every member."""

    lasts = (0.5, 3.0)
    # An election, or a write that one member does not come to know of.
    waits_s = 10.0
    claims = frozenset({SERVERS})

    def __init__(self, name: str, parting: Parting, shown: Shown) -> None:
        super().__init__(name)
        self.parting, self.shown = parting, shown
        self.numbers: tuple[int, ...] = ()

    def inject(self, arena: Arena, chance: random.Random) -> None:
        servers = arena.servers
        leader = servers.leader()
        one, other = chance.sample([each for each in servers.members if each is not leader], 2)
        self.numbers = tuple(servers.number_of(each) for each in (leader, one, other))
        self.ports = [each.port for each in (leader, one, other)]
        self.before_parting(arena, chance)
        self.parted = Parted(servers, *self.numbers)
        self.parting(servers.peers, *self.numbers)

    def before_parting(self, arena: Arena, chance: random.Random) -> None:
        """What must stand by then."""

    def felt(self, arena: Arena) -> bool:
        self.parted.watch.look()
        return self.shown(self.parted)

    def heal(self, arena: Arena) -> None:
        arena.servers.make_serve()


class Clinging(Partition):
    """The same, and some workers reach one member only: the `whom`-th of those that are parted.

    They are there before: a member that has lost its leader lets nobody in any more.
    """

    claims = frozenset({SERVERS}) | links_of("worker")

    def __init__(self, name: str, parting: Parting, shown: Shown, whom: int) -> None:
        super().__init__(name, parting, shown)
        self.whom = whom
        self.clinging: Sequence[Actor] = ()
        self._clung = False

    def before_parting(self, arena: Arena, chance: random.Random) -> None:
        workers = arena.workers
        self.clinging = chance.sample(workers, max(1, len(workers) // 2))
        for actor in self.clinging:
            actor.link.change(Weather(only=self.ports[self.whom]))
            actor.link.cut()
        wait_a_while(self._cling)
        self._clung = self._cling()

    def felt(self, arena: Arena) -> bool:
        return self._clung and super().felt(arena)

    def heal(self, arena: Arena) -> None:
        for actor in self.clinging:
            actor.link.calm()
        super().heal(arena)

    def _cling(self) -> bool:
        """Whether each of them is let in there, and nowhere else."""
        return all(actor.link.at == {self.ports[self.whom]} for actor in self.clinging)


class Unacknowledged(Clinging):
    """What the leader proposes reaches the followers, which write it down; their answers do not.

    At the end it loses both: what nobody was told of is committed by the next leader. It leads no
    more by then, for a follower that came back to it would answer after all.
    """

    lasts = (0.3, 1.0)

    def heal(self, arena: Arena) -> None:
        if self.numbers:
            leader, *others = self.numbers
            for other in others:
                arena.servers.peers.cut(leader, other)
            wait_a_while(lambda: arena.servers.members[leader - 1].mode != "leader")
        super().heal(arena)


# ---- who is parted from whom, and by what that shows


def _cut_leader(peers: Peers, leader: int, one: int, other: int) -> None:
    peers.cut(leader, one)
    peers.cut(leader, other)


def _is_leader_cut(seen: Parted) -> bool:
    lost_both = seen.struck(seen.one, seen.leader) and seen.struck(seen.other, seen.leader)
    return lost_both and seen.watch.is_out(seen.leader)


def _leave(peers: Peers, leader: int, one: int, other: int) -> None:
    peers.leave(leader, (one, other))


def _do_two_lead(seen: Parted) -> bool:
    others = {seen.watch.mode(seen.one), seen.watch.mode(seen.other)}
    return seen.watch.mode(seen.leader) == "leader" and "leader" in others


def _unheard(peers: Peers, leader: int, one: int, other: int) -> None:
    peers.hold(one, leader)
    peers.hold(other, leader)


def _is_nothing_acknowledged(seen: Parted) -> bool:
    both_held = seen.struck(seen.one, seen.leader) and seen.struck(seen.other, seen.leader)
    return both_held and seen.watch.stands_still(seen.leader)


def _cut_follower(peers: Peers, leader: int, one: int, other: int) -> None:
    peers.cut(leader, one)
    peers.cut(one, other)


def _partial(peers: Peers, leader: int, one: int, other: int) -> None:
    peers.cut(leader, one)


def _partial_data(peers: Peers, leader: int, one: int, other: int) -> None:
    peers.cut(leader, one, PORTS[:1])


def _is_one_out(seen: Parted) -> bool:
    """It serves nobody, the other two go on."""
    modes = [seen.watch.mode(number) for number in (seen.leader, seen.other)]
    is_out = seen.watch.is_out(seen.one)
    return seen.struck(seen.leader, seen.one) and is_out and modes == ["leader", "follower"]


def _follower_left(peers: Peers, leader: int, one: int, other: int) -> None:
    peers.leave(one, (leader, other))


def _deaf(peers: Peers, leader: int, one: int, other: int) -> None:
    peers.hold(leader, one)


def _slow(peers: Peers, leader: int, one: int, other: int) -> None:
    peers.delay(leader, one, _SLOW_S)


def _is_one_behind(seen: Parted) -> bool:
    """It serves on, and does not know what the others have known for a while."""
    struck = seen.struck(seen.leader, seen.one)
    return struck and seen.watch.is_behind(seen.one, _BEHIND_S)


def _flapping(peers: Peers, leader: int, one: int, other: int) -> None:
    peers.hang_up(leader, one)
    peers.hang_up(leader, other)


def _have_links_broken(seen: Parted) -> bool:
    return seen.struck(seen.leader, seen.one) and seen.struck(seen.leader, seen.other)


def _nothing(peers: Peers, leader: int, one: int, other: int) -> None:
    """Only the clients are restricted."""


def _always(seen: Parted) -> bool:
    """Between the members there is nothing to see."""
    return True


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
                partial(Partition, parting=_cut_leader, shown=_is_leader_cut),
                2,
            ),
            (
                "leader left behind",
                "15",
                "the followers elect a new leader; the old one leads on, workers cling to it",
                partial(Clinging, parting=_leave, shown=_do_two_lead, whom=_LEADER),
                2,
            ),
            (
                "leader's peers unheard",
                "15",
                "proposals reach the followers, their answers nobody; the next leader commits them",
                partial(
                    Unacknowledged, parting=_unheard, shown=_is_nothing_acknowledged, whom=_LEADER
                ),
                2,
            ),
            (
                "follower cut off",
                "15",
                "one follower loses the others, and knows it",
                partial(Partition, parting=_cut_follower, shown=_is_one_out),
                1,
            ),
            (
                "follower left behind",
                "15",
                "one follower is alone and does not know it; workers cling to it",
                partial(Clinging, parting=_follower_left, shown=_is_one_behind, whom=_ONE),
                2,
            ),
            (
                "partial partition",
                "16",
                "leader and one follower lose each other, the third reaches both",
                partial(Partition, parting=_partial, shown=_is_one_out),
                2,
            ),
            (
                "partial partition of data",
                "16",
                "the same on the quorum port only: each may vote for a leader it cannot follow",
                partial(Partition, parting=_partial_data, shown=_is_one_out),
                1,
            ),
            (
                "follower deaf",
                "16",
                "one way: nothing of the leader reaches one follower; workers cling to it",
                partial(Clinging, parting=_deaf, shown=_is_one_behind, whom=_ONE),
                2,
            ),
            (
                "quorum links break",
                "12",
                "the connections between leader and followers break once",
                partial(Partition, parting=_flapping, shown=_have_links_broken),
                1,
            ),
            (
                "follower stale",
                "18",
                "the link of one follower takes 0.4 s and more; workers read there, and only there",
                partial(Clinging, parting=_slow, shown=_is_one_behind, whom=_ONE),
                2,
            ),
            (
                "workers reach one follower",
                "16",
                "half of the workers reach one member only",
                partial(Clinging, parting=_nothing, shown=_always, whom=_ONE),
                1,
            ),
        )
    ]
)
