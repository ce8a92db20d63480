"""Changes of a whole run: what tasks raise, waits that break, deaths, workers that do nothing."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..faults.aim import Aim
from ..validate.evidence import PlanEvidence
from ..validate.windows import Window
from .honest import AUTHOR, NOW, WORKER, adding, winner
from .table import row

RAISED = "- 0 attempt 0 (raises on worker, pid 2) raised what was not planned"
BROKE = "- a wait for chaos-11 broke: PlanStuck"
STUCK = "PlanStuck: /z/plan-1 can never drain: one task remains and cannot run; task-1: {}"
HALF = STUCK.format("is still being defined (a join too wide for one transaction)")
NO_MEMORY = repr(OSError(12, "Cannot allocate memory"))
#: Not that of the honest worker.
OTHER = 77


def written(evidence: PlanEvidence, pid: int, event: str, at: float, /, **facts: Any) -> None:
    """That process wrote it, or the arena where it is 0."""
    file = Path(f"worker-{pid}.jsonl" if pid else "arena.jsonl")
    evidence.history.take({"event": event, "at": at, **facts}, file)


@row(adding, f"{RAISED}: NameError('x')", error="NameError('x')")
@row(adding, error="PlannedFailure('T')", planned=True)
@row(adding, error="MemoryError()", poke="memory")
@row(adding, error=NO_MEMORY, poke="memory")
@row(adding, error=repr(RuntimeError(f"no thread: {NO_MEMORY}")), poke="memory")
@row(adding, RAISED, error="NameError('x')", poke="memory")
@row(adding, RAISED, error="MemoryError()", poke="fork")
@row(adding, RAISED, error="MemoryError()")
@row(adding, RAISED, error="MemoryError()", poke="memory", later_s=60.0)
def a_task_raises(
    evidence: PlanEvidence, error: str, poke: str = "", planned: bool = False, later_s: float = 0.2
) -> None:
    """Who was left without memory may lack it, for a moment."""
    one = winner(evidence)
    facts = {**asdict(one), "uid": "raises", "plan": "chaos-11"}
    began = facts.pop("began") - 0.9
    one.n, one.a = one.n + 1, one.a + 1
    written(evidence, WORKER, "begin", began, **facts)
    if poke:
        written(evidence, WORKER, "poked", began, what=poke, pid=WORKER)
    ended = {"uid": "raises", "error": error, "planned": planned}
    written(evidence, WORKER, "raised", began + later_s, **ended)


@row(adding, BROKE, error=HALF)
@row(adding, BROKE, error=HALF, killed=AUTHOR, at=0.2)
@row(adding, BROKE, error=HALF, killed=OTHER, at=15.0)
@row(adding, error=HALF, killed=AUTHOR, at=15.0)
@row(adding, BROKE, error=STUCK.format("is complete, and nowhere"), killed=AUTHOR, at=15.0)
@row(adding, BROKE, error=f"{HALF}; task-2: is complete, and nowhere", killed=AUTHOR, at=15.0)
@row(adding, BROKE, error="PlanStuck: ", killed=AUTHOR, at=15.0)
@row(adding, "- a wait for chaos-11 broke", error="PlanError" + HALF[9:], killed=AUTHOR, at=15.0)
@row(adding, BROKE, error=HALF, paused="another")
@row(adding, error=HALF, paused="author")
def a_wait_breaks(
    evidence: PlanEvidence, error: str, killed: int = 0, at: float = 0.0, paused: str = ""
) -> None:
    """What an author half defined stands still, where it was lost meanwhile or stands still too."""
    evidence.plan.begun = 0.5
    if killed:
        facts = {"pid": killed, "sent": at, "why": "killed", "killed": True}
        written(evidence, 0, "ended", at, **facts)
    if paused:
        facts = {"name": "author", "role": "author", "pid": AUTHOR}
        written(evidence, 0, "started", 0.0, **facts)
        aim = Aim(names=[paused])
        evidence.history.windows.append(Window("author paused", 12.0, aim, 19.0))
    written(evidence, 0, "wait broke", 20.0, plan="chaos-11", error=error)


@row(adding, "- worker0 (pid 77) ended by itself, with 1")
@row(adding, "- worker0 (pid 77) ended by itself, with 1", codes=[7])
@row(adding, codes=[1])
def a_process_dies(evidence: PlanEvidence, codes: list[int] | None = None) -> None:
    if codes:
        aim = Aim(pids=[OTHER], codes=codes)
        evidence.history.windows.append(Window("a fault", NOW - 1.0, aim, NOW + 1.0))
    written(evidence, 0, "died", NOW, name="worker0", pid=OTHER, code=1, tail="")


@row(adding, "worker0 (77) stands still", tasks=2100, seconds=150.0)
@row(adding, tasks=1900, seconds=150.0)
@row(adding, tasks=2100, seconds=90.0)
@row(adding, tasks=2100, seconds=150.0, ended=True)
def a_worker_tells_nothing_while_others_begin(
    evidence: PlanEvidence, tasks: int, seconds: float, ended: bool = False
) -> None:
    """One did so for ten minutes: out of memory, it neither worked nor ended.

    One that died is found dead within 90 s, while the arena mends servers.
    """
    for number in (0, 1):
        facts = {"name": f"worker{number}", "role": "worker", "pid": OTHER + number}
        written(evidence, 0, "started", NOW, **facts)
    if ended:
        written(evidence, 0, "ended", NOW, pid=OTHER, sent=NOW, why="killed", killed=True)
    facts = {**asdict(winner(evidence)), "pid": OTHER + 1, "plan": "chaos-5"}
    del facts["began"]
    for n in range(tasks):
        at = NOW + seconds * (n + 1) / tasks
        written(evidence, OTHER + 1, "begin", at, **{**facts, "n": n, "uid": str(n)})
