"""Faults of processes: killed, stopped by signals, told to stop, sessions expired; and in tasks."""

from __future__ import annotations

import random
import signal
import threading
from functools import partial

from zkplan.cli import EXIT_UNREACHABLE
from zkplan.runtime.shutdown import DELIVER_S

from ..cluster.cluster import GRACE_S, ROLES, Cluster, Process, Role
from ..cluster.link import LinkState
from ..cluster.process_state import is_gone, is_stopped
from ..traffic.tasks import EXIT_CODE, Poke
from .fault import LINKS_OF, STOPS_OF, Fault, RoleFault, Sessions, article, enter
from .target import Target

#: The exit codes of a process whose task does that; any other poke leaves it alive. Without memory
#: the interpreter aborts or crashes, or a MemoryError ends its main thread (1) or the thread of the
#: connection (EXIT_UNREACHABLE, after two thirds of the session), or it hangs in its end until its
#: own alarm.
_CODES = {
    "exit": [EXIT_CODE],
    "segfault": [-signal.SIGSEGV],
    "memory": [-signal.SIGABRT, -signal.SIGSEGV, -signal.SIGALRM, 1, EXIT_UNREACHABLE],
}
#: A worker that is told to stop has ended so long after it stopped waiting for answers.
_GIVEN_UP_S = 7.0
#: How long, in sessions, a process has to be stopped to lose its session.
PAST_SESSION = (1.4, 2.0)


def stops_within_s(session_s: float) -> float:
    """The longest time a worker may take to stop, whatever other faults do meanwhile."""
    return GRACE_S + max(DELIVER_S, session_s) + _GIVEN_UP_S


class Killed(RoleFault):
    """SIGKILL to one, or to all, of a role; started again by the healing."""

    lasts = (0.0, 0.3)
    #: The exit code of a process that it ends.
    code: int = -signal.SIGKILL

    def inject(self, cluster: Cluster, chance: random.Random) -> None:
        self.victims = self.choose(cluster.endable(self.role), chance)
        # Another fault may have ended some of them.
        self._pids = [process.pid for process in self.victims if process.pid]
        for process in self.victims:
            self._end(cluster, process)

    def _end(self, cluster: Cluster, process: Process) -> None:
        cluster.kill(process, self.name)

    def took_effect(self, cluster: Cluster) -> bool:
        ended = [cluster.endings.get(pid) for pid in self._pids]
        return bool(ended) and all(code == self.code for code in ended)

    def heal(self, cluster: Cluster) -> None:
        for process in self.victims:
            cluster.start(process)


class ToldToStop(Killed):
    """SIGTERM to a worker, which has to end with 0; it hands back what outlasts its grace."""

    code = 0
    locks = STOPS_OF["worker"]

    def _end(self, cluster: Cluster, process: Process) -> None:
        cluster.stop(process, self.name, stops_within_s(cluster.settings.session_s))

    def target(self) -> Target:
        return Target(names=[process.name for process in self.victims], hands_back=True)


class Paused(RoleFault):
    """SIGSTOP to one, or to all, of a role, past the session."""

    lasts = PAST_SESSION
    shows_late = True

    def __init__(self, name: str, role: Role, everyone: bool = False) -> None:
        super().__init__(name, role, everyone)
        self.locks = STOPS_OF[role]

    def inject(self, cluster: Cluster, chance: random.Random) -> None:
        self.victims = self.choose(cluster.of(self.role), chance)
        self._sessions = Sessions(self.victims)
        for process in self.victims:
            cluster.pause(process)

    def took_effect(self, cluster: Cluster) -> bool:
        return self._sessions.are_over()

    def heal(self, cluster: Cluster) -> None:
        for process in self.victims:
            cluster.resume(process)


class PausedShortly(Paused):
    """SIGSTOP for less than the session."""

    lasts = (0.1, 0.5)
    shows_late = False

    def took_effect(self, cluster: Cluster) -> bool:
        return all(process.paused and is_stopped(process.pid) for process in self.victims)


class Expired(RoleFault):
    """A second client with the same session ID and password closes the session."""

    lasts = (0.0, 0.2)
    shows_late = True

    def inject(self, cluster: Cluster, chance: random.Random) -> None:
        self.victims = self.choose(cluster.of(self.role), chance)
        self._sessions = Sessions(self.victims)
        # A session that ends later by something else does not count.
        done = [cluster.expire(process) for process in self.victims]
        self._is_done = all(done)

    def took_effect(self, cluster: Cluster) -> bool:
        return self._is_done and self._sessions.are_over()

    def heal(self, cluster: Cluster) -> None:
        """The client mends it itself."""


class AtStep(Fault):
    """Something happens to a process between the sending of a step and its answer.

    The answer of the first such step is held until the process is hit, so that it cannot act on the
    answer before. `what`: kill, pause, or expire.
    """

    lasts = (0.1, 0.5)
    waits_s = 15.0

    def __init__(self, name: str, role: Role, step: str, what: str) -> None:
        super().__init__(name)
        self.role, self.step, self.what = role, step, what
        # Only some plans are sure to have publications.
        self.shape = "diamonds" if step == "publish" else ""
        if what == "pause":
            self.lasts = PAST_SESSION
        self.shows_late = what == "expire"
        self.locks = LINKS_OF[role] | (STOPS_OF[role] if what == "pause" else frozenset())
        #: Taken by the first such step that comes, and by the first that was forwarded.
        self._held_once, self._hit_once = threading.Lock(), threading.Lock()
        self._is_over = threading.Event()
        self._is_hit = False
        self._sessions: Sessions | None = None

    def inject(self, cluster: Cluster, chance: random.Random) -> None:
        process = chance.choice(cluster.endable(self.role))
        self.victims = [process]
        state = LinkState()
        state.lose = partial(self._comes, state)
        state.seen = partial(self._forwarded, cluster, process, state)
        process.link.change(state)

    def _comes(self, state: LinkState, step: str, number: int) -> None:
        # Only the first answer: a worker that gets all its answers late gets no work.
        if step == self.step and self._held_once.acquire(blocking=False):
            state.hold_answers = True

    def _forwarded(self, cluster: Cluster, process: Process, state: LinkState, step: str) -> None:
        # More of that step may be sent while the answers are held.
        if step != self.step or not state.hold_answers or not self._hit_once.acquire(False):
            return
        if self.what == "expire":
            # On another thread, so that what the process sends meanwhile goes on.
            threading.Thread(target=self._hit, args=(cluster, process, state), daemon=True).start()
        else:
            self._hit(cluster, process, state)

    def _hit(self, cluster: Cluster, process: Process, state: LinkState) -> None:
        try:
            self._do(cluster, process)
        finally:
            state.hold_answers = False
            self._is_over.set()

    def _do(self, cluster: Cluster, process: Process) -> None:
        match self.what:
            case "kill":
                pid = process.pid
                cluster.kill(process, self.name)
                self._is_hit = cluster.endings.get(pid) == -signal.SIGKILL
            case "pause":
                cluster.pause(process)
                self._is_hit = is_stopped(process.pid)
            case _:
                self._sessions = Sessions([process])
                self._is_hit = cluster.expire(process)

    def took_effect(self, cluster: Cluster) -> bool:
        return self._is_hit and (self._sessions is None or self._sessions.are_over())

    def heal(self, cluster: Cluster) -> None:
        self._held_once.acquire(blocking=False)
        if self._hit_once.acquire(blocking=False):
            self._is_over.set()  # nobody is hit any more, and a second healing does not wait
        self._is_over.wait()  # a process that is being hit is not healed before
        for process in self.victims:
            process.link.heal()
            if self.what == "pause":
                cluster.resume(process)
            cluster.start(process)


class Poked(Fault):
    """The next task that begins does something to the worker that runs it."""

    lasts = (0.1, 0.5)
    waits_s = 15.0

    def __init__(self, name: str, what: str, sessions: float = 0.0) -> None:
        super().__init__(name)
        self.what, self.sessions = what, sessions
        if what == "memory":
            # A worker whose loop has ended may live on without memory until its own alarm.
            self.waits_s = 45.0
        if what == "stop":
            self.lasts, self.locks = PAST_SESSION, STOPS_OF["worker"]
        elif sessions:
            self.lasts = (sessions, sessions + 0.3)

    def inject(self, cluster: Cluster, chance: random.Random) -> None:
        seconds = self.sessions * cluster.settings.session_s
        self._poke = Poke(cluster.folder, self.what, str(seconds)).give()

    def target(self) -> Target:
        return Target(poke=self.what, codes=_CODES.get(self.what, ()))

    def took_effect(self, cluster: Cluster) -> bool:
        for pid, did, number in self._poke.account():
            match did:
                case "exits":
                    return cluster.endings.get(pid) == EXIT_CODE
                case "segfaults":
                    return cluster.endings.get(pid) == -signal.SIGSEGV
                case "stops":
                    return is_stopped(pid)
                case "held the interpreter":
                    return number >= cluster.settings.session_s
                case "forked":
                    return not is_gone(int(number))
                case "refused":
                    # A worker that survives has lost a thread at most.
                    return number > 0 and cluster.endings.get(pid) in _CODES["memory"]
        return False

    def heal(self, cluster: Cluster) -> None:
        self._poke.take_back()
        if self.what == "stop":
            for process in cluster.workers:
                cluster.resume(process)


for _role in ROLES:
    enter(f"{_role} killed", f"SIGKILL to {article(_role)}", Killed, _role)
    enter(f"{_role} paused", f"SIGSTOP to {article(_role)} past its session", Paused, _role)
    _does = f"a second client closes the session of {article(_role)}"
    enter(f"{_role} expired", _does, Expired, _role)
for _step in ("claim", "commit", "publish", "add"):
    _role = "author" if _step == "add" else "worker"
    for _what, _verb in (("kill", "killed"), ("pause", "paused"), ("expire", "expired")):
        _does = f"between the sending of the {_step} and its answer"
        enter(f"{_role} {_verb} at {_step}", _does, AtStep, _role, _step, _what, weight=1)
enter("all workers killed", "SIGKILL to all at once", Killed, "worker", True, weight=1)
_does = "SIGSTOP to all past their sessions: nobody clears their claims nodes"
enter("all workers paused", _does, Paused, "worker", True, weight=1)
enter("all workers expired", "all sessions end", Expired, "worker", True, weight=1)
enter("worker paused shortly", "SIGSTOP for less than its session", PausedShortly, "worker")
enter("worker told to stop", "SIGTERM: its tasks end, or are handed back", ToldToStop, "worker")
enter("task exits", "a task calls os._exit", Poked, "exit")
enter("task segfaults", "a task reads address 0", Poked, "segfault")
_does = "a task keeps the interpreter lock past the session"
enter("task holds the interpreter", _does, Poked, "hold interpreter", 1.5)
enter("task forks", "a task leaves a child that holds the sockets", Poked, "fork", 2.0)
enter("task eats memory", "a task uses up what RLIMIT_AS allows its process", Poked, "memory")
enter("worker paused in a task", "SIGSTOP past the session between load and commit", Poked, "stop")
