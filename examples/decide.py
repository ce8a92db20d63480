"""One task is skipped with a value, one is cancelled, and all that failed alike are skipped."""

import os

import zkplan


def load(name: str) -> int:
    raise TimeoutError(f"{name} does not answer")


with zkplan.connect(os.environ.get("ZKPLAN_HOSTS", "127.0.0.1:2181")) as client:
    with client.create_plan("decide", attempts=1) as plan:
        parts = [plan.add_task(load, [name], name=name) for name in ("east", "west", "south")]
        total = plan.add_task(sum, [parts], keep=True)
        report = plan.add_task(print, [total], name="report")
    try:
        plan.wait(timeout=60)
    except zkplan.PlanFailed:
        print("dead:", [task.name for task in plan.select(state="dead")])
    print("west is skipped:", parts[1].skip(40))
    print("report is cancelled:", report.cancel())
    for task in plan.select(state="dead", error="Timeout*"):
        task.skip(1)
    print("total:", total.result(timeout=60))
    print("skipped:", plan.status().skipped)
    plan.remove()
