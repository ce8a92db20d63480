"""The weight and the priority of a plan are changed while it runs."""

import os
import time

import zkplan


def total(numbers: list[int]) -> int:
    time.sleep(1)
    return sum(numbers)


with zkplan.connect(os.environ.get("ZKPLAN_HOSTS", "127.0.0.1:2181")) as client:
    with client.create_plan("nightly", weight=3) as plan:
        totals = [plan.add_task(total, [list(range(count))]) for count in range(20)]
    print(plan.status().weight, plan.status().priority)
    plan.set(weight=1, priority=-10)
    print(plan.status().weight, plan.status().priority)
    print(totals[5].result(timeout=60))
    plan.remove()
