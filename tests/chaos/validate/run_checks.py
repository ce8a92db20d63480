"""The checks of a whole run: what shows in its history and its logs alone, of whatever plan."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from zkplan.testing.stress_promises import wrong_arguments
from zkplan.testing.stress_tasks import Line

from .evidence import expected_of
from .history import RunHistory

#: What a write to the store says whose folder was deleted meanwhile.
_NO_FOLDER = "is not written to the store"
#: As `repr` tells it; what wraps an OSError says its number in another way.
_NO_MEMORY = ("MemoryError", "OSError(12,", "[Errno 12]")
_MENDED = ": the check mended "
#: Of a task whose author was lost within the steps of a wide join: it never runs.
_HALF_DEFINED = "is still being defined"
#: No fault holds a worker for so long, and the cluster leaves none stopped, or dead and not found,
#: be it busy with servers: both for 90 s at most. Of so many tasks each worker gets its share.
_STILL_S, _STILL_TASKS = 120.0, 2000


def violations_of_run(history: RunHistory) -> Iterator[str]:
    """All that shows so far. What begins late is told once, the rest each time."""
    yield from late_executions(history)
    yield from wrong_deaths(history)
    yield from wrong_refusals(history)
    yield from refused_by_the_store(history)
    yield from due_twice(history)
    yield from passed_without_a_value(history)
    yield from unplanned(history)


def mended_by_workers(folder: Path) -> Iterator[str]:
    """S2: nobody deletes by hand here, so what the check of a worker has mended was torn."""
    for log in sorted(folder.glob("worker*.log")):
        for line in log.read_text(errors="replace").splitlines():
            if _MENDED in line:
                yield f"S2 a worker had to mend: {line}"


def late_executions(history: RunHistory) -> Iterator[str]:
    """S3, S4: what begins after its plan was done began under a claim that was lost before.

    It had its arguments all the same.
    """
    while history.late:
        name, execution = history.late.pop()
        plan = history.plans[name]
        wrong = wrong_arguments(expected_of(plan.workload), execution)
        yield from (f"S3: {name}: {found}" for found in wrong)
        if execution.damaged:
            yield f"S3: {name}: {execution} got damaged bytes from {execution.damaged}"
        if execution.ahead:
            continue  # it has no claim, and is dropped
        n = (plan.committed or {}).get(execution.key)
        if n is not None and execution.n >= n:
            yield f"S4: {name}: {execution} began after attempt {n} was committed"
        last = plan.died.get(execution.key)
        if last is not None and (execution.n > last or plan.workload.fates[execution.key] == "cut"):
            yield f"S4: {name}: {execution} began after the task was out of attempts"


def wrong_deaths(history: RunHistory) -> Iterator[str]:
    """Nobody ends by itself but as a fault makes it; to be asked once all histories are read."""
    yield from (f"- {death}" for death in list(history.deaths) if not history.made(death))


def wrong_refusals(history: RunHistory) -> Iterator[str]:
    """S4: in every workload each result that an add depends on is to come, or is kept.

    Of all plans: one of which an add was refused wrongly may never be done.
    """
    for name, plan in list(history.plans.items()):
        for number, batch in plan.batches.items():
            if batch.state == "refused" and batch.error.startswith("ResultNotKept"):
                yield (
                    f"S4 adds are refused rightly: {name}: add {number} was refused, though every "
                    f"result can be had: {batch.error}"
                )


def refused_by_the_store(history: RunHistory) -> Iterator[str]:
    """S10: an add is refused for the store only where a fault kept its author from it."""
    for name, plan in list(history.plans.items()):
        for number, batch in plan.batches.items():
            for_it = batch.state == "refused" and batch.error.startswith("StoreUnavailable")
            if for_it and not history.store_fails(batch.begun, batch.answered):
                yield (
                    f"S10 adds are refused only without a store: {name}: add {number} was refused, "
                    f"and no fault had hit: {batch.error}"
                )


def due_twice(history: RunHistory) -> Iterator[str]:
    """S16: a due time of the schedule has at most one plan, also after that one was removed."""
    for due, paths in list(history.ticks.items()):
        if len(paths) > 1:
            yield f"S16 the schedule has made {sorted(paths)} for {due}"


def passed_without_a_value(history: RunHistory) -> Iterator[str]:
    """S17: behind a gate comes what its znode has held, and nothing else."""
    strange = set(history.passed) - set(history.gate_values)
    yield from (f"S17 a task got {value!r} of a gate that never held it" for value in strange)


def unplanned(history: RunHistory) -> Iterator[str]:
    """Tasks that raised what they should not, and waits that broke, where no fault explains it."""
    for line in list(history.unplanned):
        if not _is_explained(history, line):
            yield f"- {_told(line)}"


def standing_still(history: RunHistory) -> dict[int, str]:
    """Workers that live, and do nothing beside others that do much, by their process ids.

    They neither work nor end.
    """
    return {
        pid: f"{name} ({pid}) stands still: {begun} tasks began since it told anything, "
        f"{seconds:.0f} s ago; its log says where"
        for name, pid, seconds, begun in history.silent()
        if seconds > _STILL_S and begun > _STILL_TASKS
    }


def _told(line: Line) -> str:
    if line["event"] == "raised":
        return f"{line['execution']} raised what was not planned: {line['error']}"
    return f"a wait for {line['plan']} broke: {line['error']}"


def _is_explained(history: RunHistory, line: Line) -> bool:
    error, at = line["error"], line["at"]
    if line["event"] == "raised" and error.startswith("StoreUnavailable"):
        # A removal deletes the folder of the plan, also while a task writes to it.
        is_removed = history.operations.ending(line["plan"]) == "removed"
        return history.store_fails(at, at) or (is_removed and _NO_FOLDER in error)
    if line["event"] == "raised" and error.startswith("PlanNotFound"):
        # Its claim was lost, and its plan was checked and removed while the answer was under way.
        return any(
            error.endswith(f"there is no plan {plan.path}')")
            and (at > plan.checked_at or history.operations.ending(name) == "removed")
            for name, plan in list(history.plans.items())
        )
    if line["event"] == "raised":
        return history.lacked_memory(at, at, line["pid"]) and any(
            each in error for each in _NO_MEMORY
        )
    plan = history.plans.get(line["plan"])
    # One sentence says that the plan stands still, the others why.
    why = error.split("; ")[1:]
    is_half_defined = error.startswith("PlanStuck") and all(_HALF_DEFINED in each for each in why)
    if plan is None or not why or not is_half_defined:
        return False
    # It has ended, or stands still itself.
    return history.disturbed(plan.author_pid, plan.begun, at)
