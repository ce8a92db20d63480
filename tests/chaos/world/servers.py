"""The servers under test: an embedded one, one ZooKeeper, or an ensemble of three."""

from __future__ import annotations

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

from zkplan.testing.embedded_process import EmbeddedServerProcess
from zkplan.testing.loopback import server_status
from zkplan.testing.server_process import ServerDidNotStart, ServerProcess
from zkplan.testing.servers import ZooKeeperEnsemble, ZooKeeperServer

from .disk import Disk
from .peers import Peers

Kind = Literal["embedded", "zookeeper", "ensemble"]
KINDS: tuple[Kind, ...] = ("embedded", "zookeeper", "ensemble")
_LEADER_S = 3.0
_HEALED_S = 60.0
_POLL_S = 0.05
_ASK_S = 2.0


class Servers:
    """The servers of a kind, started; `disk` is the file system of their data alone, if any."""

    def __init__(self, kind: Kind, stack: ExitStack, tick_ms: int) -> None:
        self.kind = kind
        self.disk: Disk | None = None
        self.ensemble: ZooKeeperEnsemble | None = None
        self._pause = threading.Event()
        #: The links between the members of an ensemble.
        self.peers = Peers()
        stack.callback(self.peers.close)
        self.members: Sequence[ServerProcess]
        if kind == "ensemble":
            self.ensemble = ZooKeeperEnsemble(tick_time_ms=tick_ms, detour=self.peers.detour)
            stack.enter_context(self.ensemble)
            self.members = self.ensemble.servers
            return
        folder = self._folder(stack)
        one: ServerProcess = (
            EmbeddedServerProcess(data=folder, tick_time_ms=tick_ms)
            if kind == "embedded"
            else ZooKeeperServer(data=folder, tick_time_ms=tick_ms)
        )
        stack.enter_context(one)
        self.members = [one]

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
        """Resume, or start, each that does not serve, and wait until all do."""
        # A member that is cut off from its peers would never serve.
        self.peers.heal()
        for member in self.members:
            member.resume()
            member.start(wait=False)
        deadline = time.monotonic() + _HEALED_S
        while not self._agree():
            for member in self.members:
                member.wait_serving()
            if time.monotonic() > deadline:
                modes = [member.mode for member in self.members]
                raise ServerDidNotStart(f"after {_HEALED_S:g} s the members are {modes}")
            self._pause.wait(_POLL_S)

    def _agree(self) -> bool:
        """Whether all serve under one leader; one left behind may lead on for a moment."""
        modes = [member.mode for member in self.members]
        return None not in modes and (self.ensemble is None or modes.count("leader") == 1)

    def wall_clock(self) -> float | None:
        """The time that the server which dates all writes puts on one; None where none is made."""
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
        """The leader; any member where another fault has left them without one."""
        if self.ensemble is None:
            return self.members[0]
        try:
            return self.ensemble.leader(_LEADER_S)
        except TimeoutError:
            return self.members[0]

    def number_of(self, member: ServerProcess) -> int:
        """Its number in the ensemble, from 1."""
        return list(self.members).index(member) + 1

    def followers(self) -> list[ServerProcess]:
        leader = self.leader()
        return [member for member in self.members if member is not leader]

    def _folder(self, stack: ExitStack) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="zkplan-chaos-data-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        self.disk = Disk.mounted(folder, stack)
        return folder / "server"
