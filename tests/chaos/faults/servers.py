"""Faults of servers: killed, paused, restarted, without a quorum, without room on their disk."""

from __future__ import annotations

import random
import resource
import time

from zkplan.testing.server_process import ServerProcess

from ..cluster.cluster import Cluster, Process, Role
from ..cluster.process_state import is_gone, is_stopped
from ..cluster.servers import Kind
from .fault import SERVERS, Fault, enter, wait_a_while
from .processes import AtStep
from .target import EVERYBODY, Target

#: Room left on a full disk.
SPARE_BYTES = 16_384
#: So much is written after the restart, and stands in the log alone, before the disk is full.
LOGGED_BYTES = 200_000
_LIMIT_BYTES = 300_000
_ONE: tuple[Kind, ...] = ("embedded", "zookeeper")
_THREE: tuple[Kind, ...] = ("ensemble",)


class ServerFault(Fault):
    """Healed by making all servers serve, which also ends all partitions."""

    locks = SERVERS

    def heal(self, cluster: Cluster) -> None:
        cluster.servers.make_serve()


class ServerDown(ServerFault):
    """The servers `which` are killed, stopped cleanly, or paused."""

    def __init__(self, name: str, how: str, which: str) -> None:
        super().__init__(name)
        self.how, self.which = how, which
        if how == "pause":
            self.lasts = (0.2, 1.6)
        self._pids: list[int] = []

    def inject(self, cluster: Cluster, chance: random.Random) -> None:
        chosen, self._dropped = self._chosen(cluster, chance), _dropped(cluster)
        # Another fault may have ended some of them.
        self._pids = [server.pid for server in chosen if server.pid is not None]
        for server in chosen:
            {"kill": server.kill, "stop": server.stop, "pause": server.pause}[self.how]()

    def took_effect(self, cluster: Cluster) -> bool:
        if self.how == "pause":
            return bool(self._pids) and all(is_stopped(pid) for pid in self._pids)
        # A single member may have had no client; where no server is left, somebody has to notice.
        noticed = self.which != "all" or _dropped(cluster) > self._dropped
        return bool(self._pids) and all(is_gone(pid) for pid in self._pids) and noticed

    def _chosen(self, cluster: Cluster, chance: random.Random) -> list[ServerProcess]:
        match self.which:
            case "leader":
                return [cluster.servers.leader()]
            case "follower":
                return [chance.choice(cluster.servers.followers())]
            case "followers":
                return cluster.servers.followers()
            case _:
                return list(cluster.servers.members)


class Outage(ServerDown):
    """All servers are down for several sessions."""

    lasts = (3.0, 5.0)


class LongOutage(ServerDown):
    """All servers are down for 20 s, whatever the session time-out is."""

    DOWN_S = 20.0
    lasts = (0.0, 0.1)
    waits_s = DOWN_S + 5.0

    def inject(self, cluster: Cluster, chance: random.Random) -> None:
        super().inject(cluster, chance)
        self._since = time.monotonic()

    def took_effect(self, cluster: Cluster) -> bool:
        long_enough = time.monotonic() >= self._since + self.DOWN_S
        return long_enough and super().took_effect(cluster)


class ServerAtStep(AtStep):
    """The only server, or the leader, is killed or paused between a step and its answer.

    Where it has answered by then, the answer reaches the process when the server is gone.
    """

    def __init__(self, name: str, role: Role, step: str, what: str) -> None:
        super().__init__(name, role, step, what)
        self.locks |= SERVERS

    def inject(self, cluster: Cluster, chance: random.Random) -> None:
        self._server, self._dropped = cluster.servers.leader(), _dropped(cluster)
        self._pid = self._server.pid
        super().inject(cluster, chance)

    def target(self) -> Target:
        return EVERYBODY

    def _do(self, cluster: Cluster, process: Process) -> None:
        (self._server.kill if self.what == "kill" else self._server.pause)()
        self._is_hit = True

    def took_effect(self, cluster: Cluster) -> bool:
        if not self._is_hit or self._pid is None:
            return False
        if self.what == "pause":
            return is_stopped(self._pid)
        noticed = cluster.servers.ensemble is not None or _dropped(cluster) > self._dropped
        return is_gone(self._pid) and noticed

    def heal(self, cluster: Cluster) -> None:
        super().heal(cluster)
        cluster.servers.make_serve()


class RollingRestart(ServerFault):
    """Each member is restarted in turn, when all serve, as an operator does it."""

    lasts = (0.0, 0.1)

    def inject(self, cluster: Cluster, chance: random.Random) -> None:
        self._pids: list[int] = []
        for server in cluster.servers.members:
            # Without a quorum, which another fault may have taken, this member would never serve.
            cluster.servers.make_serve()
            self._pids += [server.pid] if server.pid is not None else []
            server.restart()

    def took_effect(self, cluster: Cluster) -> bool:
        all_restarted = len(self._pids) == len(cluster.servers.members)
        return all_restarted and all(map(is_gone, self._pids))


class NoRoom(ServerFault):
    """The server's data cannot grow, until it ends by itself."""

    lasts = (0.5, 1.5)
    waits_s = 30.0
    ends_servers = True

    def took_effect(self, cluster: Cluster) -> bool:
        return any(server.broke_down() for server in cluster.servers.members)


class DiskFull(NoRoom):
    """The file system of the server's data is full. Needs root; not for the ensemble."""

    def unable(self, cluster: Cluster) -> str:
        return "" if cluster.servers.disk else "no file system could be mounted (needs root)"

    def inject(self, cluster: Cluster, chance: random.Random) -> None:
        disk = cluster.servers.disk
        assert disk is not None
        # The embedded server writes a log that it has checkpointed again from its start, so its
        # megabytes are room for half a minute and more. A clean stop deletes it.
        cluster.servers.members[0].restart()
        full = disk.used_bytes + LOGGED_BYTES
        wait_a_while(lambda: disk.used_bytes >= full)
        disk.fill(SPARE_BYTES)

    def heal(self, cluster: Cluster) -> None:
        assert cluster.servers.disk is not None
        cluster.servers.disk.free()
        super().heal(cluster)


class FileLimit(NoRoom):
    """No file of the server may grow beyond a size: writes fail in part, then wholly.

    The limit is small against the log, which is written from its start again after a checkpoint.
    Only for the embedded server: ZooKeeper allocates its log ahead.
    """

    def inject(self, cluster: Cluster, chance: random.Random) -> None:
        server = cluster.servers.members[0]
        limit = chance.randint(0, _LIMIT_BYTES)
        if server.pid is not None:
            resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (limit, limit))

    def heal(self, cluster: Cluster) -> None:
        # The limit stays with the process.
        cluster.servers.members[0].kill()
        super().heal(cluster)


def _dropped(cluster: Cluster) -> int:
    """How many connections servers have closed."""
    return sum(process.link.dropped for process in cluster.processes)


enter("server killed", "SIGKILL to the only server", ServerDown, "kill", "all", kinds=_ONE)
enter("server paused", "SIGSTOP to the only server", ServerDown, "pause", "all", kinds=_ONE)
enter("server restarted", "SIGTERM, then started again", ServerDown, "stop", "all", kinds=_ONE)
enter("outage", "all servers are down for several sessions", Outage, "kill", "all", weight=1)
_does = "SIGKILL to all, started again after 20 s"
enter("all servers down for 20 s", _does, LongOutage, "kill", "all", weight=1)
for _which, _weight in (("leader", 4), ("follower", 2)):
    _does = f"SIGKILL to a {_which}"
    enter(f"{_which} killed", _does, ServerDown, "kill", _which, kinds=_THREE, weight=_weight)
    enter(f"{_which} paused", f"SIGSTOP to a {_which}", ServerDown, "pause", _which, kinds=_THREE)
_does = "both followers are paused: the leader has no quorum"
enter("leader in minority", _does, ServerDown, "pause", "followers", kinds=_THREE)
enter("quorum lost", "both followers are killed", ServerDown, "kill", "followers", kinds=_THREE)
enter("rolling restart", "each member is restarted in turn", RollingRestart, kinds=_THREE)
enter("disk full", "the disk of the server's data is full", DiskFull, kinds=_ONE, weight=1)
_does = "the server's files may not grow beyond a size"
enter("file limit", _does, FileLimit, kinds=("embedded",), weight=1)
_role: Role
for _role, _step in (("worker", "commit"), ("author", "add")):
    for _what, _verb, _signal in (("kill", "killed", "SIGKILL"), ("pause", "paused", "SIGSTOP")):
        _does = f"{_signal} to the only server or the leader between the {_step} and its answer"
        enter(f"server {_verb} at {_step}", _does, ServerAtStep, _role, _step, _what, weight=1)
