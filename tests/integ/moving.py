"""A plan that has half run, and all that can be seen of a plan: for exports and imports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import zkplan
from tests.tools.support import described, note, wait_for_delayed, wait_until, working
from zkplan import Client, Plan, TaskSpec


def run_noted(file: str, name: str, *values: Any) -> str:
    note(file, name)
    return name


def count(file: str, values: list[Any]) -> int:
    note(file, "join")
    return len(values)


def open_only(file: str, gate: str) -> str:
    """Fails until the gate is open, and leaves a note in the log of its task."""
    context = zkplan.current()
    note(file, f"gate {context.attempt} {list(context.logs)}")
    if not Path(gate).exists():
        context.log("closed")
        raise ValueError("the gate is closed")
    return "open"


def facts(plan: Plan) -> dict[str, Any]:
    """All that can be seen of a plan, but for where it is and when its znodes were made."""
    status = plan.status()
    tasks = list(plan.tasks())
    details = {}
    for task in tasks:
        seen = described(plan.task(task.number), people=False)
        del seen["path"]
        seen["log"] = [line for line in seen["log"] if "progress note" not in line]
        details[task.number] = seen
    return {
        "status": status._replace(path="", ended=None),
        "tasks": tasks,
        "described": details,
        "dead": dict(plan.dead()),
        "record": plan.record,
    }


def half_run(client: Client, file: str, gate: str, width: int) -> Plan:
    """A paused plan: tasks done, delayed, dead, runnable, added late; a join almost complete."""
    options: dict[str, Any] = {"attempts": 1}
    with client.create_plan("half", attempts=2, retry_delay=250.0) as plan:
        kept = plan.add_task(run_noted, [file, "kept"], keep=True, name="kept")
        quick = plan.add_tasks(
            [TaskSpec(run_noted, [file, f"quick {n}"], priority=3) for n in range(width)]
        )
        closed = plan.add_task(open_only, [file, gate], name="closed", **options)
        delayed = plan.add_task(open_only, [file, gate], name="delayed")
        join = plan.add_task(count, [file, [kept, *quick, closed, delayed]], name="join")
        plan.add_task(run_noted, [file, "last", join], name="last", priority=7)
    with working(client.transport.hosts, client.root):
        wait_until(
            lambda: (status := plan.status()).dead == 1 and status.tasks == 4,
            "all has run that can run",
        )
        wait_for_delayed(client, 1)
        plan.pause()
    later = plan.add_task(run_noted, [file, "late"], name="late", keep=True)
    plan.add_task(run_noted, [file, "later", later], name="later")
    return plan
