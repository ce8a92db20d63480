"""What tasks raise, and how waits end, is a finding where no workload and no fault explains it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from zkplan.stress.history import Recorder

from .actors.workloads import Workload
from .faults.aim import Aim
from .judges.histories import PlanHistory
from .judges.ledger import Ledger
from .judges.referee import Referee
from .judges.trouble import standing_still, unplanned
from .judges.windows import Window
from .world.arena import Arena, Settings

PID, SEED, NAME = 77, 5, "chaos-5"
STUCK = "PlanStuck: /z/plan-1 can never drain: one task remains and cannot run; task-1: {}"
HALF = STUCK.format("is still being defined (a join too wide for one transaction)")


def raised(folder: Path, error: str, poke: str = "", planned: bool = False) -> Ledger:
    """The ledger of a worker whose task did."""
    worker = Recorder(str(folder), f"worker-{PID}")
    facts = {"key": "T", "number": "", "worker": "w", "pid": PID, "by": ""}
    facts |= {"digest": "", "got": [], "keys": 0}
    worker.write("begin", plan=NAME, n=0, a=0, uid="1", damaged=[], **facts)
    if poke:
        worker.write("poked", what=poke, pid=PID)
    worker.write("raised", uid="1", planned=planned, error=error)
    worker.close()
    ledger = Ledger(folder, "one")
    ledger.read()
    return ledger


def test_a_task_that_raises_what_was_not_planned_is_found(tmp_path: Path) -> None:
    (found,) = unplanned(raised(tmp_path, "NameError('x')"))
    assert found == "- T attempt 0 (1 on w) raised what was not planned: NameError('x')"


def test_what_was_planned_is_no_trouble(tmp_path: Path) -> None:
    assert unplanned(raised(tmp_path, "PlannedFailure('T')", planned=True)) == []


@pytest.mark.parametrize(
    ("error", "poke", "is_found"),
    [
        ("MemoryError()", "memory", False),
        (repr(OSError(12, "Cannot allocate memory")), "memory", False),
        (
            repr(RuntimeError(f"no thread: {OSError(12, 'Cannot allocate memory')}")),
            "memory",
            False,
        ),
        ("NameError('x')", "memory", True),
        ("MemoryError()", "fork", True),
        ("MemoryError()", "", True),
    ],
)
def test_who_was_left_without_memory_may_lack_it(
    tmp_path: Path, error: str, poke: str, is_found: bool
) -> None:
    assert bool(unplanned(raised(tmp_path, error, poke))) == is_found


def test_memory_is_back_a_moment_later(tmp_path: Path) -> None:
    ledger = raised(tmp_path, "MemoryError()", "memory")
    ledger.trouble[0]["at"] += 60.0
    assert len(unplanned(ledger)) == 1


def broke(folder: Path, error: str) -> Ledger:
    """A wait broke at 20, for a plan that its author began at 10."""
    ledger = Ledger(folder)
    history = PlanHistory(SEED, Workload.make(SEED, "one"), author_pid=PID, begun=10.0)
    ledger.plans[NAME] = history
    ledger.trouble.append({"event": "wait broke", "plan": NAME, "error": error, "at": 20.0})
    return ledger


def test_a_wait_that_breaks_is_found(tmp_path: Path) -> None:
    (found,) = unplanned(broke(tmp_path, HALF))
    assert found.startswith(f"- a wait for {NAME} broke: PlanStuck: /z/plan-1 can never drain")


def test_what_a_lost_author_has_half_defined_stands_still(tmp_path: Path) -> None:
    ledger = broke(tmp_path, HALF)
    ledger._kills[PID].append(9.0)
    ledger._kills[PID + 1].append(15.0)
    assert len(unplanned(ledger)) == 1
    ledger._kills[PID].append(15.0)
    assert unplanned(ledger) == []


def test_an_author_that_stands_still_itself_is_lost_too(tmp_path: Path) -> None:
    ledger = broke(tmp_path, HALF)
    ledger.windows.append(Window("author paused", 12.0, Aim(names=["author"]), 19.0))
    assert len(unplanned(ledger)) == 1
    ledger._actors[PID].add("author")
    assert unplanned(ledger) == []


@pytest.mark.parametrize(
    "error",
    [
        STUCK.format("is complete, and nowhere"),
        f"{HALF}; task-2: is complete, and nowhere",
        HALF.replace("PlanStuck", "PlanError"),
        "PlanStuck: ",
    ],
)
def test_nothing_else_is_explained_by_a_lost_author(tmp_path: Path, error: str) -> None:
    ledger = broke(tmp_path, error)
    ledger._kills[PID].append(15.0)
    assert len(unplanned(ledger)) == 1


def test_the_referee_tells_of_it_once(tmp_path: Path) -> None:
    arena = Arena(Settings("embedded", 1), tmp_path)
    raised(tmp_path, "NameError('x')")
    referee = Referee(arena)
    for _ in range(2):
        referee.judge_histories()
    arena.journal.close()
    (found,) = referee.violations
    assert "raised what was not planned" in found


@pytest.mark.parametrize(
    ("tasks", "seconds", "ended", "is_found"),
    [
        (2100, 150.0, False, True),
        (1900, 150.0, False, False),
        # As one that died, and is not found dead while the arena mends servers.
        (2100, 90.0, False, False),
        (2100, 150.0, True, False),
    ],
)
def test_a_worker_that_stands_still_beside_others_is_found(
    tasks: int, seconds: float, ended: bool, is_found: bool, tmp_path: Path
) -> None:
    """As one did for ten minutes: out of memory, it neither worked nor ended."""
    arena = Recorder(str(tmp_path), "arena")
    for number in (0, 1):
        arena.write("started", name=f"worker{number}", role="worker", pid=PID + number)
    if ended:
        arena.write("ended", pid=PID, sent=0.0, why="killed", killed=True)
    arena.close()
    ledger = Ledger(tmp_path, "one")
    ledger.read()
    now = time.monotonic()
    line = {"event": "begin", "plan": NAME, "key": "T", "a": 0, "worker": "w", "pid": PID + 1}
    line |= {"number": "", "by": "", "digest": "", "got": [], "keys": 0, "damaged": []}
    for n in range(tasks):
        at = now + seconds * (n + 1) / tasks
        ledger._take({**line, "n": n, "uid": str(n), "at": at}, PID + 1)
    assert list(standing_still(ledger)) == ([PID] if is_found else [])
