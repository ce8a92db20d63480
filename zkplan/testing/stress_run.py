"""A stress run: start worker processes, submit the plan, kill, wait, and check the history."""

from __future__ import annotations

import os
import random
import re
import signal
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import wait
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from ..author.task_specs import TaskSpec
from ..basics.settings import Settings
from ..client import Client
from ..errors import PlanError, WaitTimeout, ZkplanError
from ..plan import Plan
from ..processes import WatchedProcess
from ..processes.crew import Crew
from ..processes.worker import WorkerProcess, worker_command, worker_environment
from ..protocol.core.plans_and_queues import read_names
from ..protocol.history.compaction import read_history
from ..protocol.layout import number_of, parse_claim, parse_delayed
from ..protocol.requests import ReadChildren, ReadMany
from ..runtime.claims import HANDED_BACK
from ..tasks import Task
from .crashes import in_background
from .servers import client_on_own_root
from .stress_promises import Kept, Remains
from .stress_tasks import (
    HARNESS,
    Recorder,
    StressHistory,
    Workload,
    keep,
    key_of,
    random_graph,
    run_task,
)
from .stress_verdict import StressEvidence, Verdict, check

_CLAIMS = re.compile(rf"([\d,]+) claims? {HANDED_BACK}")
#: The log line of a supervisor about a process that has ended.
_ENDED = re.compile(r"worker process (\d+) (?:ended with|was ended by)")
_DIES_WITHIN_S = 10.0
_POLL_S = 0.002


class WorkersDie(ZkplanError):
    """Workers keep ending by themselves. The message shows the end of the last one's log."""


class Fleet:
    """Keeps a fixed number of worker processes running.

    The fleet records every end of a process, with the last time at which the process was seen alive
    and the first time at which it was seen dead. The end of the `with` block ends all processes.
    """

    def __init__(
        self,
        command: Sequence[str],
        size: int,
        folder: Path,
        recorder: Recorder,
        environment: Mapping[str, str] | None = None,
        settings: Settings | None = None,
    ) -> None:
        #: The process ids of ended workers, and how many of them were killed.
        self.gone: set[int] = set()
        self.kills = 0
        self._command, self._environment, self._settings = command, environment, settings
        self._size, self._folder, self._recorder = size, folder, recorder
        self._started = self._died = 0
        self._crew = Crew(self._start_one, size, self._has_ended)

    def __enter__(self) -> Fleet:
        self._crew.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pids(self) -> set[int]:
        """The process ids of the workers that should be alive."""
        return {process.pid for process in self._crew.processes}

    def is_complete(self, registered: Collection[int]) -> bool:
        """Whether all workers are registered, given the process ids of registered workers."""
        return len(self.pids) == self._size and self.pids <= {*registered}

    def kill_one(self, chance: random.Random, registered: Collection[int] = ()) -> int:
        """Kill a worker chosen by `chance` with SIGKILL and start another. Returns the process id.

        The worker may not be registered yet.
        """
        process = chance.choice(self._crew.processes)
        sent = time.monotonic()
        self._crew.kill(process)
        self._record_kill(process.pid, sent)
        self._crew.tend()
        return process.pid

    def tend(self) -> None:
        """Replace workers that ended by themselves. Raises WorkersDie if they keep ending."""
        self._crew.tend()

    def stop(self, grace_s: float) -> None:
        """Tell all workers to stop, and wait. A worker that does not stop within `grace_s` is
        killed and recorded."""
        for process in self._crew.stop(grace_s):
            self._record_slow(process, process.seen, grace_s)

    def note_hand_backs(self) -> None:
        """Record from the workers' logs how many claims were handed back, each of which used up an
        attempt number."""
        logs = (log.read_text(errors="replace") for log in self._folder.glob("worker*.log"))
        claims = [int(said.replace(",", "")) for log in logs for said in _CLAIMS.findall(log)]
        self._recorder.write("handed back", times=len(claims), claims=sum(claims))

    def close(self) -> None:
        """Kill all workers that are left with SIGKILL."""
        self._crew.close()

    def _start_one(self) -> WorkerProcess:
        self._started += 1
        log = self._folder / f"worker-{self._started}.log"
        return WorkerProcess(self._command, log, self._environment, settings=self._settings)

    def _record_kill(self, pid: int, sent: float) -> None:
        self.gone.add(pid)
        self.kills += 1
        self._recorder.write("ended", pid=pid, sent=sent)

    def _has_ended(self, process: WorkerProcess) -> None:
        self._record_death(process.pid, process.seen, process.log_tail())

    def _record_death(self, pid: int, seen: float, tail: str) -> None:
        self._died += 1
        self.gone.add(pid)
        self._recorder.write("died", pid=pid, sent=seen, note=tail)
        if self._died > self._size:
            raise WorkersDie(f"{self._died} workers ended by themselves.{tail}")

    def _record_slow(self, process: WatchedProcess, seen: float, grace_s: float) -> None:
        note = f"It did not stop within {grace_s:g} s and was killed.{process.log_tail()}"
        self._recorder.write("died", pid=process.pid, sent=seen, note=note)


class SupervisedFleet(Fleet):
    """The workers are processes of one `zkplan worker`, which replaces the dead.

    The supervisor signs off killed workers, so nobody waits for the end of their sessions, as after
    the loss of a whole machine.
    """

    def __enter__(self) -> SupervisedFleet:
        self._log = self._folder / "workers.log"
        self._looked_at = time.monotonic()
        self._supervisor = WorkerProcess(
            self._command, self._log, self._environment, settings=self._settings
        )
        return self

    def is_complete(self, registered: Collection[int]) -> bool:
        """See Fleet."""
        return len({*registered} - self.gone) >= self._size

    def kill_one(self, chance: random.Random, registered: Collection[int] = ()) -> int:
        """Kill a registered worker with SIGKILL and wait until it is dead. Returns 0 if there is
        none."""
        living = sorted({*registered} - self.gone)
        if not living:
            return 0
        pid = chance.choice(living)
        sent = time.monotonic()
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return 0  # the worker ended by itself, which `tend` will notice
        _wait_dead(pid)
        self._record_kill(pid, sent)
        return pid

    def tend(self) -> None:
        """Record workers that ended by themselves. Raises WorkersDie if they keep ending."""
        looked_at, self._looked_at = self._looked_at, time.monotonic()
        ended = {int(pid) for pid in _ENDED.findall(self._log.read_text(errors="replace"))}
        for pid in sorted(ended - self.gone):
            self._record_death(pid, looked_at, self._supervisor.log_tail())
        if not self._supervisor.is_running():
            raise WorkersDie(f"the supervisor ended by itself:{self._supervisor.log_tail()}")

    def stop(self, grace_s: float) -> None:
        """Tell all workers to stop, and wait. A supervisor that goes on is killed and recorded."""
        sent = time.monotonic()
        self._supervisor.terminate()
        if not self._supervisor.wait_ended(grace_s):
            self._record_slow(self._supervisor, sent, grace_s)
        self.close()

    def close(self) -> None:
        """End the supervisor with SIGKILL. Its workers notice, and drain."""
        self._supervisor.end(0)


def _wait_dead(pid: int) -> None:
    """Wait until the supervisor has reaped the process, which may still work until then."""
    deadline = time.monotonic() + _DIES_WITHIN_S
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(_POLL_S)
    raise WorkersDie(f"process {pid} was killed, but still exists after {_DIES_WITHIN_S:g} s")


#: Seconds between two checks of the workers while the harness waits for the plan.
TICK_S = 0.1
READY_TIMEOUT_S = 60.0
RESULT_TIMEOUT_S = 10.0
WORKER_GRACE_S, STOP_GRACE_S = 5.0, 15.0
#: Kills use up attempts, so tasks get many, so that no run ends because kills hit one task again
#: and again.
ATTEMPTS = 50
RETRY_DELAY_S = 0.1

#: Called from time to time with the numbers of done tasks and of killed workers.
ReportProgress = Callable[[int, int], None]


@dataclass(frozen=True)
class StressSettings:
    """The workload and the workers. Times are in seconds; `kill_every_s=None` kills no worker.

    With `supervised` the workers (at least two) are processes of one `zkplan worker`, which signs
    off killed ones. Without, the sessions of killed workers have to end. The run creates a root
    whose name starts with `root`, and removes it at the end. `history` is a file for the whole
    history.
    """

    workers: int = 10
    tasks: int = 100
    deps: int = 10
    sleep_s: float = 0.0
    seed: int = 0
    kill_every_s: float | None = None
    supervised: bool = False
    threads: int = 1
    session_timeout_s: float = 10.0
    timeout_s: float = 300.0
    root: str = "/zkplan"
    history: Path | None = None


@dataclass(frozen=True)
class Report:
    """The result of a run.

    `elapsed_s` is the time from the start of the submission to the plan's end. `problem` is why the
    plan did not end, or empty.
    """

    settings: StressSettings
    edges: int
    executions: int
    kills: int
    lost_sessions: int
    takeovers: list[float]
    submitted_s: float
    elapsed_s: float
    verdicts: list[Verdict] = field(default_factory=list)
    problem: str = ""
    timed_out: bool = False

    @property
    def passed(self) -> bool:
        return not self.problem and all(verdict.passed for verdict in self.verdicts)

    @property
    def rate(self) -> float:
        """Tasks per second."""
        return self.settings.tasks / self.elapsed_s if self.elapsed_s else 0.0


def run(
    connection: Settings,
    settings: StressSettings,
    report_progress: ReportProgress = lambda _done, _kills: None,
) -> Report:
    """Run the workload on a ZooKeeper and check it. `report_progress` gets the progress.

    The report shows a broken promise, a failed plan or a time-out. Raises ZooKeeperUnavailable, and
    WorkersDie if workers keep ending by themselves.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="zkplan-stress-")))
        recorder = Recorder(str(folder), HARNESS)
        stack.callback(recorder.close)
        if settings.history is not None:
            # Keep the history also if the run breaks, because then it is needed most.
            stack.callback(keep, folder, settings.history)
        # The run needs a root of its own, because workers of other users would not find the folder
        # of the history.
        client, theirs = stack.enter_context(
            client_on_own_root(connection, f"{settings.root.rstrip('/')}-stress")
        )
        theirs = replace(theirs, session_timeout=settings.session_timeout_s)
        client.prepare()  # so that a refusal by an access list raises before a worker starts
        processes = settings.workers if settings.supervised else 1
        command = worker_command(settings.threads, WORKER_GRACE_S, *("--processes", str(processes)))
        kind = SupervisedFleet if settings.supervised else Fleet
        fleet = stack.enter_context(
            kind(command, settings.workers, folder, recorder, worker_environment(), theirs)
        )
        return _Run(settings, client, fleet, recorder, folder, report_progress).run()


@dataclass
class _Run:
    """One run while it is under way."""

    settings: StressSettings
    client: Client
    fleet: Fleet
    recorder: Recorder
    folder: Path
    report_progress: ReportProgress

    def __post_init__(self) -> None:
        settings = self.settings
        self.workload = Workload(random_graph(settings.tasks, settings.deps, settings.seed))
        self.chance = random.Random(settings.seed)
        self._registered: dict[str, int] = {}
        self._registered_at = 0.0

    def run(self) -> Report:
        self._wait_registered()
        settings = self.settings
        self.recorder.write("begun", tasks=settings.tasks, deps=settings.deps, seed=settings.seed)
        began = time.monotonic()
        plan, tasks = self._submit()
        submitted = time.monotonic()
        problem, timed_out = "", False
        try:
            self._wait(plan)
            self.recorder.write("done")
        except WaitTimeout:
            left = plan.status()
            timed_out = True
            problem = (
                f"after {self.settings.timeout_s:g} s {left.tasks} of {self.settings.tasks} tasks "
                f"were left, {left.runnable} of them runnable, {left.dead} dead"
            )
        except PlanError as error:
            problem = f"{type(error).__name__}: {error}"
        elapsed = time.monotonic() - began
        self._look_at_registrations()
        kept = [] if problem else [_kept(sink, tasks[sink]) for sink in self.workload.sinks]
        remains = replace(remains_of(self.client, plan.path), kept=kept)
        self.fleet.stop(STOP_GRACE_S)
        self.fleet.note_hand_backs()
        history = StressHistory(self.folder)
        history.read()
        return Report(
            settings=self.settings,
            edges=self.workload.edges,
            executions=len(history.executions),
            kills=sum(kill.intended for kill in history.kills),
            lost_sessions=len(history.lost),
            takeovers=takeovers(history),
            submitted_s=submitted - began,
            elapsed_s=elapsed,
            verdicts=check(StressEvidence(self.workload, history, remains, not problem)),
            problem=problem,
            timed_out=timed_out,
        )

    def _wait_registered(self) -> None:
        """Start all workers before the plan, so that they compete from the first task on."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not self.fleet.is_complete(self._look_at_registrations().values()):
            self.fleet.tend()
            if time.monotonic() > deadline:
                raise WaitTimeout(f"workers did not register within {READY_TIMEOUT_S:g} s")
            time.sleep(TICK_S / 2)

    def _submit(self) -> tuple[Plan, list[Task]]:
        plan = self.client.create_plan("stress", attempts=ATTEMPTS, retry_delay=RETRY_DELAY_S)
        specs: list[TaskSpec] = []
        for task, needed in enumerate(self.workload.graph):
            facts = {
                "expected": self.workload.digests[task],
                "folder": str(self.folder),
                "sleep_s": self.settings.sleep_s,
            }
            # The arguments are inside a dictionary, so values must also arrive at the right keys.
            arguments = {other: specs[other] for other in needed}
            specs.append(TaskSpec(run_task, (task, arguments), facts, name=key_of(task)))
        tasks = plan.add_tasks(specs)
        plan.mark_ready()
        return plan, tasks

    def _wait(self, plan: Plan) -> None:
        """Wait for the plan; meanwhile kill, replace and watch workers. Raises as Plan.wait."""
        every = self.settings.kill_every_s
        kill_at = time.monotonic() + every if every else float("inf")
        # Wait in one call, because a wait takes some time to prove that no task can run any more.
        waiting = in_background(lambda: plan.wait(timeout=self.settings.timeout_s))
        while not wait([waiting], timeout=TICK_S).done:
            self.fleet.tend()
            if every and time.monotonic() >= kill_at:
                kill_at = time.monotonic() + every
                self.fleet.kill_one(self.chance, self._registered.values())
            self._look_at_registrations()
            self.report_progress(self.settings.tasks - plan.status().tasks, self.fleet.kills)
        waiting.result()

    def _look_at_registrations(self) -> dict[str, int]:
        """Record workers whose registration vanished although they were not killed."""
        asked = time.monotonic()
        found = {worker.id: worker.pid for worker in self.client.workers()}
        for worker, pid in self._registered.items():
            if worker not in found and pid not in self.fleet.gone:
                self.recorder.write("lost", worker=worker, pid=pid, seen=self._registered_at)
        self._registered, self._registered_at = found, asked
        return found


def _kept(number: int, task: Task) -> Kept:
    """The kept result of a finished task. An error takes the place of the value, and counts as a
    violation."""
    try:
        value, uid = task.result(timeout=RESULT_TIMEOUT_S)
    except ZkplanError as error:
        value, uid = repr(error), ""
    return Kept(key_of(number), value, uid)


def takeovers(history: StressHistory) -> list[float]:
    """Seconds from each kill to the next start of the task that the killed worker ran."""
    found = []
    for executions in history.by_task.values():
        for first, second in pairwise(executions):
            killed = history.killed_at(first)
            if killed is not None and killed <= second.began:
                found.append(second.began - killed)
    return sorted(found)


def remains_of(client: Client, path: str) -> Remains:
    """Everything that is left of the plan in ZooKeeper, and all claims on its tasks."""
    paths = client.paths
    runnable = sorted(name for _, names in client.transport.run(read_names(path)) for name in names)
    kinds = ["", "/dead", "/results"]
    reads = [ReadChildren(f"{path}{kind}") for kind in kinds]
    names = client.transport.ask(ReadMany([*reads, ReadChildren(paths.delayed)]))
    children, dead, outcomes, delayed = (sorted(found or ()) for found in names)
    number = number_of(path)
    claims_nodes = sorted(client.transport.ask(ReadChildren(paths.claims)) or ())
    held = client.transport.ask(
        ReadMany([ReadChildren(paths.claims_of(claims_node)) for claims_node in claims_nodes])
    )
    return Remains(
        plan=children,
        runnable=runnable,
        history=client.transport.run(read_history(path)),
        dead=dead,
        outcomes=outcomes,
        delayed=[name for name in delayed if (due := parse_delayed(name)) and due.plan == number],
        claims=[
            f"{claims_node}/{name}"
            for claims_node, standing in zip(claims_nodes, held, strict=True)
            for name in standing or ()
            if (claim := parse_claim(name)) and claim.plan == number
        ],
    )
