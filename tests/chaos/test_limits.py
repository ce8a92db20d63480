"""A limit under load and kills: never one task too many, and hardly an unused permit."""

from __future__ import annotations

import itertools
import os
import random
import signal
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import zkplan
from tests.chaos.limited import work
from tests.tools.support import WAIT_S, WorkerProcess, notes, wait_until
from zkplan.embedded import EmbeddedServer
from zkplan.embedded.operations import MultiFailed
from zkplan.embedded.tree import Tree
from zkplan.protocol.core.workers import sign_off
from zkplan.protocol.layout import PERMIT

MINUTES = float(os.environ.get("ZKPLAN_LIMITS_MINUTES", "1"))
SIZE, WAITING, WORKERS = 5, 200, 4
KILL_EVERY_S = 1.0
ROOT, SEED = "/limits", 7


class Crew:
    """Four worker processes. A killed one is signed off, as its supervisor does, and replaced."""

    def __init__(self, stack: ExitStack, hosts: str, folder: Path, client: zkplan.Client) -> None:
        self._stack, self._hosts, self._folder, self._client = stack, hosts, folder, client
        self._names = itertools.count()
        self.crew: list[WorkerProcess] = []
        #: By process, when it was dead.
        self.dead_at: dict[int, float] = {}

    def fill(self) -> None:
        while len(self.crew) < WORKERS:
            options = ("--threads", "4", "--session-timeout", "4", "--quiet")
            folder = self._folder / f"{next(self._names)}"
            made = WorkerProcess(self._hosts, ROOT, folder, *options)
            self.crew.append(self._stack.enter_context(made))

    def kill(self, victim: WorkerProcess) -> None:
        worker = next((w.id for w in self._client.workers() if w.pid == victim.pid), None)
        if worker is None:
            return  # it has not registered yet
        os.kill(victim.pid, signal.SIGKILL)
        wait_until(lambda: not victim.process.is_running(), "it is dead")
        self.dead_at[victim.pid] = time.time()
        self._client.transport.run(sign_off(self._client.paths, worker))
        self.crew.remove(victim)


def intervals(lines: list[str], dead_at: dict[int, float]) -> list[tuple[float, float]]:
    """When each attempt ran: to its own end, or to that of its process."""
    begun: dict[tuple[str, ...], float] = {}
    found = []
    for line in lines:
        kind, *who, at = line.split()
        if kind == "begin":
            begun[tuple(who)] = float(at)
        else:
            found.append((begun.pop(tuple(who)), float(at)))
    found += [(at, dead_at[int(who[-1])]) for who, at in begun.items()]
    return found


def most_at_once(times: list[tuple[float, float]]) -> int:
    # A task that ends at the moment at which another begins does not overlap it.
    steps = sorted([(end, -1) for _, end in times] + [(begin, 1) for begin, _ in times])
    return max(itertools.accumulate(step for _, step in steps))


@pytest.mark.chaos
@pytest.mark.timeout(int(MINUTES * 60 + 120))
def test_a_limit_of_five_holds_and_is_used_while_workers_are_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refused, real = [], Tree.multi

    def multi(self: Tree, ops: Any, **options: Any) -> Any:
        try:
            return real(self, ops, **options)
        except MultiFailed:
            if any(f"/{PERMIT}" in op.path for op in ops):
                refused.append(ops)
            raise

    monkeypatch.setattr(Tree, "multi", multi)
    chance, file = random.Random(SEED), str(tmp_path / "record")
    with ExitStack() as stack:
        server = stack.enter_context(EmbeddedServer())
        client = stack.enter_context(zkplan.connect(server.hosts, ROOT))
        client.set_limit("five", SIZE)
        plans = [client.create_plan(f"plan {n}", limits=["five"], attempts=1000) for n in range(2)]
        for plan in plans:
            plan.mark_ready()
        crew = Crew(stack, server.hosts, tmp_path, client)
        crew.fill()
        wait_until(lambda: len(client.workers()) == WORKERS, "all are there", WAIT_S)
        numbers = itertools.count()
        began = time.monotonic()
        while time.monotonic() < began + MINUTES * 60:
            for plan in plans:
                missing = WAITING // len(plans) - plan.status().runnable
                with plan:
                    for number in itertools.islice(numbers, max(0, missing)):
                        plan.add_task(work, [file, number])
            crew.kill(chance.choice(crew.crew))
            crew.fill()
            threading.Event().wait(KILL_EVERY_S)
        until = time.time()
        for limit in client.limits():
            assert len(limit.held) <= SIZE
        for plan in plans:
            plan.cancel()
        for each in crew.crew:
            each.process.end(30)
            crew.dead_at[each.pid] = time.time()
        with zkplan.Worker(stack.enter_context(zkplan.connect(server.hosts, ROOT))):
            wait_until(lambda: client.limits()[0].held == [], "no permit is left", WAIT_S)
    times = intervals(notes(file), crew.dead_at)
    first = min(begin for begin, _ in times)
    busy = sum(min(end, until) - begin for begin, end in times if begin < until)
    average, tasks = busy / (until - first), len(times)
    told = f"{tasks} attempts, {len(crew.dead_at) - WORKERS} kills: at most {most_at_once(times)} "
    told += (
        f"at once, {average:.2f} on average, {len(refused)} refused ({len(refused) / tasks:.2f})"
    )
    with capsys.disabled():
        sys.stdout.write(f"\n{told}\n")
    assert most_at_once(times) <= SIZE, told
    assert average >= 4.5, told
    assert len(refused) < tasks, told
