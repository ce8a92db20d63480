"""A plan that cannot go on says why. It is cancelled."""

import os

import zkplan


def load() -> list[int]:
    raise OSError("the disk is full")


with zkplan.connect(os.environ.get("ZKPLAN_HOSTS", "127.0.0.1:2181")) as client:
    with client.create_plan("report", attempts=1) as plan:
        numbers = plan.add_task(load)
        total = plan.add_task(sum, [numbers], name="total")
    try:
        plan.wait(timeout=60)
    except zkplan.PlanFailed:
        for cause in total.why().causes:
            print(f"{cause.code}: {cause.text}")
    plan.cancel()
    print(plan.status().state)
