"""A plan waits for a znode: here for the one that says that another plan is done."""

import json
import os

import zkplan


def report(done: bytes, day: str) -> str:
    return f"{day}: {json.loads(done)['failed']} tasks have failed"


with zkplan.connect(os.environ.get("ZKPLAN_HOSTS", "127.0.0.1:2181")) as client:
    first = client.create_plan("load")
    with client.create_plan("report") as second:
        loaded = zkplan.when(f"{first.path}/done", timeout=3600)
        told = second.add_task(report, [loaded, "Monday"])
    print([task.state for task in second.tasks()])
    with first:
        first.add_task(print, ["loading"])
    print(told.result(timeout=60))
    second.wait(timeout=60)
    for plan in (first, second):
        plan.remove()
