"""What nobody planned: what tasks raise, waits that break, workers that stand still."""

from __future__ import annotations

from zkplan.stress.history import Line

from .history import RunHistory

#: As `repr` tells it; what wraps an OSError says its number in another way.
_NO_MEMORY = ("MemoryError", "OSError(12,", "[Errno 12]")
#: Of a task whose author was lost within the steps of a wide join: it never runs.
_HALF_DEFINED = "is still being defined"
#: No fault holds a worker for so long, and the arena leaves none stopped, or dead and not found, be
#: it busy with servers: both for 90 s at most. Of so many tasks each worker gets its share.
_STILL_S, _STILL_TASKS = 120.0, 2000


def unplanned(history: RunHistory) -> list[str]:
    """Tasks that raised what they should not, and waits that broke, where no fault explains it."""
    return [
        f"- {_told(line)}" for line in list(history.trouble) if not _is_explained(history, line)
    ]


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
