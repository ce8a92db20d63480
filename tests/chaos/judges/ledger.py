"""What every process recorded, read as it grows: executions, adds, waits, deaths, faults."""

from __future__ import annotations

import bisect
import json
import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ..actors.workloads import Workload
from ..faults.aim import EVERYBODY, Aim
from .operations import Operations

Line = dict[str, Any]


@dataclass(slots=True)
class Execution:
    """One run of a task's function. `ended` is None where nobody told how it ended."""

    key: str
    n: int
    a: int
    uid: str
    worker: str
    pid: int
    by: str
    began: float
    digest: str
    got: list[str]
    keys: int
    damaged: list[str]
    ended: float | None = None
    raised: str = ""
    planned: bool = False

    @property
    def returned(self) -> bool:
        return self.ended is not None and not self.raised

    def __str__(self) -> str:
        return f"{self.key} attempt {self.n} ({self.uid} on {self.worker})"


@dataclass
class Batch:
    """One add: `begun` has an unknown outcome until it is `done` or `refused`, maybe for ever.

    One of several transactions may be refused after some of them: `added` tasks were told added.
    """

    keys: list[str]
    atomic: bool
    state: str = "begun"
    error: str = ""
    added: int = 0
    numbers: list[str] = field(default_factory=list)
    begun: float = 0.0
    answered: float = 0.0

    @property
    def certain(self) -> list[str]:
        """The tasks that were acknowledged."""
        return {"done": self.keys, "refused": self.keys[: self.added]}.get(self.state, [])

    @property
    def possible(self) -> list[str]:
        """The tasks that may be in the plan."""
        return self.keys if self.state == "begun" else self.certain


@dataclass
class PlanHistory:
    """What was recorded of one plan."""

    seed: int
    workload: Workload
    author_pid: int = 0
    begun: float = 0.0
    path: str = ""
    closed: bool = False
    batches: dict[int, Batch] = field(default_factory=dict)
    executions: defaultdict[str, list[Execution]] = field(default_factory=lambda: defaultdict(list))
    waited: list[Line] = field(default_factory=list)
    #: Once it was checked: the attempt number under which each task was committed.
    committed: dict[str, int] | None = None


@dataclass
class Window:
    """A fault from its injection to its healing, and whom it may touch."""

    name: str
    begin: float
    aim: Aim = EVERYBODY
    end: float = float("inf")

    def overlaps(self, begin: float, end: float) -> bool:
        return self.begin <= end and self.end >= begin


def _aim_of(line: Line) -> Aim:
    return Aim(
        line["everybody"],
        line["names"],
        line["pids"],
        line["poke"],
        line["codes"],
        line["hands_back"],
    )


class Death(NamedTuple):
    """A process that ended though nobody had ended it; `code` of a signal is negative."""

    name: str
    pid: int
    at: float
    code: int
    tail: str

    def __str__(self) -> str:
        return f"{self.name} (pid {self.pid}) ended by itself, with {self.code}:\n{self.tail}"


class Ledger:
    """All histories of a folder. `read` takes in what was appended since."""

    def __init__(self, folder: Path, shape: str = "") -> None:
        """`shape` is that of every plan, where it was not left to their seeds."""
        self._folder, self._shape = folder, shape
        self._lock = threading.Lock()
        self._offsets: dict[Path, int] = {}
        self.plans: dict[str, PlanHistory] = {}
        self.windows: list[Window] = []
        #: Process id to when it last ended, and why: the system uses ids again.
        self.ends: dict[int, tuple[float, str]] = {}
        self._kills: defaultdict[int, list[float]] = defaultdict(list)
        self._stops: defaultdict[int, list[float]] = defaultdict(list)
        #: Process id to the actors whose process had it.
        self._actors: defaultdict[int, set[str]] = defaultdict(set)
        self._workers: set[str] = set()
        #: What a task was told to do, and did: when, and in which process.
        self._pokes: list[tuple[str, float, int]] = []
        self.late: list[tuple[str, Execution]] = []
        self.deaths: list[Death] = []
        self.trouble: list[Line] = []
        self.operations = Operations()
        self.began_at: list[float] = []
        self.ended_at: list[float] = []
        self.counts: defaultdict[str, int] = defaultdict(int)
        self._running: dict[str, Execution] = {}
        self._newest_seed: dict[int, int] = {}

    def read(self) -> None:
        with self._lock:
            self._read()

    def _read(self) -> None:
        for path in sorted(self._folder.glob("*.jsonl")):
            pid = int(path.stem.rpartition("-")[2]) if "-" in path.stem else 0
            for line in self._news(path):
                self._take(line, pid)

    def has_left(self, plan: PlanHistory) -> bool:
        """Whether its author will add nothing more to it."""
        # A later process may have the id of one that has ended.
        gone = self.ends.get(plan.author_pid, (0.0, ""))[0] > plan.begun
        return plan.closed or gone or self._newest_seed.get(plan.author_pid, 0) > plan.seed

    def disturbed(self, pid: int, begin: float, end: float) -> bool:
        """Whether a fault may have touched that process in between, or it has ended by then."""
        ends = [*self._kills.get(pid, ()), *self._stops.get(pid, ())]
        if any(begin <= ended <= end for ended in ends):
            return True
        return any(True for _ in self._windows_of(pid, begin, end))

    def loses(self, pid: int, begin: float, end: float) -> bool:
        """Whether that process may have lost a claim in between: it was killed, or cut off."""
        if any(begin <= killed <= end for killed in self._kills.get(pid, ())):
            return True
        return any(not each.aim.hands_back for each in self._windows_of(pid, begin, end))

    def stopped(self, pid: int, begin: float, end: float) -> bool:
        """Whether that process was told to stop, and what it still ran was given back in between.

        It had then until its grace was over.
        """
        return any(begin <= left <= end for left in self._stops.get(pid, ()))

    def faults_of(self, pid: int, begin: float, end: float) -> list[str]:
        """The names of the faults that may have touched that process in between."""
        return sorted({window.name for window in self._windows_of(pid, begin, end)})

    def _windows_of(self, pid: int, begin: float, end: float) -> Iterator[Window]:
        for window in self.windows:
            if window.overlaps(begin, end) and self._touches(window, pid):
                yield window

    def losses(self, begin: float, end: float) -> int:
        """How often a worker may have lost what it held in between: once by each fault, or kill."""
        found = sum(begin <= at <= end for kills in self._kills.values() for at in kills)
        for window in self.windows:
            if window.overlaps(begin, end) and not window.aim.hands_back:
                found += self._workers_of(window)
        return found

    def _workers_of(self, window: Window) -> int:
        aim = window.aim
        if aim.everybody:
            return max(1, len(self._workers))
        lives = {*aim.pids, *(pid for _, _, pid in self._pokes if self._touches(window, pid))}
        named = {name for pid in lives for name in self._actors[pid]} | set(aim.names)
        return len(named & self._workers)

    def excused_s(self, begin: float, end: float, noticed_s: float) -> float:
        """How long in between a fault excused everybody, of before or of then."""
        found, at = 0.0, begin
        for window in sorted(self.windows, key=lambda each: each.begin):
            # One that aims at every worker excuses as much.
            if self._workers_of(window) >= max(1, len(self._workers)):
                since, until = max(window.begin, at), min(window.end + noticed_s, end)
                found += max(0.0, until - since)
                at = max(at, until)
        return found

    def _touches(self, window: Window, pid: int) -> bool:
        aim = window.aim
        if aim.everybody or pid in aim.pids or not self._actors[pid].isdisjoint(aim.names):
            return True
        return any(
            what == aim.poke and whom == pid and window.overlaps(at, at)
            for what, at, whom in self._pokes
        )

    def made(self, death: Death) -> bool:
        """Whether a fault has made that death: it aims at that process, and ends it like that.

        Who took a poke may be found dead only when the fault is over, if another one kept the
        arena busy; whoever has a point armed when a fault ends is killed by it there and then.
        """
        return any(
            death.code in window.aim.codes
            and self._touches(window, death.pid)
            and window.begin <= death.at
            and (death.at <= window.end or bool(window.aim.poke))
            for window in self.windows
        )

    def goes_on_s(self, at: float) -> float | None:
        """How long after that time a task began; None: none has."""
        first = bisect.bisect_left(self.began_at, at)
        return self.began_at[first] - at if first < len(self.began_at) else None

    def throughput(self, begin: float, end: float) -> float:
        """Executions that returned, a second."""
        times = self.ended_at
        count = bisect.bisect(times, end) - bisect.bisect(times, begin)
        return count / (end - begin) if end > begin else 0.0

    def _news(self, path: Path) -> Iterator[Line]:
        offset = self._offsets.get(path, 0)
        with path.open("rb") as file:
            file.seek(offset)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._offsets[path] = offset + len(whole)
        for line in whole.splitlines():
            yield json.loads(line)

    def _take(self, line: Line, pid: int) -> None:
        event = line["event"]
        self.counts[event] += 1
        if event == "begin":
            self._begin(line)
        elif event in ("end", "raised"):
            execution = self._running.pop(line["uid"])
            execution.ended = line["at"]
            execution.raised, execution.planned = line.get("error", ""), line.get("planned", False)
            if event == "end":
                bisect.insort(self.ended_at, line["at"])
            elif not execution.planned:
                self.trouble.append({**line, "execution": str(execution)})
        elif event.startswith(("plan ", "add ")):
            self._author(event, line, pid)
        elif event.startswith("operator "):
            self.operations.take(line)
        elif event in ("wait begun", "waited", "wait broke"):
            self._waiter(event, line)
        elif event == "ended":
            self.ends[line["pid"]] = (line["sent"], line["why"])
            ends = self._kills if line["killed"] else self._stops
            ends[line["pid"]].append(line["sent"])
        elif event == "died":
            death = Death(line["name"], line["pid"], line["at"], line["code"], line["tail"])
            self.deaths.append(death)
        elif event == "started":
            self._actors[line["pid"]].add(line["name"])
            if line["role"] == "worker":
                self._workers.add(line["name"])
        elif event == "poked":
            self._pokes.append((line["what"], line["at"], line["pid"]))
        elif event == "fault":
            self.windows.append(Window(line["name"], line["at"], _aim_of(line)))
        elif event in ("fault aimed", "healed"):
            for window in self.windows:
                if window.name == line["name"] and window.end == float("inf"):
                    if event == "healed":
                        window.end = line["at"]
                    else:
                        window.aim = _aim_of(line)

    def _begin(self, line: Line) -> None:
        fields = {name: line[name] for name in ("key", "n", "a", "uid", "worker", "pid", "by")}
        execution = Execution(
            **fields,
            began=line["at"],
            digest=line["digest"],
            got=line["got"],
            keys=line["keys"],
            damaged=line["damaged"],
        )
        self._running[execution.uid] = execution
        bisect.insort(self.began_at, execution.began)
        plan = self._plan(int(line["plan"].rpartition("-")[2]))
        if plan.committed is not None:
            self.late.append((line["plan"], execution))
        else:
            plan.executions[execution.key].append(execution)

    def _plan(self, seed: int) -> PlanHistory:
        # Made by whoever is heard of first: a worker's file may be read before the author's.
        name = f"chaos-{seed}"
        if name not in self.plans:
            self.plans[name] = PlanHistory(seed, Workload.make(seed, self._shape))
        return self.plans[name]

    def _author(self, event: str, line: Line, pid: int) -> None:
        plan = self._plan(line["seed"])
        plan.author_pid = pid
        if event == "plan begun":
            self._newest_seed[pid] = plan.seed
            plan.begun = line["at"]
        elif event == "plan made":
            plan.path = line["path"]
        elif event == "plan closed":
            plan.closed = True
        elif event == "add begun":
            plan.batches[line["batch"]] = Batch(line["keys"], line["atomic"], begun=line["at"])
        else:
            batch = plan.batches[line["batch"]]
            batch.state, batch.error = event.removeprefix("add "), line.get("error", "")
            batch.added = line.get("added", 0)
            batch.answered = line["at"]
            batch.numbers = line.get("numbers", [])

    def _waiter(self, event: str, line: Line) -> None:
        plan = self.plans.get(line["plan"])
        if event == "waited" and plan is not None:
            plan.waited.append(line)
        elif event == "wait broke":
            self.trouble.append(line)
