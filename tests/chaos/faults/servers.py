"""Faults of servers: killed, paused, restarted, without a quorum, without room on their disk."""

from __future__ import annotations

import random
import resource
import time
from functools import partial

from zkplan.testing.server_process import ServerProcess

from ..world.arena import Actor, Arena, Role
from ..world.proc import is_gone, is_stopped
from ..world.servers import Kind
from .aim import EVERYBODY, Aim
from .fault import SERVERS, Entry, Fault, enter
from .patience import wait_a_while
from .processes import AtStep

_SPARE_BYTES = 16_384
#: Of what stands in a log alone when the disk is full: some of it was acknowledged.
_LOGGED_BYTES = 200_000
_LIMIT_BYTES = 300_000


class ServerFault(Fault):
    """Healed by making all servers serve."""

    claims = frozenset({SERVERS})

    def heal(self, arena: Arena) -> None:
        arena.servers.make_serve()


class ServerDown(ServerFault):
    """Some servers are killed, or stopped cleanly, or paused: `which` of them."""

    def __init__(self, name: str, how: str, which: str) -> None:
        super().__init__(name)
        self.how, self.which = how, which
        self.is_outage = which in ("all", "followers")
        if how == "pause":
            self.lasts = (0.2, 1.6)
        self._pids: list[int] = []

    def inject(self, arena: Arena, chance: random.Random) -> None:
        chosen, self._dropped = self._chosen(arena, chance), _dropped(arena)
        # Another fault may have them down.
        self._pids = [server.pid for server in chosen if server.pid is not None]
        for server in chosen:
            match self.how:
                case "kill":
                    server.kill()
                case "stop":
                    server.stop()
                case _:
                    server.pause()

    def felt(self, arena: Arena) -> bool:
        if self.how == "pause":
            return bool(self._pids) and all(is_stopped(pid) for pid in self._pids)
        # A member of an ensemble may have had no client: the others go on.
        broke = self.which != "all" or _dropped(arena) > self._dropped
        return bool(self._pids) and all(is_gone(pid) for pid in self._pids) and broke

    def _chosen(self, arena: Arena, chance: random.Random) -> list[ServerProcess]:
        match self.which:
            case "leader":
                return [arena.servers.leader()]
            case "follower":
                return [chance.choice(arena.servers.followers())]
            case "followers":
                return arena.servers.followers()
            case _:
                return list(arena.servers.members)


class Outage(ServerDown):
    """All servers are down for several sessions."""

    lasts = (3.0, 5.0)


class LongOutage(ServerDown):
    """All servers are down for 20 s, whatever the session time-out: until then it is not felt."""

    DOWN_S = 20.0
    lasts = (0.0, 0.1)
    waits_s = DOWN_S + 5.0

    def felt(self, arena: Arena) -> bool:
        return time.monotonic() >= self._since + self.DOWN_S and super().felt(arena)

    def inject(self, arena: Arena, chance: random.Random) -> None:
        super().inject(arena, chance)
        self._since = time.monotonic()


class ServerAtStep(AtStep):
    """The only server, or the leader, is killed or paused between a step and its answer.

    Where it has answered by then, the answer reaches the process when the server is gone.
    """

    @property
    def claims(self) -> frozenset[str]:
        return super().claims | {SERVERS}

    def inject(self, arena: Arena, chance: random.Random) -> None:
        self._server, self._dropped = arena.servers.leader(), _dropped(arena)
        self._pid = self._server.pid
        self.is_outage = arena.servers.ensemble is None
        super().inject(arena, chance)

    def aim(self) -> Aim:
        return EVERYBODY

    def _do(self, arena: Arena, actor: Actor) -> None:
        if self.what == "kill":
            self._server.kill()
        else:
            self._server.pause()
        self._is_hit = True

    def felt(self, arena: Arena) -> bool:
        if not self._is_hit or self._pid is None:
            return False
        if self.what == "pause":
            return is_stopped(self._pid)
        return is_gone(self._pid) and (not self.is_outage or _dropped(arena) > self._dropped)

    def heal(self, arena: Arena) -> None:
        super().heal(arena)
        arena.servers.make_serve()


class Rolling(ServerFault):
    """Each member is restarted in turn, when all serve: no operator does it otherwise."""

    lasts = (0.0, 0.1)

    def inject(self, arena: Arena, chance: random.Random) -> None:
        self._pids: list[int] = []
        for server in arena.servers.members:
            # Another fault may have left too few for a quorum: then this one would never serve.
            arena.servers.make_serve()
            self._pids += [server.pid] if server.pid is not None else []
            server.restart()

    def felt(self, arena: Arena) -> bool:
        return len(self._pids) == len(arena.servers.members) and all(map(is_gone, self._pids))


class KeptResults(ServerFault):
    """The server's data cannot grow: felt when it ends by itself, and waited for."""

    lasts = (0.5, 1.5)
    waits_s = 30.0
    breaks_servers = True

    def felt(self, arena: Arena) -> bool:
        return any(server.broke_down() for server in arena.servers.members)


class DiskFull(KeptResults):
    """The file system of the server's data has no more room."""

    def unable(self, arena: Arena) -> str:
        return "" if arena.servers.disk else "no file system could be mounted (needs root)"

    def inject(self, arena: Arena, chance: random.Random) -> None:
        disk = arena.servers.disk
        assert disk is not None
        # A log that was copied into the embedded server's database is written again from its start:
        # its megabytes are room for half a minute and more. A clean stop takes it away.
        arena.servers.members[0].restart()
        full = disk.used_bytes + _LOGGED_BYTES
        wait_a_while(lambda: disk.used_bytes >= full)
        disk.fill(_SPARE_BYTES)

    def heal(self, arena: Arena) -> None:
        assert arena.servers.disk is not None
        arena.servers.disk.free()
        super().heal(arena)


class FileLimit(KeptResults):
    """No file of the server may be written beyond a size: writes fail in part, then wholly.

    The size is small against the log, which is written from its start again after each checkpoint
    and so need not grow: one above what the files have would be met never, or much later.
    """

    def inject(self, arena: Arena, chance: random.Random) -> None:
        server = arena.servers.members[0]
        limit = chance.randint(0, _LIMIT_BYTES)
        if server.pid is not None:
            resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (limit, limit))

    def heal(self, arena: Arena) -> None:
        # The limit stays with the process.
        arena.servers.members[0].kill()
        super().heal(arena)


def _dropped(arena: Arena) -> int:
    """How many connections servers have ended."""
    return sum(actor.link.dropped for actor in arena.actors)


def _down(how: str, which: str) -> partial[ServerDown]:
    return partial(ServerDown, how=how, which=which)


def _at_steps() -> list[Entry]:
    steps: tuple[tuple[Role, str], ...] = (("worker", "commit"), ("author", "add"))
    ways = (
        ("kill", "killed", "14", "SIGKILL"),
        ("pause", "paused", "13", "SIGSTOP for longer than a session"),
    )
    return [
        Entry(
            f"server {verb} at {step}",
            case,
            f"{does}, to the only server or the leader between the sending of the {step} and its "
            "answer",
            partial(ServerAtStep, role=role, step=step, what=what),
            weight=1,
        )
        for role, step in steps
        for what, verb, case, does in ways
    ]


_ONE: tuple[Kind, ...] = ("embedded", "zookeeper")
_THREE: tuple[Kind, ...] = ("ensemble",)
enter(
    [
        Entry("server killed", "14", "SIGKILL to the only server", _down("kill", "all"), _ONE),
        Entry("server paused", "13", "SIGSTOP to the only server", _down("pause", "all"), _ONE),
        Entry("server restarted", "17", "SIGTERM, then started again", _down("stop", "all"), _ONE),
        Entry(
            "outage",
            "17",
            "all servers are down for several sessions",
            partial(Outage, how="kill", which="all"),
            weight=1,
        ),
        Entry(
            "all servers down for 20 s",
            "17",
            "SIGKILL to all, started again after 20 s",
            partial(LongOutage, how="kill", which="all"),
            weight=1,
        ),
        Entry("leader killed", "14", "SIGKILL to the leader", _down("kill", "leader"), _THREE, 4),
        Entry("leader paused", "13", "SIGSTOP to the leader", _down("pause", "leader"), _THREE),
        Entry("follower killed", "14", "SIGKILL to a follower", _down("kill", "follower"), _THREE),
        Entry("follower paused", "18", "SIGSTOP to a follower", _down("pause", "follower"), _THREE),
        Entry(
            "leader in minority",
            "15",
            "both followers are paused: the leader has no quorum",
            _down("pause", "followers"),
            _THREE,
        ),
        Entry("quorum lost", "15", "both followers are killed", _down("kill", "followers"), _THREE),
        Entry("rolling restart", "36", "each member is restarted in turn", Rolling, _THREE),
        Entry("disk full", "19", "the disk of the server's data is full", DiskFull, _ONE, 1),
        Entry(
            "file limit",
            "19",
            "the server's files may not be written beyond a size",
            FileLimit,
            ("embedded",),
            1,
        ),
    ]
)
enter(_at_steps())
