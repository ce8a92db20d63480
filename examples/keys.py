"""A program that is started twice makes one plan, and each task once."""

import operator
import os

import zkplan

with zkplan.connect(os.environ.get("ZKPLAN_HOSTS", "127.0.0.1:2181")) as client:
    for start in ("first", "second"):
        with client.create_plan("report", key="report-2026-11-23") as plan:
            total = plan.add_task(operator.add, [1, 2], key="total")
            shown = plan.add_task(str, [total], key="shown")
        print(f"{start} start: new={plan.is_new}", repr(shown.result(timeout=60)))
    print(plan.wait(timeout=60).finished, "tasks;", plan.task("total").state())
