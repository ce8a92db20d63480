"""The cluster: servers, the processes that use them, and a network link for each process."""

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
from typing import Any, Literal

from kazoo.client import KazooClient

import zkplan
from tests.sim.world import ROOT
from tests.tools.disk import Disk
from tests.tools.stores import Place, environment
from tests.tools.support import IN_CHECKOUT, wait_until
from zkplan.processes import WatchedProcess
from zkplan.protocol.failpoints import VARIABLE
from zkplan.testing.stress_tasks import Recorder

from ..traffic import author, controls, waiter
from ..traffic.mutated import BROKEN
from ..traffic.tasks import LONG_LIVED, ONE_HEAP, POKES
from .link import Link
from .servers import Kind, Servers

Role = Literal["worker", "author", "waiter"]
ROLES: tuple[Role, ...] = ("worker", "author", "waiter")
#: The files that tell processes of a role to end.
_STOPS: dict[Role, str] = {"author": author.STOP, "waiter": waiter.STOP}
_START_S = 60.0
_TAIL_LINES = 20
_LONG_LIVED = "long-lived"
#: How long a process may take to write the stacks of its threads.
_DUMP_S = 15.0
#: How long a worker that is told to stop lets its tasks run.
GRACE_S = 3.0
#: Seeds for an author that faults may end, and as many for the long-lived author.
_SEEDS = 10_000_000_000
_SEEDS_OF_A_LIFE = 1_000_000


@dataclass(frozen=True)
class Settings:
    """The size and kind of a cluster; times in seconds."""

    kind: Kind
    seed: int
    workers: int = 4
    threads: int = 2
    session_s: float = 3.0
    backlog: int = 4
    #: Adds a worker, an author and a waiter that no fault ends; their memory is watched.
    long_lived: bool = False
    #: Failpoints armed in every worker from its start, as in ZKPLAN_FAILPOINTS.
    points: str = ""
    #: The shape of every plan; empty: the seeds decide.
    shape: str = ""
    #: The broken variant of the protocol that workers or authors run; empty: the real protocol.
    mutant: str = ""
    #: Every value lies in a store, on a file system of its own where that can be mounted.
    store: bool = False
    #: Tick of the servers: sessions end at multiples of it.
    tick_ms: int = 250
    #: Starts no process: a scenario starts them one by one.
    start_nobody: bool = False
    #: Plans have queues, a limit, keys and shares, beside a schedule: see traffic/controls.py.
    controls: bool = False
    #: Bound of L2, from the end of the last dependency to the start of a task; needs free slots.
    soon_s: float = float("inf")


@dataclass(eq=False)
class Process:
    """A worker, an author or the waiter, and its link; it may be started again many times.

    `running` is its present life as a process of the system, or None.
    """

    name: str
    role: Role
    link: Link
    running: WatchedProcess | None = None
    lives: int = 0
    paused: bool = False
    log: Path = field(default_factory=Path)

    @property
    def long_lived(self) -> bool:
        """No fault ends it, and its tasks obey no pokes (see traffic/tasks.py)."""
        return self.name.startswith(_LONG_LIVED)

    @property
    def pid(self) -> int:
        """Of its present life; 0 while it does not run."""
        return self.running.pid if self.running is not None else 0


class Cluster:
    """Servers and processes of one run. Use as a context manager; one thread drives it."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.settings, self.folder = settings, folder
        self.journal = Recorder(str(folder), "cluster")
        self._stack = ExitStack()
        self._lock = threading.RLock()
        #: Held while a plan is judged or removed, so that nobody removes a plan under judgement.
        self.gavel = threading.Lock()
        #: Violations: processes that did not stop in time, and what a fault itself finds.
        #: Unexpected ends are in the journal.
        self.violations: list[str] = []
        #: The store of a run that has one, its file system if one could be mounted, and what its
        #: processes have in their environment.
        self.store: Place | None = None
        self.store_disk: Disk | None = None
        self.with_store: dict[str, str] = {}
        #: Process ID to its exit code; the negative number of the signal that ended it.
        self.endings: dict[int, int | None] = {}
        (folder / POKES).mkdir()

    def __enter__(self) -> Cluster:
        with ExitStack() as stack:
            self.servers = Servers(self.settings.kind, stack, self.settings.tick_ms)
            stack.callback(self.servers.keep_logs, self.folder)
            if self.settings.store:
                self._make_store(stack)
            names: list[tuple[str, Role]] = [
                *((f"worker{n}", "worker") for n in range(self.settings.workers)),
                *(("author", "author"), ("waiter", "waiter")),
                *((f"{_LONG_LIVED} {role}", role) for role in ROLES if self.settings.long_lived),
            ]
            self.processes = [Process(name, role, Link(self.servers.ports)) for name, role in names]
            for process in self.processes:
                stack.callback(process.link.close)
                stack.callback(self._end, process)
            with self.connect(connect_timeout=_START_S) as client:
                client.prepare()
                if self.settings.controls:
                    controls.prepare(client, str(self.folder))
            for process in () if self.settings.start_nobody else self.processes:
                self.start(process)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self.journal.close()

    def _make_store(self, stack: ExitStack) -> None:
        place = self.folder / "store"
        place.mkdir()
        self.store_disk = Disk.mounted(place, stack)
        self.store = Place((self.servers.hosts, ROOT), place / "values")
        self.store.folder.mkdir()
        self.with_store = environment(self.store.folder)

    def connect(self, **options: Any) -> zkplan.Client:
        """A client of this process; with the store, if the run has one."""
        store = self.store.options if self.store is not None else {}
        return zkplan.connect(self.servers.hosts, ROOT, **store, **options)

    # ---- the processes

    def of(self, role: Role) -> list[Process]:
        return [process for process in self.processes if process.role == role]

    def endable(self, role: Role) -> list[Process]:
        """The processes of a role that a fault may end."""
        return [process for process in self.of(role) if not process.long_lived]

    @property
    def workers(self) -> list[Process]:
        return self.of("worker")

    def log_of(self, process: Process) -> str:
        return process.log.read_text(errors="replace") if process.log.exists() else ""

    # ---- start, end, pause

    def start(self, process: Process, more: Mapping[str, str] | None = None) -> None:
        """Start it, unless it runs or is paused; with `more` in its environment."""
        with self._lock:
            if process.running is not None:
                return
            process.lives += 1
            process.log = self.folder / f"{process.name}-{process.lives}.log"
            process.link.forget_session()
            inherited = dict(os.environ)
            if process.role == "worker" and self.settings.points:
                inherited[VARIABLE] = self.settings.points
            inherited |= ONE_HEAP | self.with_store | dict(more or {})
            inherited["PYTHONFAULTHANDLER"] = "1"
            if process.long_lived:
                inherited[LONG_LIVED] = "1"
            process.running = WatchedProcess(self._command(process), process.log, inherited)
            self.endings.pop(process.pid, None)  # an earlier process with the same ID
            self.journal.write("started", name=process.name, role=process.role, pid=process.pid)

    def kill(self, process: Process, why: str) -> None:
        """SIGKILL; it stays down until it is started."""
        with self._lock:
            running, process.running, process.paused = process.running, None, False
            if running is None:
                return
            sent = time.monotonic()
            running.end(0)
            self._ended(process, running, sent, why, killed=True)
            if running.exit_code != -signal.SIGKILL:  # it had ended by itself before
                self._judge_end(process, running, told=self._stopped(process))

    def stop(self, process: Process, why: str, within_s: float = GRACE_S + 5) -> None:
        """SIGTERM: it has to end within that time, with exit code 0."""
        with self._lock:
            running, process.running, process.paused = process.running, None, False
        if running is None:
            return
        sent = time.monotonic()
        running.send(signal.SIGTERM)
        running.send(signal.SIGCONT)
        ended = running.wait_ended(within_s)
        if not ended:
            self.ask_where(running.pid)
            running.wait_ended(_DUMP_S)
        running.end(0)
        # Until its grace was over it still owned its tasks.
        left = min(time.monotonic(), sent + GRACE_S)
        how = why if ended else f"{why}, but too slow"
        self._ended(process, running, left, how, killed=not ended)
        if not ended:
            self.violations.append(f"{process.name} did not end within {within_s:g} s of SIGTERM")
        elif running.exit_code != -signal.SIGTERM or self._is_ready(process):
            # Before it is ready it has no handler for the signal.
            self._judge_end(process, running, told=True)

    def ask_where(self, pid: int) -> None:
        """SIGABRT: it writes the stacks of its threads into its log, and ends."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGABRT)

    def pause(self, process: Process) -> None:
        with self._lock:
            if process.running is not None:
                process.paused = True
                process.running.pause()

    def resume(self, process: Process) -> None:
        with self._lock:
            process.paused = False
            if process.running is not None:
                process.running.send(signal.SIGCONT)

    def expire(self, process: Process) -> bool:
        """Close its session at the server, as a second client; whether that was done."""
        session = process.link.session
        if session is None:
            return False
        twin = KazooClient(self.servers.hosts, client_id=tuple(session))
        try:
            twin.start(timeout=5)
            # Where the session had ended already, this client got a new one.
            return bool(twin.client_id == tuple(session))
        except twin.handler.timeout_exception:
            return False
        finally:
            twin.stop()
            twin.close()

    # ---- maintenance

    def tend(self) -> None:
        """Record every process that ended by itself, for the checks, and start it again."""
        for process in self.processes:
            with self._lock:
                running = process.running
                if running is None or running.is_running():
                    continue
                running.end(0)
                process.running, process.paused = None, False
            self._ended(process, running, time.monotonic(), "by itself", killed=True)
            told = self._stopped(process)
            self._judge_end(process, running, told)
            if not told:
                self.start(process)

    def heal(self) -> None:
        """All servers serve, all links are normal, every process runs."""
        self.servers.make_serve()
        for poke in (self.folder / POKES).iterdir():
            if not poke.name.startswith("arm."):  # one that disarms a worker has to stay
                poke.unlink(missing_ok=True)
        for process in self.processes:
            # An untouched link is not cut: no fault would excuse what the cut costs.
            if not process.link.is_normal:
                process.link.heal()
            self.resume(process)
            if not self._stopped(process):
                self.start(process)

    def mismatches(self) -> list[str]:
        """Where the tree of a server differed from the leader's, by the servers' own logs."""
        return self.servers.mismatches()

    def fallen(self) -> list[str]:
        """Servers that ended by themselves since the last call."""
        return self.servers.fallen()

    def is_whole(self) -> bool:
        """Whether every process that should run is connected."""
        return all(bool(process.link.at) or self._stopped(process) for process in self.processes)

    def want(self, shape: str) -> None:
        """Authors make only plans of that shape from now on; empty: any."""
        author.want(self.folder, shape)

    def wait_ready(self) -> None:
        """Wait until all workers are registered."""

        def ready() -> bool:
            self.tend()
            return all(map(self._is_ready, self.workers))

        wait_until(ready, "all workers are ready", _START_S)

    def tell_to_end(self, role: Role) -> None:
        """Have the authors, or the waiters, end when they have done what they are doing."""
        (self.folder / _STOPS[role]).touch()

    def _is_ready(self, worker: Process) -> bool:
        """Whether its present life has registered."""
        return " ready" in self.log_of(worker)

    def _stopped(self, process: Process) -> bool:
        return process.role in _STOPS and (self.folder / _STOPS[process.role]).exists()

    def _command(self, process: Process) -> list[str]:
        settings = self.settings
        python = [*IN_CHECKOUT, sys.executable, "-m"]
        broken = BROKEN.get(settings.mutant, "worker")
        mutated = ["tests.chaos.traffic.mutated", settings.mutant, broken]
        common = ["--hosts", process.link.hosts, "--root", ROOT]
        common += ["--session-timeout", str(settings.session_s)]
        if process.role == "worker":
            options = ["--threads", str(settings.threads), "--grace", str(GRACE_S)]
            options += ["--connect-timeout", "60"]
            if settings.controls:
                options += controls.queues_of(self.workers.index(process), len(self.workers))
            program = mutated if settings.mutant and broken == "worker" else ["zkplan", "worker"]
            return [*python, *program, *common, *options]
        common += ["--folder", str(self.folder)]
        if process.role == "author":
            first = first_seed(settings.seed, process.lives, process.long_lived)
            common += ["--first-seed", str(first), "--backlog", str(settings.backlog)]
            common += ["--shape", settings.shape, *["--controls"] * settings.controls]
        if settings.mutant and broken == process.role:
            return [*python, *mutated, *common]
        return [*python, f"tests.chaos.traffic.{process.role}", *common]

    def _end(self, process: Process) -> None:
        if process.running is not None:
            process.running.end(0)

    def _judge_end(self, process: Process, running: WatchedProcess, told: bool) -> None:
        """Record an end that needs a fault to explain it: any but 0 after a request to end."""
        if told and running.exit_code == 0:
            return
        tail = "\n".join(self.log_of(process).splitlines()[-_TAIL_LINES:])
        facts = {"name": process.name, "pid": running.pid, "code": running.exit_code}
        self.journal.write("died", **facts, tail=tail)

    def _ended(
        self, process: Process, running: WatchedProcess, sent: float, why: str, killed: bool
    ) -> None:
        """`killed`: it had no time to hand its tasks back."""
        self.endings[running.pid] = running.exit_code
        who = {"name": process.name, "role": process.role, "pid": running.pid}
        how = {"code": running.exit_code, "sent": sent, "why": why, "killed": killed}
        self.journal.write("ended", **who, **how)


def first_seed(seed: int, life: int, long_lived: bool) -> int:
    """The first seed of an author in that life; no two lives make the same plan.

    An author that wants a rare shape skips about a hundred seeds for each plan.
    """
    return seed % 1000 * 2 * _SEEDS + long_lived * _SEEDS + life * _SEEDS_OF_A_LIFE


@contextmanager
def opened(settings: Settings, folder: Path) -> Iterator[Cluster]:
    """A cluster whose workers are registered."""
    with Cluster(settings, folder) as cluster:
        cluster.wait_ready()
        yield cluster
