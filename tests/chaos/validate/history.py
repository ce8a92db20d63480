"""What every process recorded, read as it grows: executions, adds, waits, deaths, faults."""

from __future__ import annotations

import bisect
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from zkplan.testing.stress_tasks import History, Line

from ..traffic.workloads import Workload
from .operations import Operations
from .plans import Batch, Execution, PlanHistory
from .windows import Death, Window, aim_of

#: Within this a poke ends who took it: at the latest when its worker has closed, which takes the
#: grace and some requests more.
_POKED_S = 10.0
#: Within this the cluster finds who died by itself, however busy: to mend servers takes a minute.
_FOUND_S = 90.0


class RunHistory(History[Execution]):
    """The history of a whole run, by plans; safe for threads."""

    def __init__(self, folder: Path, shape: str = "") -> None:
        """`shape` is that of every plan, where it was not left to their seeds."""
        super().__init__(folder, Execution)
        self._shape = shape
        self._lock = threading.Lock()
        self.plans: dict[str, PlanHistory] = {}
        self.windows: list[Window] = []
        #: Process id to when it last ended, and why: the system uses ids again.
        self.ends: dict[int, tuple[float, str]] = {}
        self._kills: defaultdict[int, list[float]] = defaultdict(list)
        self._stops: defaultdict[int, list[float]] = defaultdict(list)
        #: Process id to the actors whose process had it.
        self._actors: defaultdict[int, set[str]] = defaultdict(set)
        self._workers: set[str] = set()
        #: Process id of each worker that lives to its name, and since when.
        self._living: dict[int, tuple[str, float]] = {}
        #: What a task was told to do, and did: when, and in which process.
        self._pokes: list[tuple[str, float, int]] = []
        #: What began after its plan was checked, with the name of the plan.
        self.late: list[tuple[str, Execution]] = []
        self.deaths: list[Death] = []
        #: By its due time, the plans of the schedule that ran.
        self.ticks: defaultdict[str, set[str]] = defaultdict(set)
        #: The values that the znode of the gates has had, and those that tasks behind them got.
        self.gate_values: set[str] = set()
        self.passed: set[str] = set()
        #: What tasks raised that was not planned, and waits that broke.
        self.unplanned: list[Line] = []
        #: Process id to the time of the last line that it wrote itself.
        self._heard: defaultdict[int, float] = defaultdict(float)
        #: Process id to when it last noted its allocated blocks, and how many.
        self.blocks: dict[int, tuple[float, int]] = {}
        self.operations = Operations()
        self.began_at: list[float] = []
        self.ended_at: list[float] = []
        self.counts: defaultdict[str, int] = defaultdict(int)
        self._newest_seed: dict[int, int] = {}

    def read(self) -> None:
        with self._lock:
            super().read()

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

    def refuses(self, pid: int, begin: float, end: float) -> bool:
        """Whether a fault may have had the server refuse that process a commit in between."""
        return any(each.aim.refuses for each in self._windows_of(pid, begin, end))

    def store_fails(self, begin: float, end: float) -> bool:
        """Whether a fault may have kept processes from using the store in between, or before."""
        windows = list(self.windows)
        return any(each.aim.store and each.overlaps(begin - _POKED_S, end) for each in windows)

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
        """How often a worker may have lost what it held in between: once by each fault, or kill.

        A kill that is what one of those faults does is none more.
        """
        windows = [
            window
            for window in list(self.windows)
            if window.overlaps(begin, end) and not window.aim.hands_back
        ]
        # As a list first: whoever reads the histories adds to it.
        kills = [(pid, at) for pid, ends in list(self._kills.items()) for at in list(ends)]
        alone = sum(
            begin <= at <= end and not any(self._kills_by(each, pid, at) for each in windows)
            for pid, at in kills
        )
        return alone + sum(self._workers_of(window) for window in windows)

    def _kills_by(self, window: Window, pid: int, at: float) -> bool:
        """Whether that end of a process may be what the fault does to it.

        Whoever dies by itself is found dead when the cluster looks.
        """
        until = window.end + (_FOUND_S if window.aim.codes else 0.0)
        return window.begin <= at <= until and self._touches(window, pid)

    def _workers_of(self, window: Window) -> int:
        aim = window.aim
        if aim.everybody:
            return max(1, len(self._workers))
        lives = {*aim.pids, *(pid for _, _, pid in self._pokes if self._touches(window, pid))}
        named = {name for pid in lives for name in list(self._actors[pid])} | set(aim.names)
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
        return bool(self._poked(window, pid))

    def _poked(self, window: Window, pid: int) -> list[float]:
        """When that process took a poke of that fault."""
        return [
            at
            for what, at, whom in self._pokes
            if what == window.aim.poke and whom == pid and window.overlaps(at, at)
        ]

    def lacked_memory(self, begin: float, end: float, pid: int | None = None) -> bool:
        """Whether that process, or any, was left without memory in between, or just before."""
        return any(
            what == "memory" and pid in (None, whom) and begin - _POKED_S <= poked <= end
            for what, poked, whom in list(self._pokes)
        )

    def made(self, death: Death) -> bool:
        """Whether a fault has made that death: it aims at that process, and ends it like that.

        Who took a poke may be found dead only when the fault is over, if another one kept the
        cluster busy; whoever has a point armed when a fault ends is killed by it there and then.
        """
        return any(
            death.code in window.aim.codes
            and self._touches(window, death.pid)
            and window.begin <= death.at
            and (
                self._was_soon(death, self._poked(window, death.pid))
                if window.aim.poke
                else death.at <= window.end
            )
            for window in self.windows
        )

    def _was_soon(self, death: Death, pokes: list[float]) -> bool:
        """Whether the process died soon after one of those pokes.

        When it is found dead the cluster may have been busy; but what it has written, it wrote
        alive.
        """
        alive = self._heard[death.pid]
        return any(
            death.at <= at + _POKED_S or (alive <= at + _POKED_S and death.at <= at + _FOUND_S)
            for at in pokes
        )

    def silent(self) -> Iterator[tuple[str, int, float, int]]:
        """Each worker that lives, its process, how long it told nothing, and what others began.

        In seconds before the last task began.
        """
        for pid, (name, since) in list(self._living.items()):
            at = max(since, self._heard[pid])
            begun = len(self.began_at) - bisect.bisect_right(self.began_at, at)
            if begun:
                yield name, pid, self.began_at[-1] - at, begun

    # ---- how it is read

    def take(self, line: Line, file: Path) -> None:
        pid = int(file.stem.rpartition("-")[2]) if "-" in file.stem else 0
        event, at = line["event"], line["at"]
        self.counts[event] += 1
        if pid:
            self._heard[pid] = max(self._heard[pid], at)
            if "blocks" in line:
                self.blocks[pid] = at, line["blocks"]
        super().take(line, file)
        if event.startswith(("plan ", "add ")):
            self._author(event, line, pid)
        elif event.startswith("operator "):
            self.operations.take(line)
        elif event == "cut short":
            self._plan(line["seed"]).cut_short = line["error"]
        elif event == "waited":
            self._plan_named(line["plan"]).waited.append(line)
        elif event == "ticked":
            self.ticks[line["due"]].add(line["path"])
        elif event == "gate opens":
            self.gate_values.add(line["value"])
        elif event == "passed":
            self.passed.add(line["value"])
        elif event == "wait broke":
            self.unplanned.append(line)
        elif event == "started":
            self._actors[line["pid"]].add(line["name"])
            if line["role"] == "worker":
                self._workers.add(line["name"])
                self._living[line["pid"]] = (line["name"], at)
        elif event == "ended":
            self._living.pop(line["pid"], None)
            self.ends[line["pid"]] = (line["sent"], line["why"])
            ends = self._kills if line["killed"] else self._stops
            ends[line["pid"]].append(line["sent"])
        elif event == "died":
            death = Death(line["name"], line["pid"], at, line["code"], line["tail"])
            self.deaths.append(death)
        elif event == "poked":
            self._pokes.append((line["what"], at, line["pid"]))
        elif event == "fault":
            self.windows.append(Window(line["name"], at, aim_of(line)))
        elif event in ("fault aimed", "healed"):
            for window in self.windows:
                if window.name == line["name"] and window.end == float("inf"):
                    if event == "healed":
                        window.end = at
                    else:
                        window.aim = aim_of(line)

    def has_begun(self, execution: Execution, line: Line) -> None:
        bisect.insort(self.began_at, execution.began)
        plan = self._plan_named(line["plan"])
        if plan.committed is not None:
            self.late.append((line["plan"], execution))
        else:
            plan.executions[execution.key].append(execution)

    def has_ended(self, execution: Execution, line: Line) -> None:
        if not execution.raised:
            bisect.insort(self.ended_at, line["at"])
            return
        execution.planned = line.get("planned", False)
        execution.handed_back = line.get("handed_back", False)
        if not execution.planned:
            of_key = (
                (name, plan.executions.get(execution.key, ())) for name, plan in self.plans.items()
            )
            plan = next((name for name, runs in of_key if execution in runs), "")
            told = {"execution": str(execution), "pid": execution.pid, "plan": plan}
            self.unplanned.append({**line, **told})

    def _plan(self, seed: int) -> PlanHistory:
        # Made by whoever is heard of first: a worker's file may be read before the author's.
        name = f"chaos-{seed}"
        if name not in self.plans:
            self.plans[name] = PlanHistory(seed, Workload.make(seed, self._shape))
        return self.plans[name]

    def _plan_named(self, name: str) -> PlanHistory:
        return self._plan(int(name.rpartition("-")[2]))

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
