"""Faults at failpoints of the code: ends and pauses inside a step, and delays that widen races."""

from __future__ import annotations

import random
import signal
from pathlib import Path
from typing import NamedTuple

from zkplan.protocol.failpoints import VARIABLE

from ..cluster.cluster import Cluster, Process, Role
from ..cluster.process_state import is_stopped
from ..traffic.tasks import TOLD, Poke, account_in
from .fault import POINTS_OF, STOPS_OF, Fault, enter
from .processes import PAST_SESSION
from .target import Target

_ALL = 100


class Setup(NamedTuple):
    """What makes processes reach a point soon: a shape of plan, and how many of them are armed.

    `trigger` is armed in one more worker: what it does to that one makes the others reach the
    point.
    """

    shape: str = ""
    most: int = 1
    trigger: str = ""


#: Where an end, or a pause past the session, does most harm.
POINTS = {
    "claim.made": Setup(),
    "load.between": Setup(),
    "load.read": Setup(),
    "task.before": Setup(),
    "task.after": Setup(),
    "commit.before": Setup(),
    "commit.made": Setup(),
    "publish.before": Setup("diamonds"),
    "wide.between": Setup("wide delivery", _ALL),
    "wide.delivered": Setup("wide delivery", _ALL),
    "wide_adds.staging": Setup("many added", _ALL),
    "wide_adds.between": Setup("many added", _ALL),
    "wide_adds.let_go": Setup("many added", _ALL),
    "finish.between": Setup(most=_ALL),
    "clear.listed": Setup(most=_ALL, trigger="task.before=stop"),
    "clear.pending": Setup("diamonds", _ALL, "publish.before=stop"),
    "store.write": Setup(),
    "store.written": Setup(),
}
AUTHOR_POINTS = {"add.before": Setup(), "wide_join.between": Setup("huge join")}


class Armed(NamedTuple):
    """A life of a process, the point armed in it, and the file in which it tells that it acted."""

    pid: int
    text: str
    told: Path

    def has_acted(self, cluster: Cluster) -> bool:
        """Whether it told that it reached the point, and is stopped or was killed since."""
        point, _, action = self.text.partition("=")
        did = f"{point} {action}"
        if not any((deed.pid, deed.did) == (self.pid, did) for deed in account_in(self.told)):
            return False
        if action == "stop":
            return is_stopped(self.pid)
        return cluster.endings.get(self.pid) == -signal.SIGKILL


class AtPoint(Fault):
    """A point stops, or kills, each process in which it is armed once.

    A worker is armed by its next task and goes on; an author is started anew.
    """

    lasts = (0.1, 0.3)
    waits_s = 15.0

    def __init__(self, name: str, point: str, action: str, setup: Setup) -> None:
        super().__init__(name)
        self.point, self.setup, self.shape = point, setup, setup.shape
        self.armed = f"{point}={action}"
        self.role: Role = "author" if point in AUTHOR_POINTS else "worker"
        # A trigger stops a worker too.
        self._stops = action == "stop" or bool(setup.trigger)
        self.locks = POINTS_OF[self.role] | (STOPS_OF[self.role] if self._stops else frozenset())
        if action == "stop":
            self.lasts = PAST_SESSION
        self._armed: dict[Process, Armed] = {}
        self._pokes: dict[Process, Poke] = {}
        #: The worker that gets the trigger, until it has got it.
        self._trigger: Process | None = None

    def unable(self, cluster: Cluster) -> str:
        # A reference is small.
        is_wide = cluster.store is not None and self.shape == "wide delivery"
        return "with a store the delivery fits one transaction" if is_wide else ""

    def inject(self, cluster: Cluster, chance: random.Random) -> None:
        processes = cluster.endable(self.role)
        chance.shuffle(processes)
        if self.setup.trigger:
            self._trigger = processes.pop()
            self._arm(cluster, self._trigger, self.setup.trigger)
        self.victims = processes[: self.setup.most]
        for process in self.victims:
            self._arm(cluster, process, self.armed)
            if process in self._pokes:
                self._pokes[process].give()

    def _arm(self, cluster: Cluster, process: Process, text: str) -> None:
        if process.role == "author":
            cluster.kill(process, self.name)
            told = cluster.folder / f"told-{process.name}-{process.lives}"
            cluster.start(process, {VARIABLE: text, TOLD: str(told)})
        else:
            cluster.start(process)  # another fault may have killed it
            self._pokes[process] = Poke(cluster.folder, "arm", text, process.pid)
            told = self._pokes[process].told
        self._armed[process] = Armed(process.pid, text, told)

    def target(self) -> Target:
        # Also the worker with the trigger. A later life of a process is not armed.
        codes = [-signal.SIGKILL] if self.armed.endswith("=kill") else []
        return Target(pids=[armed.pid for armed in self._armed.values()], codes=codes)

    def took_effect(self, cluster: Cluster) -> bool:
        # A worker that is not armed yet would pass the point unharmed.
        if self._trigger is not None and all(map(self._is_armed_or_gone, self.victims)):
            self._pokes[self._trigger].give()
            self._trigger = None
        return any(self._armed[process].has_acted(cluster) for process in self.victims)

    def _is_armed_or_gone(self, process: Process) -> bool:
        return process.pid != self._armed[process].pid or self._pokes[process].was_taken()

    def heal(self, cluster: Cluster) -> None:
        # A process that is stopped at the point goes on; one that did not reach it is ended.
        for process, armed in self._armed.items():
            asked = self._pokes.get(process)
            if asked is not None:
                asked.take_back()
            is_armed = process.pid == armed.pid and (asked is None or asked.was_taken())
            if is_armed and not armed.has_acted(cluster):
                cluster.kill(process, self.name)
            if self._stops:
                cluster.resume(process)
            cluster.start(process)


class NowAndThen(Fault):
    """Points act in some workers now and then; tasks arm and disarm their workers."""

    lasts = (1.5, 2.5)
    waits_s = 15.0
    locks = POINTS_OF["worker"]

    def __init__(self, name: str, armed: str, most: int) -> None:
        super().__init__(name)
        self.armed, self.most = armed, most

    def inject(self, cluster: Cluster, chance: random.Random) -> None:
        running = [process for process in cluster.endable("worker") if process.pid]
        self.victims = chance.sample(running, min(self.most, len(running)))
        self._pokes = {
            process.pid: Poke(cluster.folder, "arm", self.armed, process.pid).give()
            for process in self.victims
        }

    def took_effect(self, cluster: Cluster) -> bool:
        return bool(self._pokes) and all(each.account() for each in self._pokes.values())

    def heal(self, cluster: Cluster) -> None:
        for pid, each in self._pokes.items():
            each.take_back()
            if each.was_taken():
                Poke(cluster.folder, "arm", "", pid).give()


for _point, _setup in (POINTS | AUTHOR_POINTS).items():
    _who = "author" if _point in AUTHOR_POINTS else "worker"
    for _verb, _action, _signal in (("pauses", "stop", "SIGSTOP"), ("dies", "kill", "SIGKILL")):
        _does = f"{_signal} inside the step, between two requests of it"
        _name = f"{_who} {_verb} at point {_point}"
        _stored = _point.startswith("store.")
        enter(_name, _does, AtPoint, _point, _action, _setup, weight=1, store=_stored)
_does = "half a second at one of 20 passes of any point, in all workers that faults may end"
enter("delays at all points", _does, NowAndThen, "*=sleep:0.5:0.05", _ALL, weight=4)
_does = "a quarter of a second at one of 4 passes"
enter("delays at all points of one worker", _does, NowAndThen, "*=sleep:0.25:0.25", 1, weight=4)
