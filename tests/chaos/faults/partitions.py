"""Partitions between the members of an ensemble: whole, partial and one-way; slow links.

Proxies between the members make them, not network namespaces: they need no root, can cut a single
direction or port, and can hide from one side what the other side notices. They cannot lose packets
below TCP; a held way, which does not even let a connection through, comes near to that.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence

from zkplan.testing.server_process import server_status

from ..cluster.cluster import Cluster, Process
from ..cluster.link import LinkState
from ..cluster.member_links import PORTS, MemberLinks, Port
from ..cluster.servers import Servers
from .fault import LINKS_OF, SERVERS, Fault, enter, wait_a_while

#: What is done between the leader, one follower and the other follower, by their numbers.
Part = Callable[[MemberLinks, int, int, int], None]
#: By how much the link of a stale follower is slower, and how far behind it has to be.
_SLOW_S = 0.4
_BEHIND_S = 0.3


class View:
    """What the members, by their numbers, and the proxies show of a partition since it began."""

    def __init__(self, servers: Servers, leader: int, one: int, other: int) -> None:
        self.leader, self.one, self.other = leader, one, other
        self._members, self._affected = servers.members, servers.links.affected
        self._affected_before = Counter(self._affected)
        self._status: dict[int, dict[str, str]] = {}
        self._status_before: dict[int, dict[str, str]] = {}
        #: When the last `look` began.
        self._began = 0.0
        #: By time, the number of the newest transaction that any member had applied.
        self._newest: list[tuple[float, int]] = []

    def look(self) -> None:
        """Ask all members."""
        self._began, self._status_before = time.monotonic(), self._status
        self._status = {
            number: server_status(member.hosts) for number, member in enumerate(self._members, 1)
        }
        self._newest.append((time.monotonic(), max(map(self._applied, self._status))))

    def affected(self, sender: int, receiver: int) -> bool:
        """Whether anything was refused, broken, held or delayed on that way of the data."""
        way: tuple[int, int, Port] = (sender, receiver, "quorum")
        return self._affected[way] > self._affected_before[way]

    def mode(self, number: int) -> str | None:
        """`leader` or `follower`; None where it does not serve."""
        return self._status[number].get("Mode")

    def is_out(self, number: int) -> bool:
        """Whether it did not serve at two looks in a row; on a busy machine one look may fail."""
        looks = [looked for looked in (self._status_before, self._status) if looked]
        return [looked[number].get("Mode") for looked in looks] == [None, None]

    def stands_still(self, number: int) -> bool:
        """Whether requests wait at it and it has applied nothing since the last look."""
        now, before = self._status[number], self._status_before.get(number, {})
        return int(now.get("Outstanding", "0")) > 0 and now.get("Zxid") == before.get("Zxid")

    def is_behind(self, number: int, seconds: float) -> bool:
        """Whether it serves, and lacks what another member had applied that long ago."""
        known = [newest for at, newest in self._newest if at <= self._began - seconds]
        return self.mode(number) is not None and self._applied(number) < max(known, default=-1)

    def _applied(self, number: int) -> int:
        """The number of the last transaction that it has applied; -1 where it gave no answer."""
        return int(self._status[number].get("Zxid", "-1"), 16)


#: Whether the partition does what its description says.
Shows = Callable[[View], bool]


class Partition(Fault):
    """Links between the members are broken or slow; clients reach every member."""

    lasts = (0.5, 3.0)
    # It takes an election, or a write that a member does not get.
    waits_s = 10.0
    locks = SERVERS

    def __init__(self, name: str, part: Part, shows: Shows) -> None:
        super().__init__(name)
        self.part, self.shows = part, shows
        self.numbers: tuple[int, ...] = ()

    def inject(self, cluster: Cluster, chance: random.Random) -> None:
        servers = cluster.servers
        leader = servers.leader()
        one, other = chance.sample([each for each in servers.members if each is not leader], 2)
        self.numbers = tuple(servers.number_of(each) for each in (leader, one, other))
        self.ports = [each.port for each in (leader, one, other)]
        self.before(cluster, chance)
        self.view = View(servers, *self.numbers)
        self.part(servers.links, *self.numbers)

    def before(self, cluster: Cluster, chance: random.Random) -> None:
        """What has to be so when the partition begins."""

    def took_effect(self, cluster: Cluster) -> bool:
        self.view.look()
        return self.shows(self.view)

    def heal(self, cluster: Cluster) -> None:
        cluster.servers.make_serve()


class PinnedPartition(Partition):
    """A partition during which half of the workers reach one member only.

    `whom` is that member: 0 the leader, 1 a follower. They are connected to it before, as a member
    without a leader accepts no new session.
    """

    locks = SERVERS | LINKS_OF["worker"]

    def __init__(self, name: str, part: Part, shows: Shows, whom: int) -> None:
        super().__init__(name, part, shows)
        self.whom = whom
        self.pinned: Sequence[Process] = ()
        self._were_there = False

    def before(self, cluster: Cluster, chance: random.Random) -> None:
        workers = cluster.workers
        self.pinned = chance.sample(workers, max(1, len(workers) // 2))
        for process in self.pinned:
            process.link.change(LinkState(only=self.ports[self.whom]))
            process.link.cut()
        wait_a_while(self._are_there)
        self._were_there = self._are_there()

    def took_effect(self, cluster: Cluster) -> bool:
        return self._were_there and super().took_effect(cluster)

    def heal(self, cluster: Cluster) -> None:
        for process in self.pinned:
            process.link.restore()
        super().heal(cluster)

    def _are_there(self) -> bool:
        """Whether each of them has a session at that member, and no other."""
        return all(process.link.at == {self.ports[self.whom]} for process in self.pinned)


class Unacknowledged(PinnedPartition):
    """The followers write down what the leader proposes, and their acknowledgements get lost.

    At the end the leader loses both followers, and the next leader commits what nobody has heard
    about. It has to lose its lead first: a follower that came back to it would acknowledge after
    all.
    """

    lasts = (0.3, 1.0)

    def heal(self, cluster: Cluster) -> None:
        if self.numbers:
            leader, *others = self.numbers
            for other in others:
                cluster.servers.links.cut(leader, other)
            wait_a_while(lambda: cluster.servers.members[leader - 1].mode != "leader")
        super().heal(cluster)


# ---- what shows that a partition does what its description says


def leader_is_out(view: View) -> bool:
    """It has lost both followers and does not serve."""
    lost_both = view.affected(view.one, view.leader) and view.affected(view.other, view.leader)
    return lost_both and view.is_out(view.leader)


def two_lead(view: View) -> bool:
    others = {view.mode(view.one), view.mode(view.other)}
    return view.mode(view.leader) == "leader" and "leader" in others


def nothing_commits(view: View) -> bool:
    both_held = view.affected(view.one, view.leader) and view.affected(view.other, view.leader)
    return both_held and view.stands_still(view.leader)


def follower_is_out(view: View) -> bool:
    """It does not serve, and the other two go on."""
    modes = [view.mode(number) for number in (view.leader, view.other)]
    is_out = view.is_out(view.one)
    return view.affected(view.leader, view.one) and is_out and modes == ["leader", "follower"]


def follower_is_behind(view: View) -> bool:
    """It serves, and lacks what the others have known for a while."""
    affected = view.affected(view.leader, view.one)
    return affected and view.is_behind(view.one, _BEHIND_S)


def both_links_broke(view: View) -> bool:
    return view.affected(view.leader, view.one) and view.affected(view.leader, view.other)


# ---- the partitions: what is done between the leader, one follower and the other one

_LEADER, _ONE = 0, 1


def _partition(
    name: str, how: type[Partition], shows: Shows, *whom: int, weight: int = 2
) -> Callable[[Part], Part]:
    """Enter the decorated function, with its docstring as the description."""

    def entered(part: Part) -> Part:
        does = str(part.__doc__).removesuffix(".")
        enter(name, does, how, part, shows, *whom, kinds=("ensemble",), weight=weight)
        return part

    return entered


@_partition("leader cut off", Partition, leader_is_out)
def _(links: MemberLinks, leader: int, one: int, other: int) -> None:
    """the leader loses both followers, and notices it"""
    links.cut(leader, one)
    links.cut(leader, other)


@_partition("leader left behind", PinnedPartition, two_lead, _LEADER)
def _(links: MemberLinks, leader: int, one: int, other: int) -> None:
    """the followers elect a new leader; the old one leads on, workers reach it alone"""
    links.isolate_silently(leader, (one, other))


@_partition("leader's peers unheard", Unacknowledged, nothing_commits, _LEADER)
def _(links: MemberLinks, leader: int, one: int, other: int) -> None:
    """proposals reach the followers, their answers nobody; the next leader commits them"""
    links.hold(one, leader)
    links.hold(other, leader)


@_partition("follower cut off", Partition, follower_is_out, weight=1)
def _(links: MemberLinks, leader: int, one: int, other: int) -> None:
    """one follower loses the others, and notices it"""
    links.cut(leader, one)
    links.cut(one, other)


@_partition("follower left behind", PinnedPartition, follower_is_behind, _ONE)
def _(links: MemberLinks, leader: int, one: int, other: int) -> None:
    """one follower is alone and does not notice it; workers reach it alone"""
    links.isolate_silently(one, (leader, other))


@_partition("partial partition", Partition, follower_is_out)
def _(links: MemberLinks, leader: int, one: int, other: int) -> None:
    """leader and one follower lose each other, the third reaches both"""
    links.cut(leader, one)


@_partition("partial partition of data", Partition, follower_is_out, weight=1)
def _(links: MemberLinks, leader: int, one: int, other: int) -> None:
    """the same on the quorum port only: each may vote for a leader it cannot follow"""
    links.cut(leader, one, PORTS[:1])


@_partition("follower deaf", PinnedPartition, follower_is_behind, _ONE)
def _(links: MemberLinks, leader: int, one: int, other: int) -> None:
    """one way: nothing from the leader reaches one follower; workers reach it alone"""
    links.hold(leader, one)


@_partition("quorum links break", Partition, both_links_broke, weight=1)
def _(links: MemberLinks, leader: int, one: int, other: int) -> None:
    """the connections between leader and followers break once"""
    links.hang_up(leader, one)
    links.hang_up(leader, other)


@_partition("follower stale", PinnedPartition, follower_is_behind, _ONE)
def _(links: MemberLinks, leader: int, one: int, other: int) -> None:
    """the link of one follower takes 0.4 s more; workers reach that follower alone"""
    links.delay(leader, one, _SLOW_S)


@_partition("workers reach one follower", PinnedPartition, lambda view: True, _ONE, weight=1)
def _(links: MemberLinks, leader: int, one: int, other: int) -> None:
    """half of the workers reach one member only; the members are not parted"""
