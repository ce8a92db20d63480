"""The arena: servers, the processes that use them, a link for each process, and who is down."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from kazoo.client import KazooClient

import zkplan
from tests.integ.support import IN_CHECKOUT, wait_until
from tests.sim.world import ROOT
from zkplan.protocol.failpoints import VARIABLE
from zkplan.stress.history import Recorder
from zkplan.testing.process import WatchedProcess

from ..actors import author, waiter
from ..actors.mutated import BROKEN
from ..actors.tasks import ONE_HEAP, POKES, SPARED
from .link import Link
from .servers import Kind, Servers

Role = Literal["worker", "author", "waiter"]
ROLES: tuple[Role, ...] = ("worker", "author", "waiter")
_START_S = 60.0
_TAIL_LINES = 20
#: What a process takes at most to write where its threads stand.
_DUMP_S = 15.0
#: What a worker that is told to stop gives its tasks.
GRACE_S = 3.0
#: For an author that faults end, and as many for the veteran.
_SEEDS = 10_000_000_000
_SEEDS_OF_A_LIFE = 1_000_000


@dataclass(frozen=True)
class Settings:
    """What an arena is made of; times in seconds."""

    kind: Kind
    seed: int
    workers: int = 4
    threads: int = 2
    session_s: float = 3.0
    backlog: int = 4
    #: Whether there are also a worker, an author and a waiter that no fault ends: their memory,
    #: threads and sockets are watched.
    veterans: bool = False
    #: The points that are armed in every worker from its start, as in ZKPLAN_FAILPOINTS.
    points: str = ""
    #: The shape of every plan; empty: the seeds decide.
    shape: str = ""
    #: The name of a broken variant of the protocol that workers or authors run; empty for none.
    mutant: str = ""
    #: Of the servers: sessions end at multiples of it.
    tick_ms: int = 250
    #: Nobody is started: a directed scene says who comes, when, and armed with what.
    staged: bool = False
    #: A task starts so soon after the last that it needs has ended; only where slots are free.
    soon_s: float = float("inf")


@dataclass(eq=False)
class Actor:
    """A process with a role, and its link; the same actor is started again and again."""

    name: str
    role: Role
    link: Link
    process: WatchedProcess | None = None
    lives: int = 0
    paused: bool = False
    #: No fault ends it, and its tasks obey no pokes.
    spared: bool = False
    log: Path = field(default_factory=Path)

    @property
    def pid(self) -> int:
        """Of its process, or 0 while it has none."""
        return self.process.pid if self.process is not None else 0


class Arena:
    """Everything that takes part in a run. Use as a context manager; one thread drives it."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.settings, self.folder = settings, folder
        self.journal = Recorder(str(folder), "arena")
        self._stack = ExitStack()
        self._lock = threading.RLock()
        #: Who judges or removes a plan holds it: nobody removes what is being judged.
        self.gavel = threading.Lock()
        #: Who was told to stop and did not. Who ended by itself is in the journal.
        self.too_slow: list[str] = []
        #: Process id to how it ended: its code, or the number of a signal, negative.
        self.endings: dict[int, int | None] = {}
        (folder / POKES).mkdir()

    def __enter__(self) -> Arena:
        with ExitStack() as stack:
            self.servers = Servers(self.settings.kind, stack, self.settings.tick_ms)
            stack.callback(self.servers.keep_logs, self.folder)
            names: list[tuple[str, Role]] = [
                *((f"worker{n}", "worker") for n in range(self.settings.workers)),
                *(("author", "author"), ("waiter", "waiter")),
            ]
            self.actors = [Actor(name, role, Link(self.servers.ports)) for name, role in names]
            if self.settings.veterans:
                self.actors += [
                    Actor(f"veteran {role}", role, Link(self.servers.ports), spared=True)
                    for role in ROLES
                ]
            for actor in self.actors:
                stack.callback(actor.link.close)
                stack.callback(self._end, actor)
            with zkplan.connect(self.servers.hosts, ROOT, connect_timeout=_START_S) as client:
                client.prepare()
            for actor in () if self.settings.staged else self.actors:
                self.start(actor)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self.journal.close()

    # ---- who there is

    def of(self, role: Role) -> list[Actor]:
        return [actor for actor in self.actors if actor.role == role]

    def mortals(self, role: Role) -> list[Actor]:
        """Those that a fault may end."""
        return [actor for actor in self.of(role) if not actor.spared]

    @property
    def workers(self) -> list[Actor]:
        return self.of("worker")

    def log_of(self, actor: Actor) -> str:
        return actor.log.read_text(errors="replace") if actor.log.exists() else ""

    # ---- what may be done to them

    def start(self, actor: Actor, environment: Mapping[str, str] | None = None) -> None:
        """Start it; nothing happens where it has a process, be it paused."""
        with self._lock:
            if actor.process is not None:
                return
            actor.lives += 1
            actor.log = self.folder / f"{actor.name}-{actor.lives}.log"
            actor.link.forget_session()
            inherited = dict(os.environ)
            if actor.role == "worker" and self.settings.points:
                inherited[VARIABLE] = self.settings.points
            inherited |= ONE_HEAP | dict(environment or {})
            inherited["PYTHONFAULTHANDLER"] = "1"
            if actor.spared:
                inherited[SPARED] = "1"
            actor.process = WatchedProcess(self._command(actor), actor.log, inherited)
            self.endings.pop(actor.pid, None)  # of an earlier process with that id
            self.journal.write("started", name=actor.name, role=actor.role, pid=actor.pid)

    def kill(self, actor: Actor, why: str) -> None:
        """SIGKILL; it stays down until it is started."""
        with self._lock:
            process, actor.process, actor.paused = actor.process, None, False
            if process is None:
                return
            sent = time.monotonic()
            process.end(0)
            self._ended(actor, process, sent, why, killed=True)
            if process.exit_code != -signal.SIGKILL:  # it had ended before, by itself
                self._judge_end(actor, process, told=self._stopped(actor))

    def stop(self, actor: Actor, why: str, within_s: float = GRACE_S + 5) -> None:
        """SIGTERM: it has to end by itself within that time, and with 0."""
        with self._lock:
            process, actor.process, actor.paused = actor.process, None, False
        if process is None:
            return
        sent = time.monotonic()
        process.send(signal.SIGTERM)
        process.send(signal.SIGCONT)
        ended = process.wait_ended(within_s)
        if not ended:
            self.ask_where(process.pid)
            process.wait_ended(_DUMP_S)
        process.end(0)
        # What it ran was its own until its grace was over.
        left = min(time.monotonic(), sent + GRACE_S)
        how = why if ended else f"{why}, but too slow"
        self._ended(actor, process, left, how, killed=not ended)
        if not ended:
            self.too_slow.append(f"{actor.name} did not end within {within_s:g} s of SIGTERM")
        elif process.exit_code != -signal.SIGTERM or self._is_ready(actor):
            # Before it is ready it has not said as yet what the signal does to it.
            self._judge_end(actor, process, told=True)

    def ask_where(self, pid: int) -> None:
        """Have that process write into its log where each of its threads stands; it ends by it."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGABRT)

    def pause(self, actor: Actor) -> None:
        with self._lock:
            if actor.process is not None:
                actor.paused = True
                actor.process.pause()

    def resume(self, actor: Actor) -> None:
        with self._lock:
            actor.paused = False
            if actor.process is not None:
                actor.process.send(signal.SIGCONT)

    def expire(self, actor: Actor) -> bool:
        """End its session at the server for real; whether that was done."""
        session = actor.link.session
        if session is None:
            return False
        twin = KazooClient(self.servers.hosts, client_id=tuple(session))
        try:
            twin.start(timeout=5)
            # One whose session is over already gets another one.
            return bool(twin.client_id == tuple(session))
        except twin.handler.timeout_exception:
            return False
        finally:
            twin.stop()
            twin.close()

    # ---- looking after them

    def tend(self) -> None:
        """Start again what ended by itself; how it ended is for the checker to judge."""
        for actor in self.actors:
            with self._lock:
                process = actor.process
                if process is None or process.is_running():
                    continue
                process.end(0)
                actor.process, actor.paused = None, False
            self._ended(actor, process, time.monotonic(), "by itself", killed=True)
            told = self._stopped(actor)
            self._judge_end(actor, process, told)
            if not told:
                self.start(actor)

    def heal(self) -> None:
        """Servers serve, links are fair, everybody runs."""
        self.servers.make_serve()
        for poke in (self.folder / POKES).iterdir():
            if not poke.name.startswith("arm."):  # it may be what disarms a worker
                poke.unlink(missing_ok=True)
        for actor in self.actors:
            # Who was left alone is left alone: no fault excuses what a cut of its link would cost.
            if not actor.link.is_fair:
                actor.link.heal()
            self.resume(actor)
            if not self._stopped(actor):
                self.start(actor)

    def mismatches(self) -> list[str]:
        """Where servers were not what their ensemble was, by their own account."""
        return self.servers.mismatches()

    def fallen(self) -> list[str]:
        """The servers that have ended by themselves since this was asked before."""
        return self.servers.fallen()

    def is_whole(self) -> bool:
        """Whether everybody has a session who has to."""
        return all(bool(actor.link.at) or self._stopped(actor) for actor in self.actors)

    def want(self, shape: str) -> None:
        """The next plans have that shape; empty: any."""
        author.want(self.folder, shape)

    def wait_ready(self) -> None:
        """Wait until each worker is registered."""

        def ready() -> bool:
            self.tend()
            return all(map(self._is_ready, self.workers))

        wait_until(ready, "all workers are ready", _START_S)

    def end_authors(self) -> None:
        (self.folder / author.STOP).touch()

    def end_waiters(self) -> None:
        (self.folder / waiter.STOP).touch()

    def _is_ready(self, worker: Actor) -> bool:
        """Whether it is registered, in this life."""
        return " ready" in self.log_of(worker)

    def _stopped(self, actor: Actor) -> bool:
        stops = {"author": author.STOP, "waiter": waiter.STOP}
        return actor.role in stops and (self.folder / stops[actor.role]).exists()

    def _command(self, actor: Actor) -> list[str]:
        settings = self.settings
        python = [*IN_CHECKOUT, sys.executable, "-m"]
        broken = BROKEN.get(settings.mutant, "worker")
        mutated = ["tests.chaos.actors.mutated", settings.mutant, broken]
        common = ["--hosts", actor.link.hosts, "--root", ROOT]
        common += ["--session-timeout", str(settings.session_s)]
        if actor.role == "worker":
            options = ["--threads", str(settings.threads), "--grace", str(GRACE_S)]
            options += ["--connect-timeout", "60"]
            program = mutated if settings.mutant and broken == "worker" else ["zkplan", "worker"]
            return [*python, *program, *common, *options]
        common += ["--folder", str(self.folder)]
        if actor.role == "author":
            first = first_seed(settings.seed, actor.lives, actor.spared)
            common += ["--first-seed", str(first), "--backlog", str(settings.backlog)]
            common += ["--shape", settings.shape]
        if settings.mutant and broken == actor.role:
            return [*python, *mutated, *common]
        return [*python, f"tests.chaos.actors.{actor.role}", *common]

    def _end(self, actor: Actor) -> None:
        process, actor.process = actor.process, None
        if process is not None:
            process.end(0)

    def _judge_end(self, actor: Actor, process: WatchedProcess, told: bool) -> None:
        """Who was told to end ends with 0; any other end is a death, for the checker to judge."""
        if told and process.exit_code == 0:
            return
        tail = "\n".join(self.log_of(actor).splitlines()[-_TAIL_LINES:])
        facts = {"name": actor.name, "pid": process.pid, "code": process.exit_code}
        self.journal.write("died", **facts, tail=tail)

    def _ended(
        self, actor: Actor, process: WatchedProcess, sent: float, why: str, killed: bool
    ) -> None:
        """`killed`: it had no time to hand back what it ran."""
        self.endings[process.pid] = process.exit_code
        who = {
            "name": actor.name,
            "role": actor.role,
            "pid": process.pid,
            "code": process.exit_code,
        }
        self.journal.write("ended", **who, sent=sent, why=why, killed=killed)


def first_seed(seed: int, life: int, spared: bool) -> int:
    """Where an author begins in that life; no two come to the same plan.

    One that is asked for a rare shape passes over a hundred seeds for each of its plans.
    """
    return seed % 1000 * 2 * _SEEDS + spared * _SEEDS + life * _SEEDS_OF_A_LIFE


@contextmanager
def opened(settings: Settings, folder: Path) -> Iterator[Arena]:
    """An arena whose workers are all registered."""
    with Arena(settings, folder) as arena:
        arena.wait_ready()
        yield arena
