"""`zkplan demo`: run a plan on real input, kill a worker midway, and compare the results."""

from __future__ import annotations

import logging
import platform
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, NamedTuple

import click

import zkplan

from ..basics.settings import Settings
from ..basics.text import count
from ..errors import ZkplanError
from ..processes import Relay
from ..processes.crew import Crew
from ..processes.worker import PageProcess, WorkerProcess, worker_command, worker_environment
from ..protocol.layout import parse_claim
from ..protocol.requests import Create, Delete, Multi, ReadChildren
from ..testing.servers import Provided, client_on_own_root
from ..values.connection import Connection
from ..views.progress import progress_bar
from . import demo_tasks
from .common import log_to_stderr, optional_connection_options, print_rows
from .demo_tasks import Chunk, Execution, Summary
from .stress import zookeeper_for

#: Short, so that a takeover is seen soon. In production a longer one survives pauses of the
#: machine.
SESSION_TIMEOUT_S = 4.0
_READY_S, _GRACE_S, _STOP_S = 30.0, 3.0, 5.0
#: The worker is killed when this share of the tasks is done.
_KILL_AFTER = 1 / 3
_POLL_S = 0.02
# Gives ZooKeeper time to read what a worker sent before it was stopped.
_SETTLE_S = 0.05


@click.command()
@click.option(
    "--workers", type=click.IntRange(1, 64), default=3, help="Number of worker processes."
)
@click.option(
    "--threads",
    type=click.IntRange(1, 64),
    default=2,
    help="Tasks that each process runs at a time.",
)
@click.option("--kill/--no-kill", default=True, help="Kill one of the workers while it runs tasks.")
@click.option(
    "--timeout", type=click.FloatRange(1), default=120.0, help="Maximum seconds for the plan."
)
@click.option(
    "--page/--no-page",
    default=False,
    help="Print the address of a page that shows the plan. On a terminal the plan starts when you "
    "press Enter, and the page ends when you press Enter again. Needs zkplan[service].",
)
@optional_connection_options
def demo(
    workers: int, threads: int, kill: bool, timeout: float, page: bool, settings: Settings
) -> None:
    """Run a plan, and show that it survives the death of a worker.

    Without --hosts and --profile the command starts an embedded server on loopback.

    The plan analyses the source of Python's standard library. One of its workers is killed while it
    runs tasks; the others take over these tasks. The result is compared with that of a single
    process. The demonstration removes everything that it created. Exit codes: 0 identical, 1
    failed, 3 no ZooKeeper, 4 timed out.
    """
    log_to_stderr(logging.WARNING)
    folder = demo_tasks.standard_library()
    chunks = demo_tasks.split(demo_tasks.source_files(folder))
    with zookeeper_for("demo", settings) as (server, connection), ExitStack() as stack:
        client, theirs = stack.enter_context(client_on_own_root(connection, "/zkplan-demo"))
        say(_line_of(server))
        theirs = replace(theirs, session_timeout=SESSION_TIMEOUT_S)
        shown = _Demonstration(timeout, kill and workers > 1)
        crew = shown.crew(workers, worker_command(threads, _GRACE_S), theirs)
        crew.start()
        stack.callback(crew.stop, _STOP_S)
        plan = client.create_plan("standard-library")
        tasks = add_graph(plan, str(folder), chunks)
        # The plan is a tree: each task but the last has one dependent.
        say(
            f"Plan      {plan.path}: {count(sum(len(chunk.files) for chunk in chunks), 'file')} of "
            f"the standard library of Python {platform.python_version()}, "
            f"{count(len(tasks), 'task')}, {count(len(tasks) - 1, 'edge')}"
        )
        crew.wait_ready(_READY_S)
        if page:
            served = PageProcess(theirs)
            stack.callback(served.close)
            say(f"Page      {served.address}")
            # The graph leaves out finished tasks, so the page is worth opening before the start.
            wait_for_enter("open it, and press Enter to start the plan")
        names = [f"{process.worker} (pid {process.pid})" for process in crew.processes]
        say(f"Workers   {len(names)} running: {', '.join(names)}")
        found, took_s = shown.follow(plan, tasks, crew)
        crew.stop(_STOP_S)  # from now on `shown` has the whole history
        shown.conclude(found, took_s, str(folder), chunks)
        if page:
            wait_for_enter("press Enter to end it, and to remove the plan")


def say(line: str, **style: Any) -> None:
    """Print one line to sys.stdout, which a progress bar replaces to stay below the line."""
    click.secho(line, **style)


def _line_of(server: Provided) -> str:
    version = "" if server.version == "unknown" else f"{server.version} "
    return f"{server.what:<9} {version}at {server.hosts} ({server.how})"


def wait_for_enter(purpose: str) -> None:
    """Wait for Enter, if there is a terminal."""
    if sys.stdin is not None and sys.stdin.isatty():
        say(f"          {purpose}")
        sys.stdin.readline()


def add_graph(plan: zkplan.Plan, folder: str, chunks: Sequence[Chunk]) -> list[zkplan.Task]:
    """Add all tasks in one call: one for each chunk, and merges of at most FAN_IN parts.

    There must be at least two chunks, or there is nothing to merge.
    """

    def spec(name: str, *call: object) -> zkplan.TaskSpec:
        return zkplan.TaskSpec(demo_tasks.noted, call, name=name)

    level = [spec(f"parse {name}", demo_tasks.analyse, folder, files) for name, files in chunks]
    specs, depth = list(level), 0
    while len(level) > 1:
        depth += 1
        level = [
            spec(f"merge {depth}.{number}", demo_tasks.merge, list(parts))
            for number, parts in enumerate(demo_tasks.batches(level, demo_tasks.FAN_IN), start=1)
        ]
        specs += level
    return plan.add_tasks(specs)


class Killed(NamedTuple):
    """The worker process that was killed `at` this monotonic time, while it had claimed `tasks`."""

    pid: int
    tasks: list[str]
    at: float


class _Demonstration:
    """Follows the plan, kills a worker, and reports what happened."""

    def __init__(self, timeout_s: float, kills: bool) -> None:
        self._timeout_s, self._kills = timeout_s, kills
        self._history: list[Execution] = []
        self._killed: Killed | None = None
        self._taken_over: set[str] = set()

    def crew(self, workers: int, command: Sequence[str], connection: Settings) -> Crew:
        """Return the workers, not started. If one ends by itself, the crew raises ZkplanError."""
        environment = worker_environment()

        def note(line: str, _: str) -> None:
            self._history += filter(None, [demo_tasks.execution_of(line)])

        def fail(process: WorkerProcess) -> None:
            raise ZkplanError(f"worker process {process.pid} ended by itself.{process.log_tail()}")

        return Crew(
            lambda: WorkerProcess(command, Relay(note), environment, settings=connection),
            workers,
            fail,
        )

    def follow(
        self, plan: zkplan.Plan, tasks: list[zkplan.Task], crew: Crew
    ) -> tuple[Summary, float]:
        """Mark the plan ready and follow it to its end. Returns its result and its seconds.

        Raises ZkplanError if a worker ends by itself, or if no other one takes over the tasks of
        the killed worker, and WaitTimeout.
        """
        plan.mark_ready()
        started = time.monotonic()
        say("Started   the plan is marked ready")
        with progress_bar("tasks") as show:
            while (status := plan.status()).tasks:
                left_s = started + self._timeout_s - time.monotonic()
                if left_s <= 0:
                    raise zkplan.WaitTimeout(
                        f"{status.tasks} tasks are not done after {self._timeout_s:g} s: give it "
                        "more time with --timeout"
                    )
                if status.dead:
                    plan.wait(timeout=left_s)  # raises the error that says why
                crew.tend()
                done = len(tasks) - status.tasks
                if show is not None:
                    show(done, len(tasks), "")
                if self._kills and not self._killed and done >= len(tasks) * _KILL_AFTER:
                    self._kill_one(crew, plan.client, tasks, done)
                self._report_takeovers()
                time.sleep(_POLL_S)
            found: Summary = tasks[-1].result(timeout=self._timeout_s)
            took_s = time.monotonic() - started
            self._report_takeovers()
        if self._kills and not self._killed:
            say("Killed    none: the plan ended too soon", fg="yellow")
        if self._killed and not self._taken_over:
            raise ZkplanError(f"no other worker ran {_some(self._killed.tasks)} after the kill")
        return found, took_s

    def _kill_one(
        self, crew: Crew, client: Connection, tasks: list[zkplan.Task], done: int
    ) -> None:
        """Send SIGKILL to a worker that runs tasks, if one does now.

        The worker is stopped before its claims are read. Otherwise it could commit its tasks before
        the kill arrives.
        """
        for process in crew.processes:
            process.pause()
            time.sleep(_SETTLE_S)
            held = held_by(client, process.worker, tasks)
            begun = {run.task for run in self._history if run.worker == process.worker}
            if not begun.intersection(held):
                process.resume()
                continue
            self._killed = Killed(process.pid, held, time.monotonic())
            crew.kill(process, for_good=True)
            say(
                f"Killed    {process.worker} (pid {process.pid}) with SIGKILL after "
                f"{count(done, 'task')}; it held {_some(held)}",
                fg="red",
            )
            say(f"          the others go on; its session ends after {SESSION_TIMEOUT_S:g} s")
            return

    def _report_takeovers(self) -> None:
        if self._killed is None:
            return
        missing = set(self._killed.tasks) - self._taken_over
        for new in taken_over(self._history, missing, self._killed.pid, self._killed.at):
            self._taken_over.add(new.task)
            say(
                f"Took over {new.task} after {new.at - self._killed.at:.1f} s: {new.worker}, "
                f"attempt {new.attempt + 1}",
                fg="green",
            )

    def conclude(self, found: Summary, took_s: float, folder: str, chunks: Sequence[Chunk]) -> None:
        """Print the result. Raises ZkplanError if that of a single process differs."""
        facts = ("lines", "functions", "classes")
        say("Largest modules", bold=True)
        modules = [
            {"module": each.name} | {fact: f"{getattr(each, fact):,}" for fact in facts}
            for each in found.largest
        ]
        print_rows(modules, "table", ("module", *facts))
        say("Most imported modules", bold=True)
        imported = demo_tasks.most_imported(found)
        print_rows(
            ({"module": name, "files that import it": f"{files:,}"} for name, files in imported),
            "table",
            ("module", "files that import it"),
        )
        say(
            f"Analysed  {count(found.files, 'file')}, {count(found.lines, 'line')}, "
            f"{count(found.functions, 'function')}, {found.classes:,} classes; "
            f"{count(len(found.unparsed), 'file')} did not parse"
        )
        started = time.monotonic()
        alone = demo_tasks.merge([demo_tasks.analyse(folder, chunk.files) for chunk in chunks])
        alone_s = time.monotonic() - started
        if alone != found:
            raise ZkplanError(
                f"the plan's result differs from that of a single process:\n{found}\n{alone}"
            )
        say(f"Compared  a single process gets the same result in {alone_s:.1f} s")
        say(f"Executed  {how_often(self._history)}")
        say(
            f"Done      {count(len({run.task for run in self._history}), 'task')}, "
            f"{count(len(self._history), 'execution')}, "
            f"{count(1 if self._killed else 0, 'worker')} killed, every result committed once, "
            f"identical to the single-process run; in {took_s:.1f} s",
            bold=True,
        )


def held_by(client: Connection, worker: str, tasks: Sequence[zkplan.Task]) -> list[str]:
    """Return the names of the tasks that a stopped worker has claimed.

    Commits that the worker sent before it was stopped may still be under way. ZooKeeper answers a
    later write after those commits, so the claims that are left then will stay.
    """
    barrier = f"{client.root}/barrier"
    client.transport.ask(Multi([Create(barrier), Delete(barrier)]))
    claims = client.transport.ask(ReadChildren(client.paths.claims_of(worker))) or []
    names = {task.number: task.name for task in tasks}
    return sorted(names[claim.task] for claim in map(parse_claim, claims) if claim is not None)


def taken_over(
    history: Sequence[Execution], held: set[str], pid: int, since: float
) -> list[Execution]:
    """Return the first execution by another process of each task in `held`, which process `pid`
    held when it was killed at `since`."""
    first: dict[str, Execution] = {}
    for execution in sorted(history, key=lambda execution: execution.at):
        if execution.task in held and execution.pid != pid and execution.at >= since:
            first.setdefault(execution.task, execution)
    return list(first.values())


def how_often(history: Sequence[Execution]) -> str:
    """Say how many tasks were executed once, twice and so on.

    >>> runs = [Execution("a", 0, "w", 1, 0.0), Execution("b", 0, "w", 1, 0.0)]
    >>> how_often([*runs, Execution("b", 1, "w", 2, 9.0)])
    '1 task once, 1 task twice'
    """
    times = Counter(Counter(execution.task for execution in history).values())
    words = {1: "once", 2: "twice"}
    return ", ".join(
        f"{count(tasks, 'task')} {words.get(number, f'{number} times')}"
        for number, tasks in sorted(times.items())
    )


def _some(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
