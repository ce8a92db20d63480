"""A plan is paused, resumed and cancelled; running tasks see that they are not wanted."""

import os
import time

import zkplan


def patient() -> None:
    while True:
        zkplan.current().check()  # raises once the plan is cancelled
        time.sleep(0.05)


with zkplan.connect(os.environ.get("ZKPLAN_HOSTS", "127.0.0.1:2181")) as client:
    with client.create_plan("control") as plan:
        plan.add_task(patient)
    plan.pause()
    print(plan.status().state)
    plan.resume()
    print(plan.status().state)
    plan.cancel()
    try:
        plan.wait(timeout=60)
    except zkplan.PlanCancelled:
        print(plan.status().state, "with", plan.remove(), "task left")
