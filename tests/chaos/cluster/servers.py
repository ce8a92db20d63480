"""The servers under test: an embedded one, one ZooKeeper, or an ensemble of three."""

from __future__ import annotations

import re
import shutil
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

from tests.tools.available import one_server
from tests.tools.disk import Disk
from zkplan.testing.server_process import ServerDidNotStart, ServerProcess, server_status
from zkplan.testing.servers import ZooKeeperEnsemble

from .member_links import MemberLinks

Kind = Literal["embedded", "zookeeper", "ensemble"]
KINDS: tuple[Kind, ...] = ("embedded", "zookeeper", "ensemble")
#: After how many transactions a ZooKeeper writes a snapshot, at the latest. By default it is after
#: 100 000 since its start: a follower that faults end every minute would hardly ever write any,
#: and in time need more than a minute at each start to read its logs.
_SNAPSHOTS = ("-Dzookeeper.snapCount=5000",)
_LEADER_S = 3.0
_HEALED_S = 60.0
_LEVEL_S = 5.0
_POLL_S = 0.05
_ASK_S = 2.0
#: Of the log of a server: in a message, and in the folder of a run.
_TAIL_LINES = 20
_KEPT_LINES = 1000
#: What a ZooKeeper logs where its tree is not what the leader's was after that transaction.
_MISMATCH = re.compile(r"First digest mismatch on txn: \d+,\d+,(\d+),")


class Servers:
    """The servers of a kind, started; `disk` is the file system of their data alone, if any."""

    def __init__(self, kind: Kind, stack: ExitStack, tick_ms: int) -> None:
        self.kind = kind
        self.disk: Disk | None = None
        self.ensemble: ZooKeeperEnsemble | None = None
        self._pause = threading.Event()
        #: Members that had ended by themselves at the last look, and those still to be reported.
        self._down: set[ServerProcess] = set()
        self._fallen: list[str] = []
        #: The links between the members of an ensemble.
        self.links = MemberLinks()
        stack.callback(self.links.close)
        self.members: Sequence[ServerProcess]
        if kind == "ensemble":
            self.ensemble = ZooKeeperEnsemble(
                tick_time_ms=tick_ms, detour=self.links.detour, jvm_options=_SNAPSHOTS
            )
            stack.enter_context(self.ensemble)
            self.members = self.ensemble.servers
            return
        folder = Path(tempfile.mkdtemp(prefix="zkplan-chaos-data-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        self.disk = Disk.mounted(folder, stack)
        one = one_server(kind, data=folder / "server", tick_time_ms=tick_ms)
        self.members = [stack.enter_context(one)]

    @property
    def hosts(self) -> str:
        return ",".join(member.hosts for member in self.members)

    @property
    def ports(self) -> list[int]:
        return [member.port for member in self.members]

    def serving(self) -> bool:
        """Whether all of them serve requests."""
        return all(server_status(member.hosts).get("Mode") for member in self.members)

    def make_serve(self) -> None:
        """Resume, or start, each that does not serve, and wait until all do and have caught up.

        A member that loses its leader while it still applies what it got from it at its start may
        go on with another tree than the others, and lead them (ZooKeeper before 3.8.5, by its own
        digests; see docs/operate/operating.md). Of that nothing could be asked of zkplan.
        """
        self._look()
        # A member that is cut off from the others would never serve.
        self.links.heal()
        for member in self.members:
            member.resume()
            member.start(wait=False)
            self._down.discard(member)  # it may end again before the next look
        deadline = time.monotonic() + _HEALED_S
        while not self._agree():
            for member in self.members:
                member.wait_serving()
            if time.monotonic() > deadline:
                modes = [member.mode for member in self.members]
                raise ServerDidNotStart(f"after {_HEALED_S:g} s the members are {modes}")
            self._pause.wait(_POLL_S)
        deadline = time.monotonic() + _HEALED_S
        while self.ensemble is not None and not self._are_level():
            if time.monotonic() > deadline:
                applied = [f"{_applied(member):#x}" for member in self.members]
                raise ServerDidNotStart(f"the members have applied up to {applied}")

    def _are_level(self) -> bool:
        """Whether all members soon have applied what the leader has applied by now.

        It makes a write of its own first: until its first write a new leader reports a transaction
        number that no other member ever reports.
        """
        if self.wall_clock() is None:
            return False
        level = max(_applied(member) for member in self.members)
        soon = time.monotonic() + _LEVEL_S
        while any(_applied(member) < level for member in self.members):
            if time.monotonic() > soon:
                return False
            self._pause.wait(_POLL_S)
        return True

    def mismatches(self) -> list[str]:
        """Transactions after which a member logged another tree than its leader's."""
        return [
            f"server {number}: {int(zxid):#x}"
            for number, member in enumerate(self.members, 1)
            for zxid in sorted(set(_MISMATCH.findall(_text(member.log))), key=int)
        ]

    def fallen(self) -> list[str]:
        """The members that ended by themselves since the last call, with the end of their logs."""
        self._look()
        told, self._fallen = self._fallen, []
        return told

    def _look(self) -> None:
        """Remember who has ended by itself, for it is started again like any other."""
        down = {member for member in self.members if member.broke_down()}
        for member in down - self._down:
            tail = "\n".join(_last_lines(member.log, _TAIL_LINES))
            self._fallen.append(
                f"server {self.number_of(member)} (port {member.port}) ended by itself, with "
                f"{member.exit_code}:\n{tail}"
            )
        self._down = down

    def keep_logs(self, folder: Path) -> None:
        """Copy the last lines of their logs, as the servers delete their own folders."""
        for number, member in enumerate(self.members, 1):
            lines = _last_lines(member.log, _KEPT_LINES)
            (folder / f"server-{number}.log").write_text("".join(f"{line}\n" for line in lines))

    def _agree(self) -> bool:
        """Whether all serve under one leader; an old leader may go on for a moment."""
        modes = [member.mode for member in self.members]
        return None not in modes and (self.ensemble is None or modes.count("leader") == 1)

    def wall_clock(self) -> float | None:
        """The wall clock of the server that dates writes; None where no write is possible."""
        client = KazooClient(self.hosts)
        try:
            client.start(timeout=_ASK_S)
            made = client.create_async("/clock-", ephemeral=True, sequence=True, include_data=True)
            return float(made.get(timeout=_ASK_S)[1].ctime) / 1000
        except (client.handler.timeout_exception, KazooException):
            return None
        finally:
            client.stop()
            client.close()

    def leader(self) -> ServerProcess:
        """The leader, or the only server; raises ServerDidNotStart where nobody leads."""
        if self.ensemble is None:
            return self.members[0]
        try:
            return self.ensemble.leader(_LEADER_S)
        except TimeoutError as error:
            raise ServerDidNotStart(str(error)) from error

    def number_of(self, member: ServerProcess) -> int:
        """Its number in the ensemble, from 1."""
        return list(self.members).index(member) + 1

    def followers(self) -> list[ServerProcess]:
        leader = self.leader()
        return [member for member in self.members if member is not leader]


def _applied(member: ServerProcess) -> int:
    """The last transaction that it has applied; 0 where it does not answer."""
    return int(server_status(member.hosts).get("Zxid", "0"), 16)


def _last_lines(log: Path, count: int) -> list[str]:
    return _text(log).splitlines()[-count:]


def _text(log: Path) -> str:
    return log.read_text(errors="replace") if log.exists() else ""
