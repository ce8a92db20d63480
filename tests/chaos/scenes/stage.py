"""The stage of a directed scene: who comes when, who is stopped where, and what everybody saw.

Chance finds a narrow race now and then; a scene makes it every time: one process is stopped at a
named point, another one does what it may not be disturbed in, then the first goes on.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zkplan
from tests.integ.support import IN_CHECKOUT, wait_until
from tests.sim.world import ROOT
from zkplan.errors import ZkplanError
from zkplan.protocol.failpoints import VARIABLE
from zkplan.protocol.requests import ReadChildren
from zkplan.testing.process import WatchedProcess

from ..actors import author
from ..faults.aim import Aim
from ..faults.operating import Operator
from ..validate.plans import Execution
from ..validate.tree import Tree
from ..validate.validator import Validator
from ..world.arena import Actor, Arena, Settings
from ..world.link import Link
from ..world.proc import is_stopped

WAIT_S = 30.0
#: Once nobody is stopped any more, everything comes to its end within this, or never.
BOUND_S = 10.0


@dataclass(frozen=True)
class Scene:
    """One race, on plans of that script.

    `altered`: what is different in every worker, with and without a mutant. `soon_s`: a task starts
    within that time after the last that it needs has ended.
    """

    play: Callable[[Stage], None]
    script: str
    session_s: float = 5.0
    altered: str = ""
    soon_s: float = float("inf")


class Found(Exception):
    """A violation shows already: the rest of the scene need not be played."""


class Stage:
    """The processes of one scene, by name: `author`, `worker0`, `worker1`, `worker2`."""

    def __init__(self, arena: Arena, validator: Validator, client: zkplan.Client) -> None:
        self.arena, self.validator, self.client = arena, validator, client
        self._tree = Tree(client)
        self._found: list[str] = []
        self._stack = ExitStack()

    # ---- who does what

    def start(self, *names: str, points: str = "") -> None:
        """Start them, armed with `points`; who is armed counts as disturbed by a fault."""
        for name in names:
            actor = self._actor(name)
            self.arena.start(actor, {VARIABLE: points})
            if points:
                aim = Aim(pids=[actor.pid])
                self.arena.journal.write("fault", name=f"{name} armed", **aim.facts())

    def go(self, name: str) -> None:
        """Let it go on from the point where it is stopped."""
        self.arena.resume(self._actor(name))

    def stopped(self, name: str) -> None:
        """Wait until it stands at its point."""
        actor = self._actor(name)
        self.until(lambda: is_stopped(actor.pid), f"{name} stands at its point")

    def dead(self, name: str) -> None:
        """Wait until it was killed at its point."""
        actor = self._actor(name)
        assert actor.process is not None
        self.until(lambda: not actor.process.is_running(), f"{name} dies at its point")  # type: ignore[union-attr]
        self.arena.kill(actor, "killed at its point")

    def gone(self, name: str) -> None:
        """Wait until its registration has ended."""
        mark = f"-{self._actor(name).pid}-"
        workers = ReadChildren(self.client.paths.workers)
        self.until(
            lambda: not any(mark in each for each in self.client.transport.ask(workers)),
            f"{name} is registered no more",
        )

    def expire(self, name: str) -> None:
        """End its session before its time, and wait until its registration has ended."""
        self.arena.expire(self._actor(name))
        self.gone(name)

    def log_of(self, name: str) -> str:
        return self.arena.log_of(self._actor(name))

    def link(self, name: str) -> Link:
        return self._actor(name).link

    def operator(self, *command: str, points: str) -> WatchedProcess:
        """A person's command, by the broken `zkplan` where the protocol is broken."""
        mutant = self.arena.settings.mutant
        program = ["tests.chaos.actors.mutated", mutant] if mutant else ["zkplan"]
        hosts = ["--hosts", self.arena.servers.hosts, "--root", ROOT]
        process = WatchedProcess(
            [*IN_CHECKOUT, sys.executable, "-m", *program, *command, *hosts],
            self.arena.folder / "operator.log",
            os.environ | {VARIABLE: points},
        )
        self._stack.callback(process.end, 0)
        return process

    def retry(self, plan: zkplan.Plan) -> bool:
        """Retry every dead task, if there is one; recorded, for each has all its attempts then."""
        letters = plan.dead()
        for number, letter in letters.items():
            Operator(self.client, self.arena.journal).retry(plan, number, letter)
        return bool(letters)

    def allow_add(self, number: int) -> None:
        """Let a gated author go on with that add."""
        (self.arena.folder / f"{author.GATE}{number}").touch()

    def _actor(self, name: str) -> Actor:
        return next(actor for actor in self.arena.actors if actor.name == name)

    # ---- what they did

    @property
    def plan(self) -> zkplan.Plan:
        """The plan of the scene, once it stands."""
        self.until(self.client.plans, "the plan stands")
        return self.client.plans()[0]

    def runs(self, key: str, most_plans: int | None = None) -> list[Execution]:
        """The executions so far of the task of that key, in the first so many plans, or in all."""
        self.validator.history.read()
        plans = list(self.validator.history.plans.values())[:most_plans]
        return [each for plan in plans for each in list(plan.executions.get(key, ()))]

    def has_run(self, key: str, name: str) -> bool:
        """Whether that worker, in its present life, has started the task."""
        pid = self._actor(name).pid
        return any(run.pid == pid for run in self.runs(key))

    def added(self, number: int) -> bool:
        """Whether that add was acknowledged."""
        self.validator.history.read()
        batches = [plan.batches.get(number) for plan in self.validator.history.plans.values()]
        return any(batch is not None and batch.state == "done" for batch in batches)

    def ended(self) -> int:
        """Executions that returned."""
        self.validator.history.read()
        return self.validator.history.counts["end"]

    # ---- waiting and judging

    def until(self, condition: Callable[[], Any], what: str) -> None:
        """Wait for it; raises Found as soon as something is violated."""

        def looked() -> Any:
            self._look()
            return condition()

        wait_until(looked, what, WAIT_S)

    def during(self, seconds: float, happens: Callable[[], bool] = bool) -> bool:
        """Give what must not happen so much time to happen; whether it did."""
        deadline = time.monotonic() + seconds
        self.until(lambda: happens() or time.monotonic() > deadline, "its time is over")
        return happens()

    def violated(self, text: str) -> None:
        self._found.append(text)
        self._look()

    def finish(self) -> None:
        """Nobody is stopped any more: everything must come to its end."""
        self.until(self._is_begun, "the author has begun")
        self.arena.end_authors()
        deadline = time.monotonic() + BOUND_S

        def over() -> bool:
            self._look()
            return self.validator.finished > 0 and self.validator.is_idle()

        wait_until(lambda: over() or time.monotonic() > deadline, "the end", 2 * BOUND_S)
        if not over():
            self._found += self.validator.give_up(self.validator.standing) or [
                "the plan was not judged"
            ]
        self._look()

    def _is_begun(self) -> bool:
        self.validator.history.read()
        return self.validator.history.counts["plan begun"] > 0

    def _look(self) -> None:
        self._found += self._tree.look()
        if self._found or self.validator.violations:
            raise Found

    def verdict(self) -> list[str]:
        """Every violation, and every process that ended by itself."""
        ended = [
            f"{actor.name} ended by itself: {self.arena.log_of(actor)[-500:]}"
            for actor in self.arena.actors
            if actor.process is not None and not actor.process.is_running()
            # An author ends once it was told to.
            if actor.role != "author" or not self.validator.history.counts["author stopped"]
        ]
        return [*dict.fromkeys([*self._found, *self.validator.violations]), *ended]

    def close(self) -> None:
        self._stack.close()


@contextmanager
def _set(scene: Scene, mutant: str, folder: Path) -> Iterator[Stage]:
    settings = Settings(
        "embedded",
        1,
        workers=3,
        session_s=scene.session_s,
        backlog=1,
        shape=scene.script,
        mutant="+".join(name for name in (mutant, scene.altered) if name),
        staged=True,
        soon_s=scene.soon_s,
    )
    with (
        Arena(settings, folder) as arena,
        Validator(arena) as validator,
        zkplan.connect(arena.servers.hosts, ROOT, connect_timeout=60.0) as client,
    ):
        stage = Stage(arena, validator, client)
        try:
            yield stage
        finally:
            stage.close()


def played(scene: Scene, mutant: str, folder: Path) -> list[str]:
    """Play a scene, with a broken protocol or with the real one: what was violated."""
    with _set(scene, mutant, folder) as stage:
        try:
            scene.play(stage)
            stage.finish()
        except Found:
            pass
        except (AssertionError, ZkplanError) as error:
            return [*stage.verdict(), f"the scene broke off: {error!r}"]
        return stage.verdict()
