"""The demonstration from beginning to end: plan, workers, a kill, a takeover, the comparison."""

from __future__ import annotations

import logging
import platform
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import zkplan
from zkplan.demo import analysis
from zkplan.demo.analysis import Chunk, Report
from zkplan.demo.graph import Graph, add_graph
from zkplan.demo.journal import Execution, executions, taken_over
from zkplan.demo.story import Story, count, how_often
from zkplan.demo.workers import SESSION_TIMEOUT_S, DemoFailed, Killed, Workers
from zkplan.layout import Paths, parse_claim
from zkplan.requests import ReadChildren
from zkplan.testing.znodes import remove_tree

#: The kill comes when this part of the tasks is done.
_KILL_AFTER = 1 / 3
_POLL_S = 0.02
#: Names of held tasks that one line shows.
_NAMES_SHOWN = 4

logger = logging.getLogger("zkplan.demo")


@dataclass(frozen=True)
class Settings:
    """What the command line decides; `timeout_s` bounds the run of the plan."""

    workers: int = 3
    threads: int = 2
    kill: bool = True
    timeout_s: float = 120.0


def run(hosts: str, settings: Settings, story: Story) -> None:
    """Show a plan run on the ZooKeeper at `hosts`; leaves nothing behind there, however it ends.

    Raises DemoFailed where the result is not that of a single process or a worker breaks,
    zkplan.WaitTimeout after `timeout_s`, and what else zkplan raises.
    """
    started = time.monotonic()
    folder = analysis.standard_library()
    chunks = analysis.split(analysis.source_files(folder))
    with ExitStack() as stack:
        journal = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="zkplan-demo-")))
        client = stack.enter_context(_client(hosts))
        workers = stack.enter_context(
            Workers(hosts, client.root, settings.workers, settings.threads, journal)
        )
        plan = client.create_plan("standard-library")
        graph = add_graph(plan, str(folder), chunks, str(journal))
        _tell_plan(story, plan, graph, chunks)
        workers.wait_registered(lambda: {worker.pid: worker.id for worker in client.workers()})
        names = ", ".join(f"{name} (pid {pid})" for pid, name in workers.names.items())
        story.say(f"Workers   {len(workers.names)} running: {names}")
        watch = _Watch(client, plan, graph, workers, journal, story, settings)
        report, took_s = watch.run()
        history = executions(journal)
    story.tables(report)
    _check(story, report, str(folder), chunks)
    _tell_end(story, graph, history, watch.killed, took_s, time.monotonic() - started)


@contextmanager
def _client(hosts: str) -> Iterator[zkplan.Client]:
    """A client on a root of the demonstration alone: no other worker takes its tasks."""
    root = f"/zkplan-demo-{uuid.uuid4().hex[:8]}"
    with zkplan.connect(hosts, root=root) as client:
        try:
            yield client
        finally:
            try:
                remove_tree(client.keeper.client, root)
            except Exception as error:  # Whatever it is, it must not hide how the run ended.
                logger.warning("could not remove %s from ZooKeeper: %s", root, error)


class _Watch:
    """The running plan: progress, the kill, and who takes over."""

    def __init__(
        self,
        client: zkplan.Client,
        plan: zkplan.Plan,
        graph: Graph,
        workers: Workers,
        journal: Path,
        story: Story,
        settings: Settings,
    ) -> None:
        self.client, self.plan, self.graph, self.workers = client, plan, graph, workers
        self.journal, self.story, self.settings = journal, story, settings
        self.killed: Killed | None = None
        self._paths = Paths(client.root)
        self._names = {task.number: task.name for task in graph.tasks}
        self._taken_over: set[str] = set()

    def run(self) -> tuple[Report, float]:
        """Mark the plan ready and follow it to its end: the report, and the seconds it took."""
        total = len(self.graph.tasks)
        self.plan.mark_ready()
        started = time.monotonic()
        self.story.say("Started   the plan is marked ready")
        self.story.progress(total)
        while not self._finished(started):
            time.sleep(_POLL_S)
        report = self.graph.tasks[-1].result(timeout=self.settings.timeout_s)
        took_s = time.monotonic() - started
        self._tell_takeovers()
        self.story.close_bar()
        if self.settings.kill and self.killed is None:
            self.story.say("Killed    nobody: the plan was too quick for it", style="yellow")
        if self.killed and len(self._taken_over) < len(self.killed.tasks):
            raise DemoFailed("a task of the killed worker was never run by another one")
        return report, took_s

    def _finished(self, started: float) -> bool:
        status = self.plan.status()
        done = len(self.graph.tasks) - status.tasks
        self.story.done(done)
        if not status.tasks:
            return True
        left_s = started + self.settings.timeout_s - time.monotonic()
        if status.dead or left_s <= 0:
            self.plan.wait(timeout=max(0.0, left_s))  # Raises what says why.
        self.workers.require_alive()
        if self.settings.kill and self.killed is None:
            if done >= len(self.graph.tasks) * _KILL_AFTER:
                self._kill(done)
        else:
            self._tell_takeovers()
        return False

    def _kill(self, done: int) -> None:
        self.killed = self.workers.kill_one(self._held_by)
        if self.killed:
            who = f"{self.killed.worker} (pid {self.killed.pid}) with SIGKILL"
            self.story.say(
                f"Killed    {who} after {done} tasks; it held {_some(self.killed.tasks)}",
                style="red",
            )
            self.story.say(
                f"          the others go on; its session ends after {SESSION_TIMEOUT_S:g} s"
            )

    def _held_by(self, worker: str) -> list[str]:
        """Names of the tasks that `worker` holds claims of: what lies on its desk."""
        desk = self.client.keeper.ask(ReadChildren(self._paths.desk(worker))) or []
        claims = [claim for claim in map(parse_claim, desk) if claim is not None]
        return sorted(self._names[claim.task] for claim in claims)

    def _tell_takeovers(self) -> None:
        if self.killed is None or len(self._taken_over) == len(self.killed.tasks):
            return
        missing = set(self.killed.tasks) - self._taken_over
        for new in taken_over(executions(self.journal), missing, self.killed.pid, self.killed.at):
            self._taken_over.add(new.task)
            self.story.say(
                f"Took over {new.task} after {new.at - self.killed.at:.1f} s: {new.worker}, "
                f"attempt {new.attempt}",
                style="green",
            )


def _check(story: Story, report: Report, folder: str, chunks: list[Chunk]) -> None:
    """Compare with one process; raises DemoFailed where they differ."""
    started = time.monotonic()
    alone = analysis.report_of_one_process(folder, chunks)
    took_s = time.monotonic() - started
    if alone != report:
        raise DemoFailed(
            f"the plan's result differs from that of a single process:\n{report}\n{alone}"
        )
    story.say(f"Compared  a single process comes to the same in {took_s:.1f} s")


def _tell_plan(story: Story, plan: zkplan.Plan, graph: Graph, chunks: list[Chunk]) -> None:
    files = sum(len(chunk.files) for chunk in chunks)
    story.say(
        f"Plan      {plan.path}: {count(files, 'file')} of the standard library of Python "
        f"{platform.python_version()}, {count(len(graph.tasks), 'task')}, "
        f"{count(graph.edges, 'edge')}"
    )


def _tell_end(
    story: Story,
    graph: Graph,
    history: list[Execution],
    killed: Killed | None,
    took_s: float,
    all_s: float,
) -> None:
    story.say(f"Executed  {how_often(history)}")
    story.say(
        f"Done      {count(len(graph.tasks), 'task')}, {count(len(history), 'execution')}, "
        f"{count(1 if killed else 0, 'worker')} killed, every result committed once, "
        f"identical to the single-process run; plan {took_s:.1f} s, all {all_s:.1f} s",
        style="bold",
    )


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:_NAMES_SHOWN])
    more = len(names) - _NAMES_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
