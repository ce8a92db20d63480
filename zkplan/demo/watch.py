"""The running plan of the demonstration: its progress, the kill, and who takes over."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import zkplan
from zkplan.demo.analysis import Report
from zkplan.demo.graph import Graph
from zkplan.demo.journal import executions, taken_over
from zkplan.demo.story import Story
from zkplan.demo.workers import SESSION_TIMEOUT_S, DemoFailed, Killed, Workers
from zkplan.protocol.layout import Paths, parse_claim
from zkplan.protocol.requests import Create, Delete, Multi, ReadChildren
from zkplan.text import count

#: The kill comes when this part of the tasks is done.
_KILL_AFTER = 1 / 3
_POLL_S = 0.02
#: Names of held tasks that one line shows.
_NAMES_SHOWN = 4


@dataclass(frozen=True)
class Settings:
    """What the command line decides; `timeout_s` bounds the run of the plan."""

    workers: int = 3
    threads: int = 2
    kill: bool = True
    timeout_s: float = 120.0


class Watch:
    """Follows one plan from its start to its end. `killed` says which worker was killed."""

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
        if self.killed and not self._taken_over:
            raise DemoFailed(f"no other worker ran {_some(self.killed.tasks)} after the kill")
        return report, took_s

    def _finished(self, started: float) -> bool:
        status = self.plan.status()
        done = len(self.graph.tasks) - status.tasks
        self.story.done(done)
        if not status.tasks:
            return True
        left_s = started + self.settings.timeout_s - time.monotonic()
        if left_s <= 0:
            raise zkplan.WaitTimeout(
                f"{status.tasks} tasks are not done after {self.settings.timeout_s:g} s: "
                "give it more time with --timeout"
            )
        if status.dead:
            self.plan.wait(timeout=left_s)  # Raises what says why.
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
                f"Killed    {who} after {count(done, 'task')}; it held {_some(self.killed.tasks)}",
                style="red",
            )
            self.story.say(
                f"          the others go on; its session ends after {SESSION_TIMEOUT_S:g} s"
            )

    def _held_by(self, worker: str) -> list[str]:
        """Names of the tasks that a stopped worker holds, by its claims node; none where it runs
        none.

        Commits that it sent before it was stopped may still be on their way. A write of our own is
        answered after them, so what the claims node shows then stays.
        """
        barrier = f"{self.client.root}/barrier"
        self.client.transport.ask(Multi([Create(barrier), Delete(barrier)]))
        claims_node = self.client.transport.ask(ReadChildren(self._paths.claims_of(worker))) or []
        claims = [claim for claim in map(parse_claim, claims_node) if claim is not None]
        held = sorted(self._names[claim.task] for claim in claims)
        begun = {run.task for run in executions(self.journal) if run.worker == worker}
        return held if begun.intersection(held) else []

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


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:_NAMES_SHOWN])
    more = len(names) - _NAMES_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
