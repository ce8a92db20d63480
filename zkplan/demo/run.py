"""The demonstration from beginning to end: plan, workers, a kill, a takeover, the comparison."""

from __future__ import annotations

import logging
import platform
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import zkplan
from zkplan.demo import analysis
from zkplan.demo.analysis import Chunk, Report
from zkplan.demo.graph import Graph, add_graph
from zkplan.demo.journal import Execution, executions
from zkplan.demo.story import Story, how_often
from zkplan.demo.watch import Settings, Watch
from zkplan.demo.workers import DemoFailed, Killed, Workers
from zkplan.testing.provide import Provided
from zkplan.testing.znodes import remove_tree
from zkplan.text import count

logger = logging.getLogger("zkplan.demo")


def run(zookeeper: Provided, settings: Settings, story: Story) -> None:
    """Show a plan run on that ZooKeeper; leaves nothing behind there, however it ends.

    Raises DemoFailed where the result is not that of a single process or a worker breaks,
    zkplan.WaitTimeout after `timeout_s`, and what else zkplan raises.
    """
    folder = analysis.standard_library()
    chunks = analysis.split(analysis.source_files(folder))
    with ExitStack() as stack:
        journal = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="zkplan-demo-")))
        client = stack.enter_context(_client(zookeeper.hosts))
        version = "" if zookeeper.version == "unknown" else f"{zookeeper.version} "
        story.say(f"{zookeeper.what:<9} {version}at {zookeeper.hosts} ({zookeeper.how})")
        workers = stack.enter_context(
            Workers(zookeeper.hosts, client.root, settings.workers, settings.threads, journal)
        )
        plan = client.create_plan("standard-library")
        graph = add_graph(plan, str(folder), chunks, str(journal))
        _tell_plan(story, plan, graph, chunks)
        workers.wait_registered(lambda: {worker.pid: worker.id for worker in client.workers()})
        names = ", ".join(f"{name} (pid {pid})" for pid, name in workers.names.items())
        story.say(f"Workers   {len(workers.names)} running: {names}")
        watch = Watch(client, plan, graph, workers, journal, story, settings)
        report, took_s = watch.run()
        history = executions(journal)
    story.tables(report)
    _check(story, report, str(folder), chunks)
    _tell_end(story, graph, history, watch.killed, took_s)


@contextmanager
def _client(hosts: str) -> Iterator[zkplan.Client]:
    """A client on a root of the demonstration alone: no other worker takes its tasks."""
    root = f"/zkplan-demo-{uuid.uuid4().hex[:8]}"
    with zkplan.connect(hosts, root=root) as client:
        try:
            yield client
        finally:
            try:
                remove_tree(client.transport.client, root)
            except Exception as error:  # Whatever it is, it must not hide how the run ended.
                logger.warning("could not remove %s from ZooKeeper: %s", root, error)


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
) -> None:
    story.say(f"Executed  {how_often(history)}")
    story.say(
        f"Done      {count(len(graph.tasks), 'task')}, {count(len(history), 'execution')}, "
        f"{count(1 if killed else 0, 'worker')} killed, every result committed once, "
        f"identical to the single-process run; in {took_s:.1f} s",
        style="bold",
    )
